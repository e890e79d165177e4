"""Rules by which a law measured on one GPU holds on another of its architecture.

    tensor   scales with the tensor peak; the fraction that is kept is that of the measured GPU, unless the other's
             tensor cores are so slow beside its SMs that they bind where they did not (H20: 958 BF16 FLOP an SM and
             clock, against 3,784): then what kernels keep on such a GPU, by ``family`` or ``SLOW_TENSOR_CORES``
    sm       scales with SM count x clock
    hbm      scales with the bandwidth; launches and ``serial`` stay

The rules are tested on partitions of a GPU's SMs and against published rates (``hyscale check --group kernels``).
"""

from __future__ import annotations

from hyscale_model.prediction import Origin
from hyscale_model.rates.profile import Family, Rate
from hyscale_model.scenario.schema import Gpu

# FLOP an SM and clock below which tensor cores count as slow, over those of the measured GPU.
SLOW = 0.5
SLOW_TENSOR_CORES = Rate(
    0.86,
    0.78,
    0.95,
    Origin(
        "published",
        "kernels on H20: FlashAttention-3 126 of 148 TFLOP/s (Dao-AILab/flash-attention issue #1310), FP8 experts 254 "
        "of 296 (deepseek-ai/DeepGEMM PR #383), FusedIndexTopK 270 to 283 of 296",
    ),
)


def transferred_tensor(family: Family, gpu: Gpu, measured: Gpu, precision: str) -> Rate | None:
    """What a family keeps of the tensor peak where that of the measured GPU does not hold; None where it does."""
    if _intensity(gpu) >= SLOW * _intensity(measured):
        return None
    entry = family.tensor_rate(gpu, precision)
    return SLOW_TENSOR_CORES if entry is None else entry.fraction


def _intensity(gpu: Gpu) -> float:
    return gpu.bf16_flops / (gpu.sms * gpu.boost_hz)
