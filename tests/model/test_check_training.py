"""Trainings beside their prediction, and what counts as the same model."""

import json

import pytest
from hyscale_calibration.training.compare import bits_of, compare, number_of
from training_record import GIB, MODEL, training_record

from hyscale_model import figures
from hyscale_model.checks import check, offered, training
from hyscale_model.errors import InputError
from hyscale_model.views import Page, evidence
from hyscale_model.views.training import training_cards


@pytest.fixture
def data():
    return json.loads(json.dumps(training_record().data()))


@pytest.fixture
def recorded(data, monkeypatch):
    monkeypatch.setattr(training, "records", lambda: iter([("here", data)]))
    monkeypatch.setattr("hyscale_model.views.training.records", lambda: iter([("here", data)]))
    return data


@pytest.fixture
def rows(recorded):
    return {row["metric"]: row for row in training.training_rows(None, 16, 0)}


def test_the_scenario_is_what_was_trained(data):
    scenario = training.training_scenario(data)
    assert {name: getattr(scenario.model, name) for name in MODEL} == MODEL
    assert scenario.workload.sequence_length == 32768
    switches = {system.name: (system.selection, system.sparse_attention, system.backend) for system in scenario.systems}
    assert switches == {
        "megatron": ("score_table", "per_query", "hyscale_kernels"),
        "hyscale-one-query": ("hytopk", "per_query", "hyscale_kernels"),
        "hyscale": ("hytopk", "query_pairs", "hyscale_kernels"),
    }


def test_times_are_those_of_the_longest_documents(data, rows):
    data["runs"]["megatron"]["time_ms"][:] = [7.0, 7.0, 100.0, 100.0, 100.0, 90.0]
    assert training.step_seconds(data, "megatron") == pytest.approx(0.1)
    assert rows["systems.megatron.step_time_s"]["reported"] == pytest.approx(0.3)
    assert rows["speedup.hyscale/megatron"]["reported"] == pytest.approx(1.5)
    assert rows["systems.hyscale.memory.peak_allocated_bytes"]["reported"] == 11 * GIB


def test_predictions_are_of_the_same_things(rows):
    seconds = {
        name: rows[f"systems.{name}.step_time_s"]["predicted"]["nominal"]
        for name in ("megatron", "hyscale-one-query", "hyscale")
    }
    assert seconds["megatron"] > seconds["hyscale-one-query"] > 0
    for name in ("hyscale-one-query", "hyscale"):
        ratio = rows[f"speedup.{name}/megatron"]["predicted"]["nominal"]
        assert ratio == pytest.approx(seconds["megatron"] / seconds[name])
    for row in rows.values():
        assert row["error"] == pytest.approx(row["predicted"]["nominal"] / row["reported"] - 1)
        assert row["predicted"]["p10"] <= row["predicted"]["nominal"] <= row["predicted"]["p90"]


def test_neighbours_share_what_was_counted_in_long_documents(data, rows):
    assert training.common_keys(data) == pytest.approx(0.8)
    before = rows["systems.hyscale.step_time_s"]["predicted"]["nominal"]
    data["selections"][1]["shared_keys"] = [1.0, 1.0]
    after = {row["metric"]: row for row in training.training_rows(None, 0, 0)}
    assert after["systems.hyscale.step_time_s"]["predicted"]["nominal"] < before


def test_the_same_bits_meet_the_bars(recorded):
    bars = training.training_bars()
    assert [bar["value"] for bar in bars] == [0, 0, 0]
    assert all(bar["passed"] for bar in bars)


@pytest.mark.parametrize("series", ["selected", "loss", "weights"])
def test_one_other_bit_misses_a_bar(recorded, series):
    recorded["runs"]["hyscale"][series][3] = "0"
    assert sum(not bar["passed"] for bar in training.training_bars()) == 1
    data = check(["training"], draws=2)
    assert [bar["passed"] for bar in data["summary"]["training"]["bars"]].count(False) == 1


def test_without_a_record_there_is_nothing_to_check(monkeypatch):
    monkeypatch.setattr(training, "records", lambda: iter([]))
    monkeypatch.setattr("hyscale_model.views.training.records", lambda: iter([]))
    assert "training" not in offered()
    assert training_cards(figures.LIGHT) == []
    with pytest.raises(InputError, match=r"no training is recorded.*hyscale_calibration\.training --json"):
        check(["training"])


def test_records_of_the_user_come_first_and_those_without_a_gpu_do_not_count(data, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "user_data_directory", lambda: tmp_path)
    for gpu, folder in (("h200", "mine"), (None, "cpu")):
        (tmp_path / "results" / folder).mkdir(parents=True)
        (tmp_path / "results" / folder / "training.json").write_text(json.dumps(data | {"gpu": gpu}))
    found = [source for source, _ in training.records()]
    assert found[0] == "results/mine/training.json"
    assert "results/cpu/training.json" not in found
    assert "training" in offered()


def test_runs_part_where_a_bit_differs_first(data):
    pairs = {tuple(entry["runs"]): entry for entry in data["comparisons"]}
    found = pairs["megatron", "hyscale/pairs"]
    assert found["first_difference"] == {"loss": 3, "index_loss": None, "selected": None, "weights": 3}
    assert found["loss_difference"]["largest"] == pytest.approx(2**-20 / 1.5)
    assert pairs["megatron", "hyscale"]["first_difference"]["loss"] is None
    later = pairs["megatron", "megatron/atomic"]
    assert (later["first_step"], later["steps"]) == (2, 3)
    # The third step of the one is the first of the other.
    assert later["first_difference"]["loss"] == 3
    assert compare(data["runs"]["hyscale"], data["runs"]["hyscale"])["loss_difference"]["largest"] == 0


def test_bits_are_those_of_the_number():
    assert number_of(bits_of(0.1)) == pytest.approx(0.1, rel=1e-7)
    assert bits_of(1.0) == "3f800000"


def test_a_recomputation_that_selects_otherwise_is_counted():
    record = training_record()
    assert record.runs["megatron"]["reselected_otherwise"] == 0
    from training_record import step

    record.add("megatron", step(1.0, selected=("a", "b"), reselected=("a", "c")))
    assert record.runs["megatron"]["reselected_otherwise"] == 1


def test_a_record_is_written_whole_and_read_back(tmp_path):
    path = tmp_path / "folder" / "training.json"
    record = training_record()
    record.write(path)
    assert training._read(path) == json.loads(json.dumps(record.data()))
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("theme", list(figures.THEMES.values()))
def test_curves_are_drawn_and_differences_only_where_there_are_any(recorded, theme):
    curves = figures.training_losses(recorded, theme)
    assert [trace["name"] for trace in curves["data"]] == ["megatron", "hyscale", "hyscale/pairs"]
    assert curves["data"][0]["y"] == [4.0, 3.5, 3.0, 2.5, 2.0, 1.5]
    apart = {trace["name"]: trace for trace in figures.training_differences(recorded, theme)["data"]}
    assert not apart["megatron and hyscale: equal"]["x"]
    assert apart["megatron and hyscale/pairs"]["x"] == [3, 4, 5]
    cards = training_cards(theme)
    assert [card.name for card in cards] == ["training-losses", "training-differences"]
    assert "never" in cards[1].body()
    assert "step 3" in cards[1].body()


def test_the_evidence_shows_times_beside_their_prediction(recorded, monkeypatch, predicted, resolve):
    # What is checked of the recorded training must not be kept for other tests.
    monkeypatch.setattr(evidence, "_check", lambda group: check((group,), draws=2))
    page = Page(resolved=resolve(), data=predicted(), theme=figures.LIGHT, options={"group": "training"})
    cards = {card.name: card for card in evidence.build(page)}
    assert cards["check"].title == "Check: training"
    assert sum(len(trace["y"]) for trace in cards["training-steps"].figure["data"]) == 8
    assert "step of hyscale-one-query" in cards["training-steps"].body()
