"""Score tables at the sizes of a real run."""

import pytest
import torch
from hyscale_kernels.score_table import score_table, select
from hyscale_kernels.scoring.inputs import FP8
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE, assert_scores, random, whole


@pytest.mark.gpu
@pytest.mark.parametrize("n", [2047, 2049, 4096])
def test_a_unique_maximum_in_the_last_row_of_a_table_beyond_32_bits(gpu, n):
    length = 1 << 20
    q, keys, weights = random(n, 4, 32, length)
    keys[length - 2] = 16 * q[-1, 0]
    weights[-1] = weights[-1].abs() + 1
    chosen = select(q, keys, weights, whole(n, length), 3, block_rows=n)
    assert length - 2 in chosen[-1].tolist()
    assert select(q, keys, weights, whole(n, length), 1, block_rows=n)[-1].tolist() == [length - 2]
    table = score_table(q, keys, weights, whole(n, length))
    assert torch.equal(table[-1], score_table(q[-1:], keys, weights[-1:], whole(1, length))[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_twenty_launches_are_equal_bit_for_bit(gpu, dtype):
    q, keys, weights = random(256, 32, 128, 20000, dtype)
    spans = causal_spans(torch.arange(19744, 20000, device=DEVICE))
    first = score_table(q, keys, weights, spans)
    assert_scores(first, q, keys, weights, spans)
    for _ in range(20):
        assert torch.equal(score_table(q, keys, weights, spans), first)
