"""Selection from tables at the sizes of a real run."""

import pytest
import torch
from hyscale_kernels.top_k import top_k
from inputs import DEVICE, INFINITY, looked_at

pytestmark = pytest.mark.gpu


def filled(n, width, seed=0):
    return torch.randn(n, width, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed))


def sorted_places(table, topk):
    """The right answer by a stable sort on the device."""
    order = table.sort(dim=1, descending=True, stable=True).indices[:, :topk]
    return order.sort(dim=1).values.to(torch.int32)


def test_random_rows_of_262144_select_the_exact_values(gpu):
    table = filled(64, 262144)
    assert torch.equal(top_k(table, 2048), sorted_places(table, 2048))


def test_periodic_ties_of_bf16(gpu):
    table = ((torch.arange(65536, device=DEVICE) % 64).bfloat16().float() / 64).repeat(4, 1)
    chosen = top_k(table, 1024)
    assert chosen.tolist() == [[*range(63, 65536, 64)]] * 4
    assert bool((table.gather(1, chosen.long()) == 0.984375).all())


@pytest.mark.parametrize("width", [16384, 262144, 1048576])
def test_monotonic_rows(gpu, width):
    ascending = torch.arange(width, device=DEVICE).float()
    chosen = top_k(torch.stack([ascending, -ascending]), 2048)
    assert chosen.tolist() == [[*range(width - 2048, width)], [*range(2048)]]


def test_a_hundred_launches_are_equal_bit_for_bit_with_ties_at_the_border(gpu):
    # A few hundred different values: thousands are equal at the border.
    table = (filled(64, 200000) * 64).round()
    table[::2] = table[::2].relu().clamp(max=1.0)
    first = top_k(table, 2048)
    assert torch.equal(first, sorted_places(table, 2048))
    for _ in range(100):
        assert torch.equal(top_k(table, 2048), first)


# Just below and above 2^31 and 2^32 scores.
@pytest.mark.parametrize("n", [2047, 2049, 4095, 4096, 4097])
def test_a_unique_maximum_in_the_last_row_beyond_32_bits(gpu, n):
    width = 2**20
    table = filled(n, width)
    table[-1, width - 3] = 100
    assert top_k(table, 1)[-1].tolist() == [width - 3]
    chosen = top_k(table, 2048)
    for row in (0, 2047 % n, n // 2, n - 2, n - 1):
        assert torch.equal(chosen[row : row + 1], sorted_places(table[row : row + 1], 2048))


def test_more_rows_than_65535(gpu):
    table = filled(70001, 6000)
    spans = torch.tensor([[0, 6000]], dtype=torch.int32, device=DEVICE).repeat(70001, 1)
    spans[::3] = torch.tensor([5, 3000], dtype=torch.int32, device=DEVICE)
    chosen = top_k(table, 33, spans)
    table[::3, :5] = table[::3, 3000:] = -INFINITY
    assert torch.equal(chosen, sorted_places(table, 33))


def test_more_than_a_million_rows_whose_indices_exceed_32_bits(gpu):
    n = 2**20 + 3
    table = torch.zeros(n, 2056, device=DEVICE)
    table[:, :8] = -1.0
    table[-1, :8] = 1.0
    chosen = top_k(table, 2048)
    # 8.6 GB of indices: compared in place, a part at a time.
    wanted = torch.arange(8, 2056, dtype=torch.int32, device=DEVICE)
    assert all(bool((part == wanted).all()) for part in chosen[:-1].split(65536))
    assert chosen[-1].tolist() == [*range(2048)]


def test_a_row_stride_beyond_32_bits(gpu):
    table = torch.empty(2**32 + 20000, device=DEVICE).as_strided((3, 20000), (2**31, 1))
    table.copy_(filled(3, 20000))
    assert torch.equal(top_k(table, 100), sorted_places(table, 100))


def test_rows_that_mislead_their_samples_are_searched_again_between_others(gpu):
    table = filled(16, 300000)
    table[::2, ~looked_at(300000)] += 50
    table[1, looked_at(300000)] += 50
    assert torch.equal(top_k(table, 2048), sorted_places(table, 2048))
