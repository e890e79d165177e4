"""A task that only far keys answer, and systems that train the same model or do not."""

import pytest
import torch
from hyscale_calibration.layers import selection
from hyscale_calibration.layers.reference import exact_weights, reference
from hyscale_calibration.training import session
from hyscale_calibration.training.compare import compare
from hyscale_calibration.training.fingerprint import fingerprint, of_weights, written
from hyscale_calibration.training.model import Sizes
from hyscale_calibration.training.record import Record
from hyscale_calibration.training.runs import run_named
from hyscale_calibration.training.sets import differing, in_common
from hyscale_calibration.training.sizes import SETTINGS
from hyscale_calibration.training.task import ENTRY, NO_ANSWER, QUESTION, Recall
from hyscale_calibration.training.trainer import Recipe, Trainer
from hyscale_kernels.hytopk import Plan, api
from inputs import DEVICE

TINY = SETTINGS["tiny"]
TASK = Recall(tokens=4096, keys=20, values=7, near=256, row=4)
STEPS = 2


def kinds(batch):
    first = batch.parts[0, 2]
    return batch.parts[:, 2] - first


@pytest.mark.parametrize("document", [256, 1024, 4096])
def test_every_question_has_its_answer_in_its_document_and_far_back(document):
    batch = TASK.batch(3, document)
    keys, values, kind = batch.parts[:, 0], batch.parts[:, 1], kinds(batch)
    questions = (kind == QUESTION).nonzero()[:, 0]
    assert torch.equal(questions, (batch.answers != NO_ANSWER).nonzero()[:, 0])
    assert len(questions) == TASK.tokens // 2
    places = torch.arange(TASK.tokens)
    for question in questions[:: TASK.tokens // 64]:
        first, end = batch.spans[question]
        assert (first, end) == (question // document * document, question + 1)
        match = (keys == keys[question]) & (kind == ENTRY) & (places >= first) & (places < end)
        assert set(values[match].tolist()) == {int(batch.answers[question])}
        if document > TASK.near:
            assert places[match].max() <= question - TASK.near


def test_a_step_is_the_same_every_time_and_unlike_any_other():
    first, again, other = TASK.batch(3, 1024), TASK.batch(3, 1024), TASK.batch(4, 1024)
    assert torch.equal(first.parts, again.parts)
    assert torch.equal(first.answers, again.answers)
    assert not torch.equal(first.answers, other.answers)


def test_neighbours_have_the_same_key():
    keys = TASK.batch(0, 1024).parts[:, 0].view(-1, TASK.row)
    assert (keys == keys[:, :1]).all()


@pytest.mark.parametrize("document", [0, 7, 300, 8192, 16])
def test_documents_without_room_are_refused(document):
    with pytest.raises(ValueError, match=f"documents of {document} tokens must fill a sequence of 4096"):
        TASK.batch(0, document)


def test_a_window_of_near_keys_answers_nothing_and_the_entries_do():
    batch = TASK.batch(1, 4096)
    places = torch.arange(TASK.tokens)[:, None]
    window = (places - torch.arange(TASK.near)).clamp(min=-1).int()
    assert batch.answered(window) == 0
    keys, kind = batch.parts[:, 0], kinds(batch)
    first = torch.stack([((keys == key) & (kind == ENTRY)).nonzero()[0, 0] for key in range(TASK.keys)])
    assert batch.answered(first[keys][:, None].int()) == 1
    assert batch.answered(torch.full((TASK.tokens, 3), -1, dtype=torch.int32)) == 0


def test_fingerprints_know_rows_but_no_order_within():
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(-1, 1000, (50, 40), generator=draw, dtype=torch.int32)
    shuffled = rows[:, torch.randperm(40, generator=draw)]
    assert fingerprint(rows) == fingerprint(shuffled)
    changed = rows.clone()
    changed[17, 3] += 1
    swapped = rows.clone()
    swapped[[4, 5]] = swapped[[5, 4]]
    found = {written(fingerprint(each)) for each in (rows, changed, swapped, rows[:49])}
    assert len(found) == 4
    assert all(len(text) == 16 for text in found)


def test_fingerprints_do_not_depend_on_chunks(monkeypatch):
    rows = torch.arange(600, dtype=torch.int32).view(60, 10)
    whole = fingerprint(rows)
    monkeypatch.setattr("hyscale_calibration.training.fingerprint.CHUNK", 70)
    assert fingerprint(rows) == whole


def test_fingerprints_of_weights_see_one_bit():
    weights = [torch.randn(5, 7), torch.randn(3)]
    changed = [each.clone() for each in weights]
    changed[1].view(torch.int32)[2] ^= 1
    assert of_weights(weights) == of_weights([each.clone() for each in weights])
    assert of_weights(weights) != of_weights(changed)
    assert of_weights(weights) != of_weights(weights[::-1])


def test_sets_are_compared_key_by_key():
    one = torch.tensor([[1, 2, 3], [7, 5, -1], [4, 9, 6], [0, 1, 2]], dtype=torch.int32)
    other = torch.tensor([[3, 1, 2], [5, 7, -1], [4, 8, 5], [0, 1, 3]], dtype=torch.int32)
    assert differing(one, one.flip(1)) == (0, 0)
    assert differing(one, other) == (2, 3)
    # Queries 0 and 1 share nothing, 2 and 3 nothing either; of 5 + 6 keys.
    assert in_common(one) == 0
    assert in_common(other) == pytest.approx(0.0)
    assert in_common(one[:2][[0, 0]]) == 1


def trainer(name):
    return Trainer(run_named(name), Sizes.of(dict(TINY.model)), TINY.task.tokens, Recipe(), DEVICE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three deterministic runs of a few steps, HyTopK with a plan small enough that it filters; losses in float64."""
    plan = Plan(stride=2, rank=8, capacity=24, hopeless=40, lanes=16)
    filtered, exact = [], []
    patch = pytest.MonkeyPatch()
    original = api._filter_and_select
    patch.setattr(api.Plan, "of", classmethod(lambda cls, topk, length: plan))
    patch.setattr(api, "_filter_and_select", lambda *given: filtered.append(1) or original(*given))
    runs = [trainer(name) for name in ("megatron", "hyscale", "hyscale/pairs")]
    step = runs[0].step

    def beside_float64(batch):
        weights = {name: value.cpu() for name, value in exact_weights(runs[0].model).items()}
        found = step(batch)
        exact.append((found[0].loss, exact_loss(runs[0].model, weights, batch, found[1])))
        return found

    patch.setattr(runs[0], "step", beside_float64)
    record, path = Record({}), tmp_path_factory.mktemp("training") / "record.json"
    try:
        session.train(
            runs,
            TINY.task,
            TINY.stages,
            STEPS,
            record,
            path,
            atomic_steps=0,
            say=lambda step, told: None,
            stopped=lambda: False,
        )
    finally:
        patch.undo()
    assert filtered
    assert path.is_file()
    return record.data(), exact


def exact_loss(model, weights, batch, selections):
    """The transformer's loss in float64, for the selections that were made."""
    batch = batch.to("cpu")
    context = model.blocks[0].attention.context
    positions, context.positions = context.positions, context.positions.cpu()
    x = weights["embedding"][batch.parts].sum(1)
    for number, (block, selected) in enumerate(zip(model.blocks, selections, strict=True)):
        of_block = {name.removeprefix(f"blocks.{number}."): value for name, value in weights.items()}
        of_layer = {name.removeprefix("attention."): value for name, value in of_block.items()}
        x, _ = reference(block.attention, of_layer, x, selected.cpu())
        gate, value = (rms(x, of_block["norm"]) @ of_block["widen"].T).chunk(2, dim=-1)
        x = x + (gate * gate.sigmoid() * value) @ of_block["narrow"].T
    context.positions = positions
    logits = rms(x, weights["norm"]) @ weights["head"].T
    asked = batch.answers != NO_ANSWER
    return float((logits[asked].logsumexp(1) - logits[asked, batch.answers[asked]]).mean().detach())


def rms(x, scale):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * scale


@pytest.mark.slow
def test_systems_that_add_in_the_same_order_train_the_same_model_to_the_bit(trained):
    data, _ = trained
    megatron, hyscale = (data["runs"][name] for name in ("megatron", "hyscale"))
    assert len(megatron["loss"]) == STEPS
    assert len(set(megatron["loss"])) == len(set(megatron["weights"])) == STEPS
    for series in ("loss", "index_loss", "selected", "weights"):
        assert megatron[series] == hyscale[series]
    found = compare(megatron, hyscale)
    assert set(found["first_difference"].values()) == {None}
    assert found["loss_difference"]["largest"] == 0


@pytest.mark.slow
def test_recomputations_select_what_their_forward_did_and_pairs_change_no_selection(trained):
    data, _ = trained
    assert all(run["reselected_otherwise"] == 0 for run in data["runs"].values())
    assert all(entry["queries"] == [0] and entry["keys"] == [0] for entry in data["sets"])
    assert data["runs"]["megatron"]["selected"] == data["runs"]["hyscale/pairs"]["selected"]


@pytest.mark.slow
def test_losses_are_those_of_float64(trained):
    _, losses = trained
    assert len(losses) == STEPS
    for found, expected in losses:
        # Factors of products are BF16.
        assert found == pytest.approx(expected, rel=1e-2)


@pytest.mark.slow
def test_another_rule_for_ties_is_noticed(monkeypatch):
    def to_the_higher(table, spans, indices, scores):
        width, topk = table.shape[1], indices.shape[1]
        best = table.flip(1).sort(dim=1, descending=True, stable=True)
        places = (width - 1 - best.indices[:, :topk]).where(best.values[:, :topk] > -torch.inf, width)
        places = places.sort(dim=1).values
        indices.copy_(places.masked_fill(places == width, -1))
        if scores is not None:
            scores.copy_(table.gather(1, indices.clamp(min=0).long()).masked_fill(indices < 0, 0.0))

    batch = TINY.task.batch(0, TINY.task.tokens).to(DEVICE)
    record = Record({})
    for name in ("megatron", "hyscale"):
        run = trainer(name)
        with torch.no_grad():
            # Scores are all 0, so that the rule alone decides.
            run.model.blocks[0].attention.indexer.weights.zero_()
        if name == "megatron":
            monkeypatch.setattr(selection, "_by_radix", to_the_higher)
        record.begin(name, system=name, deterministic=True)
        record.add(name, run.step(batch)[0])
    (found,) = record.data()["comparisons"]
    assert found["runs"] == ["megatron", "hyscale"]
    assert found["first_difference"]["selected"] == found["first_difference"]["weights"] == 0
    assert found["loss_difference"]["largest"] > 0


def test_a_mark_that_means_nothing_is_refused():
    with pytest.raises(ValueError, match="'hyscale/sometimes' has 'sometimes' behind its system"):
        run_named("hyscale/sometimes")
    assert run_named("hyscale/pairs").pairs


def test_a_system_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="there is no 'other' among the systems"):
        run_named("other/atomic")
