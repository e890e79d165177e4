"""Whole layers beside float64, and what systems have in common and what not."""

import pytest
import torch
from hyscale_calibration.layers import selection
from hyscale_calibration.layers.build import KINDS, hidden_states, layer_of, shared_keys
from hyscale_calibration.layers.cases import all_systems
from hyscale_calibration.layers.check import SIZES, errors, same_bits, small
from hyscale_calibration.layers.context import HeldKeys, WholeSequence
from hyscale_calibration.layers.facts import values_of
from hyscale_calibration.layers.layer import Options
from hyscale_calibration.layers.measure import Bench
from hyscale_calibration.layers.recompute import recomputed
from hyscale_calibration.layers.systems import system_named
from hyscale_kernels.spans import causal_spans

from hyscale_model.checks.layers import Layer, layer_scenario
from hyscale_model.families import anatomy

SYSTEMS = all_systems()
LAYERS = {"dsa": "glm-5.1", "csa": "deepseek-v4-flash", "qsa": "qwen3.8-flash-next"}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("kind", LAYERS)
def test_steps_are_those_of_the_oracle(kind, system, device):
    assert errors(small(kind), SIZES[kind], system, Options(), device)["output"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAYERS)
def test_deterministic_steps_have_the_same_bits_in_every_system(kind, device):
    same_bits(small(kind, tokens=16), SIZES[kind], device)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_recomputation_selects_again_only_where_its_system_does(system, device, monkeypatch):
    made, used = [], []

    def counted(*arguments):
        made.append(found := original(*arguments))
        return found

    original = selection._made
    monkeypatch.setattr(selection, "_made", counted)
    bench = Bench.of(small("dsa"), system, Options(), device, SIZES["dsa"])
    attended = bench.layer.attended
    bench.layer.attended = lambda indices: used.append(indices.clone()) or attended(indices)
    bench.step()
    assert len(made) == (1 if system_named(system).keeps else 2)
    forward, again = used
    assert torch.equal(forward, again)


@pytest.mark.slow
def test_phases_are_told_in_order_and_the_loss_is_computed_once(device):
    bench = Bench.of(small("qsa"), "hyscale", Options(), device, SIZES["qsa"])
    told = []
    bench.layer.phases.listener = told.append
    bench.step()
    assert [name for name in told if name.startswith("forward")] == [
        "forward.projections",
        "forward.index_projections",
        "forward.selection",
        "forward.sparse_attention",
        "forward.output",
    ]
    assert [name for name in told if name.endswith("index_loss")] == ["recompute.index_loss", "backward.index_loss"]
    assert told[-5:] == [
        f"backward.{part}" for part in ("output", "index_loss", "sparse_attention", "index_projections", "projections")
    ]


def test_recomputing_needs_an_input_with_a_gradient():
    with pytest.raises(ValueError, match="x must require a gradient"):
        recomputed(lambda x: (x, x.sum()), torch.zeros(2, 2), keeps=False)


def test_recomputing_adds_the_gradient_of_the_loss_times_its_coefficient():
    x = torch.ones(3, requires_grad=True)
    out = recomputed(lambda x: (2 * x, (x * x).sum()), x, keeps=False, coefficient=0.5)
    out.backward(torch.ones(3))
    assert torch.equal(x.grad, torch.full((3,), 3.0))


@pytest.mark.parametrize("ratio", [1, 4])
def test_held_rows_stand_where_their_tokens_do_and_gradients_come_back_apart(ratio):
    context = HeldKeys(64, 4, 1, {"rows": 2}, ratios={"rows": ratio})
    own = torch.randn(16 // ratio, 2).bfloat16().requires_grad_()
    whole = context.whole("rows", own)
    places = context.positions[::ratio] // ratio
    others = torch.ones(64 // ratio, dtype=torch.bool)
    others[places] = False
    assert torch.equal(whole[places], own)
    assert torch.equal(whole[others], context.others["rows"])
    grad = torch.randn(64 // ratio, 2).bfloat16()
    whole.backward(grad)
    assert torch.equal(own.grad, grad[places])
    assert torch.equal(context.others["rows"].grad, grad[others])


def test_a_rank_alone_has_the_keys_of_all():
    context = WholeSequence(8)
    own = torch.randn(8, 2)
    assert context.whole("rows", own) is own
    assert torch.equal(causal_spans(context.positions)[:, 1], torch.arange(1, 9, dtype=torch.int32))


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_have_the_parameters_that_the_model_counts(kind):
    case = Layer(model=LAYERS[kind], layer=kind, system="hyscale", length=2**17, ranks=16, shared_keys=0.9)
    counted = anatomy(layer_scenario(case, "h200").model).attention(kind)
    sizes = KINDS[kind].sizes(values_of("models", LAYERS[kind]))
    layer = KINDS[kind].layer(sizes, system_named("hyscale"), WholeSequence(16), device="meta")
    matrices = sorted(value.numel() for value in layer.parameters() if value.ndim > 1 and value.numel() > 2**14)
    products = sorted(each.weights for each in (*counted.projections, *counted.index.projections))
    assert matrices == [each for each in products if each > 2**14]
    # The norm before the block is the model's, not its attention's.
    assert sum(value.numel() for value in layer.parameters()) - sizes.hidden == (
        counted.parameters + counted.index_parameters
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_are_those_of_the_catalogue(name):
    system = system_named(name)
    assert system.recompute_selection == {"megatron": "rerun", "megatron-best": "skip", "hyscale": "replay"}[name]
    assert system.table_rows == 8192


def test_systems_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="megatron-best"):
        system_named("megatorn")


def test_hidden_states_drift_and_stay_as_large_as_they_were():
    x = hidden_states(256, 512).detach().float()
    assert x.square().mean(1).sub(1).abs().max() < 0.3
    neighbours = torch.nn.functional.cosine_similarity(x[1:], x[:-1])
    assert neighbours.min() > 0.99
    assert torch.nn.functional.cosine_similarity(x[64:], x[:-64]).abs().max() < 0.9


def test_shared_keys_of_neighbours_are_counted():
    indices = torch.tensor([[0, 1, 2, 3], [2, 3, 4, 5], [2, 3, 4, -1]], dtype=torch.int32)
    assert shared_keys(indices) == pytest.approx((2 + 3) / 8)


def test_every_system_is_given_the_same_layer():
    first, second = (layer_of(small("csa"), system_named(name), Options(), sizes=SIZES["csa"]) for name in SYSTEMS[:2])
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
