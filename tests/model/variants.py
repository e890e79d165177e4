"""Predictions that tests of them share: one of each kind of scenario."""

# Variants of both scenarios: (overrides, which scenario).
VARIANTS = {
    "published": ((), False),
    "without recomputation": (("training.recompute=none",), False),
    "without index loss": (("training.index_loss=none",), False),
    "FP8": (("training.precision=fp8", "training.index_precision=fp8"), False),
    "contiguous": (("layout.cp_order=contiguous",), False),
    "1F1B": (("layout.vpp=1", "layout.schedule=1f1b", "workload.global_batch_size=64"), False),
    "two replicas": (("layout.cp=64", "layout.ep=64", "workload.global_batch_size=8"), False),
    "one node": ((), True),
    "tensor parallel": (("layout.tp=2", "layout.cp=2"), True),
    "one stage": (("layout.pp=1",), True),
}


def variant(predicted, name, draws=0):
    overrides, small = VARIANTS[name]
    return predicted(*overrides, small=small, draws=draws)


def times(predicted, *overrides, system="megatron", small=True):
    return predicted(*overrides, small=small)["systems"][system]["time_s"]
