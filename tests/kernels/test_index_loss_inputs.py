"""Nothing to learn from, scales, inputs that are refused, and sizes of real layers."""

import pytest
import torch
from hyscale_kernels.index_loss import dense_index_loss, reference, sparse_index_loss
from hyscale_kernels.scoring.inputs import FP8
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE
from losses import assert_dense, assert_sparse, attention, choose, draw, indexer, leaves_of, off

# Both.


@pytest.mark.parametrize("stage", ["sparse", "dense"])
@pytest.mark.parametrize("n", [0, 3])
def test_nothing_to_learn_from(stage, n):
    leaves, _ = leaves_of(indexer(n, 4, 32, 0))
    if stage == "sparse":
        indices = torch.full((n, 5), -1, dtype=torch.int32, device=DEVICE)
        loss = sparse_index_loss(*leaves, indices, torch.ones(n, 5, device=DEVICE))
    else:
        spans = torch.zeros(n, 2, dtype=torch.int32, device=DEVICE)
        loss = dense_index_loss(*leaves, spans, *attention(n, 2, 16, 0), 0.3)
    assert loss.item() == 0
    loss.backward()
    for each in leaves:
        assert torch.equal(each.grad, torch.zeros_like(each))


@pytest.mark.parametrize("stage", ["sparse", "dense"])
def test_case_30_scales_from_2_to_the_minus_10_to_2_to_the_10(stage):
    q, keys, weights = indexer(6, 4, 64, 50, dtype=FP8)
    generator = torch.Generator().manual_seed(2)
    scales = {
        "key_scale": torch.exp2(torch.randint(-10, 11, (50,), generator=generator).float()).to(DEVICE),
        "q_scale": torch.exp2(torch.randint(-10, 11, (6, 4), generator=generator).float()).to(DEVICE),
        "scale": 2.0**-16,
    }
    leaf, exact = weights.requires_grad_(), weights.detach().double().requires_grad_()
    if stage == "sparse":
        others = (choose(6, 50, 30, [30, 0, 4, 30, 29, 1]), draw((6, 30), 5, torch.rand))
        loss, wanted = sparse_index_loss, reference.sparse_index_loss
    else:
        others = (causal_spans(torch.tensor([0, 9, 19, 29, 39, 49], device=DEVICE)), *attention(6, 2, 16, 50), 0.3)
        loss, wanted = dense_index_loss, reference.dense_index_loss
    found = loss(q, keys, leaf, *others, reduction="none", **scales)
    like = wanted(q, keys, exact, *others, **scales)
    # FP8 sums of the tensor core are less exact.
    close = 1e-5 if DEVICE == "cpu" else 1e-3
    assert off(found, like.detach()) <= close
    found.sum().backward()
    like.sum().backward()
    assert bool(exact.grad.any())
    assert off(leaf.grad, exact.grad) <= close


@pytest.mark.parametrize("stage", ["sparse", "dense"])
def test_scales_of_bf16_inputs(stage):
    inputs = indexer(5, 3, 32, 30)
    scales = {"key_scale": draw((30,), 7, torch.rand) + 0.5, "q_scale": draw((5, 3), 8, torch.rand) + 0.5}
    if stage == "sparse":
        assert_sparse(inputs, choose(5, 30, 11), draw((5, 11), 5, torch.rand), **scales)
    else:
        spans = causal_spans(torch.arange(5, 30, 5, device=DEVICE))
        assert_dense(inputs, spans, attention(5, 4, 16, 30), block_elements=200, **scales)


# Wrong inputs.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"teacher": torch.ones(3, 4)}, r"teacher must be floating point \(3, 5\), is torch.float32 \(3, 4\)"),
        ({"teacher": torch.ones(3, 5, dtype=torch.int64)}, "teacher must be floating point"),
        ({"teacher": -torch.ones(3, 5)}, "teacher must be finite and at least 0"),
        ({"teacher": torch.full((3, 5), float("nan"))}, "teacher must be finite and at least 0"),
        ({"indices": torch.full((3, 5), 20, dtype=torch.int32)}, "indices must be -1 or a key, 0 to 19"),
        ({"reduction": "all"}, "reduction must be one of mean, sum, none, is 'all'"),
        ({"scale": float("inf")}, "scale must be finite, is inf"),
    ],
)
def test_wrong_sparse_inputs_are_refused(changed, message):
    q, keys, weights = indexer(3, 4, 32, 20)
    inputs = {"q": q, "keys": keys, "weights": weights, "indices": choose(3, 20, 5), "teacher": torch.ones(3, 5)}
    inputs |= changed
    inputs = {name: each.to(DEVICE) if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}
    with pytest.raises(ValueError, match=message):
        sparse_index_loss(**inputs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"attention_q": torch.zeros(2, 4, 16)},
            r"attention_q must be \(3, heads, width\) and attention_k \(20, width\)",
        ),
        ({"attention_k": torch.zeros(19, 16)}, r"attention_k \(20, width\) or \(20, groups, width\), they are"),
        ({"attention_k": torch.zeros(20, 8)}, "equally wide"),
        ({"attention_k": torch.zeros(20, 3, 16)}, "every group of attention_k must have as many heads"),
        ({"attention_k": torch.zeros(20, 16).bfloat16()}, "must both be bfloat16, float16 or float32"),
        ({"spans": torch.full((3, 2), 21)}, "spans must lie within 0 and 20"),
        ({"softmax_scale": float("nan")}, "softmax_scale must be finite, is nan"),
        ({"block_elements": 0}, "block_elements must be at least 1, is 0"),
        ({"reduction": ""}, "reduction must be one of"),
        ({"q": torch.zeros(3, 4, 32).to(FP8).requires_grad_()}, "q is FP8, which holds no gradients"),
    ],
)
def test_wrong_dense_inputs_are_refused(changed, message):
    q, keys, weights = indexer(3, 4, 32, 20)
    inputs = {"q": q, "keys": keys, "weights": weights, "spans": torch.tensor([[0, 20]] * 3)}
    inputs |= {"attention_q": torch.zeros(3, 4, 16), "attention_k": torch.zeros(20, 16), "softmax_scale": 1.0}
    inputs |= changed
    inputs = {name: each.to(DEVICE) if isinstance(each, torch.Tensor) else each for name, each in inputs.items()}
    with pytest.raises(ValueError, match=message):
        dense_index_loss(**inputs)


# At the sizes of a real run.


@pytest.mark.gpu
def test_a_real_sparse_width(gpu):
    indices = choose(256, 20000, 2048)
    assert_sparse(indexer(256, 32, 128, 20000), indices, draw((256, 2048), 5, torch.rand), deterministic=True)


@pytest.mark.gpu
def test_a_real_dense_width(gpu):
    spans = causal_spans(torch.arange(3000 - 64, 3000, device=DEVICE))
    heads = attention(64, 64, 576, 3000)
    assert_dense(indexer(64, 32, 128, 3000), spans, heads, 576**-0.5, block_elements=2**22)


@pytest.mark.gpu
def test_memory_of_a_dense_loss_is_bounded(gpu):
    n, length, heads = 512, 100_000, 64
    leaves, _ = leaves_of(indexer(n, 32, 128, length))
    teacher = attention(n, heads, 576, length)
    spans = torch.tensor([[0, length]], device=DEVICE).repeat(n, 1)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    dense_index_loss(*leaves, spans, *teacher, 576**-0.5, block_elements=2**24).backward()
    # Blocks, and gradients in FP32 and BF16.
    gradients_bytes = 6 * sum(each.numel() for each in leaves)
    assert torch.cuda.max_memory_allocated() - before < 4 * 3 * 2**24 + gradients_bytes + 2**26
