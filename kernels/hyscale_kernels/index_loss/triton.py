"""Divergence of an indexer's scores from a teacher, a row at a time."""

import triton
import triton.language as tl


@triton.jit
def divergence_kernel(
    scores_ptr, indices_ptr, teacher_ptr, losses_ptr, grads_ptr, wrong_ptr, width, scale, BLOCK: tl.constexpr
):
    """One program writes the loss of a row of ``width`` scores, their gradients, and whether its teacher is wrong.

    Two passes over the row: what both distributions are divided by, then terms and gradients. The second finds the
    row in a cache.
    """
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    # Each lane has a maximum and sum of its own until the end of the pass.
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    divisor = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    wrong = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, width, BLOCK):
        slots = row * width + start + lanes
        within = start + lanes < width
        some = within & (tl.load(indices_ptr + slots, mask=within, other=-1) >= 0)
        shares = tl.load(teacher_ptr + slots, mask=some, other=0.0).to(tl.float32)
        # NaN is not within these bounds either.
        wrong |= ((shares >= 0) & (shares < float("inf"))) == 0
        total += shares
        logits = scale * tl.load(scores_ptr + slots, mask=some, other=0.0)
        logits = tl.where(some, logits, float("-inf"))
        higher = tl.maximum(most, logits)
        # A lane without a score has no maximum to subtract.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        divisor = divisor * tl.exp(most - base) + tl.exp(logits - base)
        most = higher
    tl.store(wrong_ptr + row, tl.max(wrong, axis=0))
    total = tl.sum(total, axis=0)
    whole = tl.max(most, axis=0)
    whole = tl.where(whole == float("-inf"), 0.0, whole)
    log_divisor = whole + tl.log(tl.sum(divisor * tl.exp(most - whole), axis=0))
    taught = total > 0
    total = tl.where(taught, total, 1.0)
    terms = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        slots = row * width + start + lanes
        within = start + lanes < width
        some = within & (tl.load(indices_ptr + slots, mask=within, other=-1) >= 0)
        shares = tl.load(teacher_ptr + slots, mask=some, other=0.0).to(tl.float32) / total
        student = scale * tl.load(scores_ptr + slots, mask=some, other=0.0) - log_divisor
        taken = shares > 0
        terms += tl.where(taken, shares * (tl.log(tl.where(taken, shares, 1.0)) - student), 0.0)
        grads = tl.where(taught, scale * (tl.exp(student) - shares), 0.0)
        tl.store(grads_ptr + slots, tl.where(some, grads, 0.0), mask=within)
    tl.store(losses_ptr + row, tl.sum(terms, axis=0))
