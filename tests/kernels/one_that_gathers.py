"""What one rank gathers and scatters: ``torchrun ... one_that_gathers.py``. Imports no kernels, which take seconds."""

import torch
from hyscale_calibration.collectives import Ranks
from hyscale_calibration.layers.across import gathered
from hyscale_calibration.layers.context import HeldKeys


def gathers():
    """What comes is in the order of the sequence, and gradients go back summed, hidden or not, in both orders."""
    ranks = Ranks.open()
    length = 8 * ranks.ranks
    context = gathered.GatheredKeys(length)
    wanted = {width: torch.arange(length * width).reshape(length, width).float() for width in (3, 5)}
    for hidden in (False, True):
        own = {width: rows[context.positions].requires_grad_() for width, rows in wanted.items()}
        coming = {width: context.coming("rows", rows, hidden=hidden) for width, rows in own.items()}
        # The one that was asked for first is used last.
        whole = {width: coming[width]() for width in (5, 3)}
        for width, rows in whole.items():
            assert torch.equal(rows, wanted[width]), (hidden, width)
        grad = {width: wanted[width].cos() * (ranks.rank + 1) for width in wanted}
        sum((rows * grad[width]).sum() for width, rows in whole.items()).backward()
        times = ranks.ranks * (ranks.ranks + 1) / 2
        for width, rows in own.items():
            torch.testing.assert_close(rows.grad, times * wanted[width][context.positions].cos())
    held = HeldKeys(length, ranks.ranks, ranks.rank, {"rows": 3})
    assert torch.equal(held.positions, context.positions)
    ranks.close()


gathers()
