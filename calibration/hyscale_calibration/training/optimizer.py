"""Adam on FP32 copies of BF16 weights, as mixed-precision training keeps them."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch

BETAS = (0.9, 0.95)


class MasterWeights:
    """FP32 weights that are updated, and the BF16 ones that are trained with.

    Args:
        parameters: BF16, of the model.
        rate: of learning; reached linearly over ``warm_up`` steps.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], rate: float, warm_up: int) -> None:
        self.parameters = list(parameters)
        self.masters = [each.detach().float().clone() for each in self.parameters]
        self._optimizer = torch.optim.AdamW(self.masters, lr=rate, betas=BETAS, weight_decay=0.0, foreach=True)
        self._rate, self._warm_up, self._steps = rate, warm_up, 0

    @torch.no_grad()
    def step(self) -> None:
        """One update, from the gradients of the parameters, which are dropped."""
        self._steps += 1
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * min(1.0, self._steps / max(1, self._warm_up))
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            parameter.copy_(master)

    @torch.no_grad()
    def copy_from(self, other: MasterWeights) -> None:
        """Weights, copies, moments and the number of steps of another."""
        for mine, theirs in zip(self.parameters, other.parameters, strict=True):
            mine.copy_(theirs)
        for mine, theirs in zip(self.masters, other.masters, strict=True):
            mine.copy_(theirs)
        # Loading takes moments on the device as they are, not copies of them.
        self._optimizer.load_state_dict(copy.deepcopy(other._optimizer.state_dict()))
        self._steps = other._steps

    def bytes(self) -> int:
        """Device memory of weights, their copies and the optimizer's moments."""
        moments = (value for state in self._optimizer.state.values() for value in state.values())
        held = [*self.parameters, *self.masters, *(each for each in moments if isinstance(each, torch.Tensor))]
        return sum(each.numel() * each.element_size() for each in held)
