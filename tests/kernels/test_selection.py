"""The module, the operators and the blocks of tokens that models use."""

import pytest
import torch
from hyscale_kernels.checkpoint import SelectionReplayError, checkpoint_contexts
from hyscale_kernels.hytopk import hytopk
from hyscale_kernels.score_table import select
from hyscale_kernels.selection import SparseSelection, block_means, quantise, tokens_of, unfinished_spans
from hyscale_kernels.spans import causal_spans
from inputs import DEVICE, exact, random, whole
from torch.utils.checkpoint import checkpoint

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

TOPK = 5


def causal(n, ratio=1):
    return causal_spans(torch.arange(n, device=DEVICE), ratio)


# Operators.


@pytest.mark.parametrize("name", ["hytopk", "score_table"])
@pytest.mark.parametrize("weighted", [True, False])
def test_operators_keep_the_rules_of_torch_library(name, weighted):
    q, keys, weights = exact(3, 2, 32, 20)
    operator = getattr(torch.ops.hyscale, name).default
    arguments = (q, keys, weights if weighted else None, whole(3, 20), TOPK)
    torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


def test_operators_give_what_the_functions_give():
    q, keys, weights = exact(7, 4, 32, 50)
    spans = whole(7, 50)
    wanted = hytopk(q, keys, weights, spans, TOPK)
    found = torch.ops.hyscale.hytopk(q, keys, weights, spans, TOPK)
    assert all(
        torch.equal(a, b)
        for a, b in zip(found, (wanted.indices, wanted.candidates, wanted.margin, wanted.recovered), strict=True)
    )
    assert torch.equal(torch.ops.hyscale.score_table(q, keys, weights, spans, TOPK), wanted.indices)
    assert torch.equal(select(q, keys, weights, spans, TOPK, method="radix"), wanted.indices)


def test_operators_take_meta_tensors():
    q = torch.empty(8192, 32, 128, dtype=torch.bfloat16, device="meta")
    keys = torch.empty(2**20, 128, dtype=torch.bfloat16, device="meta")
    spans = torch.empty(8192, 2, dtype=torch.int32, device="meta")
    indices, candidates, margin, recovered = torch.ops.hyscale.hytopk(q, keys, None, spans, 2048)
    assert (indices.shape, indices.dtype) == ((8192, 2048), torch.int32)
    assert (candidates.dtype, margin.dtype, recovered.dtype) == (torch.int32, torch.float32, torch.bool)
    assert torch.ops.hyscale.score_table(q, keys, None, spans, 2048).shape == (8192, 2048)


def test_operators_stand_in_a_compiled_graph():
    q, keys, weights = exact(4, 2, 32, 30)
    spans = whole(4, 30)

    def used(q, keys, weights, spans):
        return torch.ops.hyscale.hytopk(q * 1, keys, weights, spans, TOPK)[0] + 1

    compiled = torch.compile(used, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, keys, weights, spans), used(q, keys, weights, spans))


def test_scores_have_their_gradient_in_a_compiled_graph_too():
    q, keys, weights = exact(4, 2, 32, 30)
    indices = hytopk(q, keys, weights, whole(4, 30), TOPK).indices
    arguments = tuple(each.clone().requires_grad_() for each in (q, keys, weights))
    torch.library.opcheck(torch.ops.hyscale.replay.default, (*arguments, indices))

    def used(q, keys, weights):
        return torch.ops.hyscale.replay(q * 1, keys * 1, weights * 1, indices).square().sum()

    wanted = torch.autograd.grad(used(*arguments), arguments)
    found = torch.autograd.grad(torch.compile(used, backend="aot_eager", fullgraph=True)(*arguments), arguments)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert all(bool(each.any()) for each in wanted)


# The module.


@pytest.mark.parametrize("method", ["hytopk", "score_table"])
def test_the_module_selects(method):
    q, keys, weights = exact(6, 2, 32, 40)
    module = SparseSelection(TOPK, method=method)
    spans = causal(6)
    assert torch.equal(module(q, keys, weights, spans), hytopk(q, keys, weights, spans, TOPK).indices)
    assert (module.recovered is None) == (method == "score_table")


def test_the_module_in_fp8_selects_by_quantised_values():
    q, keys, weights = random(6, 2, 32, 40)
    (narrow_q, q_scale), (narrow_keys, key_scale) = quantise(q), quantise(keys)
    wanted = select(
        narrow_q, narrow_keys, weights, whole(6, 40), TOPK, q_scale=q_scale, key_scale=key_scale, method="radix"
    )
    assert torch.equal(SparseSelection(TOPK, precision="fp8")(q, keys, weights, whole(6, 40)), wanted)


@pytest.mark.parametrize(
    "changed", [{"topk": 0}, {"topk": 2049}, {"method": "radix"}, {"precision": "fp4"}, {"method": None}]
)
def test_wrong_settings_are_refused(changed):
    with pytest.raises(ValueError, match=r"must be|none of"):
        SparseSelection(**{"topk": TOPK, **changed})


class Layer(torch.nn.Module):
    """An indexer's projections, its selection and the scores of what it selects."""

    def __init__(self, heads=2, dim=32):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.to_q = torch.nn.Linear(dim, heads * dim, bias=False, dtype=torch.bfloat16, device=DEVICE)
        self.to_keys = torch.nn.Linear(dim, dim, bias=False, dtype=torch.bfloat16, device=DEVICE)
        self.selection = SparseSelection(TOPK)
        self.selections = 0
        self.selection._select = self._count(self.selection._select)

    def _count(self, run):
        def counted(*arguments):
            self.selections += 1
            return run(*arguments)

        return counted

    def forward(self, x, chunks=1):
        q = self.to_q(x).unflatten(-1, (self.heads, self.dim))
        keys = self.to_keys(x)
        total = x.new_zeros((), dtype=torch.float32)
        spans = causal(len(x))
        for part in torch.arange(len(x), device=DEVICE).chunk(chunks):
            indices = self.selection(q[part], keys, None, spans[part], chunk=int(part[0]))
            total = total + self.selection.scores(q[part], keys, None, indices).square().mean()
        return total


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("offload", [False, True])
def test_a_checkpointed_layer_selects_once_and_has_the_same_gradients(chunks, offload):
    torch.manual_seed(0)
    layer = Layer()
    x = torch.randn(12, 32, device=DEVICE).bfloat16()
    layer(x, chunks).backward()
    wanted = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    layer.selections = 0
    checkpoint(layer, x, chunks, use_reentrant=False, context_fn=checkpoint_contexts(offload)).backward()
    assert layer.selections == chunks
    assert all(torch.equal(parameter.grad, want) for parameter, want in zip(layer.parameters(), wanted, strict=True))


def test_two_micro_batches_get_their_own_indices():
    torch.manual_seed(0)
    layer = Layer()
    batches = [torch.randn(12, 32, device=DEVICE).bfloat16() for _ in range(2)]
    wanted = []
    for x in batches:
        layer.zero_grad()
        layer(x).backward()
        wanted.append([parameter.grad.clone() for parameter in layer.parameters()])
    contexts = checkpoint_contexts()
    losses = [checkpoint(layer, x, use_reentrant=False, context_fn=contexts) for x in batches]
    layer.selections = 0
    for loss, want in zip(losses, wanted, strict=True):
        layer.zero_grad()
        loss.backward()
        assert all(torch.equal(parameter.grad, each) for parameter, each in zip(layer.parameters(), want, strict=True))
    assert layer.selections == 0


def test_other_chunks_in_the_recomputation_are_refused():
    layer = Layer()
    x = torch.randn(12, 32, device=DEVICE).bfloat16()
    chunks = iter([2, 3])
    loss = checkpoint(lambda x: layer(x, next(chunks)), x, use_reentrant=False, context_fn=checkpoint_contexts())
    with pytest.raises(SelectionReplayError):
        loss.backward()


# Entries that stand for several tokens.


def test_a_query_attends_its_blocks_and_its_unfinished_block_and_nothing_else():
    ratio, tokens = 4, 23
    positions = torch.arange(tokens, device=DEVICE)
    blocks, tails = causal_spans(positions, ratio), unfinished_spans(positions, ratio)
    for position in range(tokens):
        first, last = blocks[position].tolist()
        every = torch.arange(first, last, device=DEVICE, dtype=torch.int32)[None]
        attended = tokens_of(every, ratio)[0].tolist() + list(range(*tails[position].tolist()))
        assert attended == list(range(position + 1))
        assert tails[position, 1] - tails[position, 0] < ratio


def test_an_unfinished_block_begins_in_its_segment():
    positions = torch.tensor([3, 4, 5, 9], device=DEVICE)
    starts = torch.tensor([0, 4, 4, 8], device=DEVICE)
    assert unfinished_spans(positions, 4, starts).tolist() == [[4, 4], [4, 5], [4, 6], [8, 10]]


def test_tokens_of_blocks_keep_padding_behind():
    indices = torch.tensor([[0, 3, -1], [-1, -1, -1]], dtype=torch.int32, device=DEVICE)
    assert tokens_of(indices, 2).tolist() == [[0, 1, 6, 7, -1, -1], [-1] * 6]


def test_block_means_are_rounded_once_and_leave_the_tail_out():
    keys = torch.randn(11, 6, device=DEVICE).bfloat16()
    found = block_means(keys, 4)
    assert found.shape == (2, 6)
    assert torch.equal(found, keys[:8].double().view(2, 4, 6).mean(1).bfloat16())


def test_quantised_rows_reach_the_largest_number_and_zeros_stay():
    values = torch.randn(3, 2, 32, device=DEVICE).bfloat16()
    values[0, 0] = 0
    narrow, scale = quantise(values)
    wide = narrow.float() * scale[..., None]
    assert bool((scale > 0).all())
    assert bool((narrow.float().abs().amax(-1)[scale != 1] == 448).all())
    assert torch.equal(wide[0, 0], torch.zeros(32, device=DEVICE))
    assert bool(((wide - values.float()).abs() <= values.float().abs() / 16 + scale[..., None] * 2**-10).all())
