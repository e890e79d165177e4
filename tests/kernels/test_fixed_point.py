import torch
from hypothesis import given
from hypothesis import strategies as st
from hyscale_kernels.fixed_point import column_sums, in_ones, units_for
from inputs import DEVICE, normal


@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=50))
def test_the_unit_is_a_power_of_two_that_no_sum_overflows(terms):
    per_one = units_for(torch.tensor(terms, dtype=torch.float64, device=DEVICE))
    assert torch.frexp(per_one).mantissa.item() == 0.5
    # Each term was rounded up to 2^-30 of the largest.
    assert sum(terms) * float(per_one) <= 2**61 * (1 + 1e-6)


def test_sums_of_columns_have_the_same_bits_in_any_order():
    terms = normal(200, 7) * torch.exp(3 * normal(200, 1, seed=1))
    found = column_sums(terms)
    assert torch.allclose(found.double(), terms.double().sum(0), rtol=1e-6, atol=1e-6)
    for seed in range(3):
        order = torch.randperm(200, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        assert torch.equal(column_sums(terms[order]), found)


def test_whole_numbers_are_rounded_to_the_type_asked_for():
    units = torch.tensor([[1, -(2**40)], [2**60 + 1, 0]], device=DEVICE)
    per_one = torch.full((1,), 2.0**10, device=DEVICE)
    for dtype in (torch.float32, torch.bfloat16):
        found = in_ones(units, per_one, dtype)
        assert found.dtype == dtype
        assert torch.equal(found, (units.double() / 2**10).to(dtype))
