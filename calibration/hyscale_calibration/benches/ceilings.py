"""What a card gives at best, measured in the same run as what is compared with it.

Clocks and power limits differ between cards of a name and between days, so a rate of a data sheet is no ceiling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from hyscale_calibration.benches.record import median_and_spread

if TYPE_CHECKING:
    from hyscale_calibration.benches.device import Gpu

SIDE = 8192
# Far above any cache, and small beside the memory of any card with tensor cores for FP8.
COPIED_BYTES = 2**30
SAMPLES = 50
WARM_UP = 10
# The first compute capability whose tensor cores multiply FP8.
FP8_CAPABILITY = (8, 9)


def measure_ceilings(gpu: Gpu) -> dict[str, float | None]:
    """Rates of a device copy, bytes read and written, and of square matrix products; None for what a card has not.

    Products are of ``SIDE`` cubed, of normal random numbers, for power and with it clocks depend on the data. FP8 is
    E4M3 with one scale a matrix and the faster accumulation of the tensor core, a BF16 result.
    """
    generator = torch.Generator(gpu.name).manual_seed(0)
    a, b = (
        torch.randn(SIDE, SIDE, device=gpu.name, generator=generator, dtype=torch.float32).bfloat16() for _ in range(2)
    )
    product = torch.empty_like(a)
    flop = 2.0 * SIDE**3

    def teraflops(seconds: float) -> float:
        return flop / seconds / 1e12

    bf16 = teraflops(_seconds(gpu, lambda: torch.mm(a, b, out=product)))
    fp8 = None
    if torch.cuda.get_device_capability() >= FP8_CAPABILITY:
        one = torch.ones((), device=gpu.name)
        # The second factor has to be stored by columns.
        a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()

        def multiply() -> object:
            return torch._scaled_mm(
                a8, b8, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=product
            )

        fp8 = teraflops(_seconds(gpu, multiply))
    source = torch.zeros(COPIED_BYTES, device=gpu.name, dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = 2.0 * COPIED_BYTES / _seconds(gpu, lambda: target.copy_(source)) / 1e12
    return {"copy_tb_per_s": copy, "bf16_tflops": bf16, "fp8_tflops": fp8}


def _seconds(gpu: Gpu, run: Callable[[], object]) -> float:
    times = gpu.milliseconds(run, samples=SAMPLES, warm_up=WARM_UP)
    return float(median_and_spread(times)["median_ms"]) * 1e-3
