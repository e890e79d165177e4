"""What stands before the first and after the last layer: embedding, output head, cross-entropy, further tokens."""

from __future__ import annotations

from hyscale_model.families.anatomy import Anatomy
from hyscale_model.layers.common import elementwise, gemm
from hyscale_model.layers.operation import Block, Operation, Task
from hyscale_model.layers.sizes import BF16_BYTES, FP32_BYTES, Sizes
from hyscale_model.scenario.schema import Scenario

TERM = "head_and_loss"
# Bytes a logit that cross-entropy moves, forward and backward: BF16 read, FP32 written, reduced and turned to
# probabilities; Transformer Engine's kernel reads BF16 twice, puts gradients in their place, and scales those.
CROSS_ENTROPY_BYTES = {
    "none": (BF16_BYTES + 3 * FP32_BYTES, BF16_BYTES + 2 * FP32_BYTES),
    "native": (BF16_BYTES + 3 * FP32_BYTES, BF16_BYTES + 2 * FP32_BYTES),
    "te": (3 * BF16_BYTES, 2 * BF16_BYTES),
}


def embedding_block(sizes: Sizes, anatomy: Anatomy) -> Block:
    """Look-up of n rows; its backward adds n rows to the FP32 gradient. Not recomputed."""
    values = sizes.queries * anatomy.hidden
    forward = Operation(family="elementwise", hbm_bytes=2 * BF16_BYTES * values)
    backward = Operation(family="elementwise", hbm_bytes=(BF16_BYTES + 2 * FP32_BYTES) * values)
    return Block(
        name="embedding",
        forward=(Task(name="embedding.lookup", term=TERM, work=forward),),
        recompute=(),
        backward=(Task(name="embedding.gradient", term=TERM, work=backward),),
    )


def head_block(case: Scenario, sizes: Sizes, anatomy: Anatomy) -> Block:
    """Output head 2 n h V FLOP and cross-entropy over n V FP32 logits; backward twice the product. Not recomputed."""
    tokens, hidden = sizes.tokens, anatomy.hidden
    vocabulary = anatomy.vocabulary / case.layout.tp
    logits = tokens * vocabulary
    ahead, back = CROSS_ENTROPY_BYTES[case.training.cross_entropy_fusion]
    loss = Operation(family="elementwise", hbm_bytes=ahead * logits, launches=4)
    gradient = Operation(family="elementwise", hbm_bytes=back * logits, launches=2)
    return Block(
        name="head",
        forward=(
            gemm("head.product", TERM, tokens, hidden, vocabulary, 0.0),
            Task(name="head.cross_entropy", term=TERM, work=loss),
        ),
        recompute=(),
        backward=(
            Task(name="head.cross_entropy_gradient", term=TERM, work=gradient),
            gemm("head.product", TERM, tokens, hidden, vocabulary, 0.0, backward=True),
        ),
    )


def prediction_block(case: Scenario, sizes: Sizes, anatomy: Anatomy) -> Block:
    """What a layer of multi-token prediction has beside its layer: a product of two hidden vectors, and the head again.

    The normalised embedding of the next token and the normalised hidden vector, side by side, are projected to one:
    2 n 2 h h FLOP (DeepSeek-V3 report, arXiv 2412.19437, section 2.2). Head and embedding are shared with the model.
    """
    head, hidden = head_block(case, sizes, anatomy), anatomy.hidden
    fp8 = float(case.training.precision == "fp8")
    passes = 3 * 2 * sizes.queries * hidden
    width = hidden / case.layout.tp
    joined = (
        elementwise("mtp.norms", passes, launches=3),
        gemm("mtp.projection", "projections", sizes.tokens, 2 * hidden, width, fp8),
    )
    back = (
        gemm("mtp.projection", "projections", sizes.tokens, 2 * hidden, width, fp8, backward=True),
        elementwise("mtp.norms_backward", 1.5 * passes, launches=3),
    )
    return Block(name="mtp", forward=(*joined, *head.forward), recompute=(), backward=(*head.backward, *back))
