"""Measured layers beside their predictions."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hyscale_model.checks import check, layers, layers_across
from hyscale_model.checks.layers import Layer, layer_scenario, predict_layer
from hyscale_model.checks.layers_ahead import layers as all_layers
from hyscale_model.checks.layers_ahead import predictions
from hyscale_model.errors import InputError
from hyscale_model.layers.tiles import TOGETHER
from hyscale_model.rates.load import load_profile

GLM = Layer(model="glm-5.1", layer="dsa", system="megatron", length=2**17, ranks=16, shared_keys=0.9)


@pytest.fixture(scope="module")
def profile():
    return load_profile("h200-sxm")


def measured(layer, profile, *, slower=1.0, larger=1.0):
    """A row as a machine would record it that does what the profile says."""
    found = predict_layer(layer, "h200", profile, 0, 0)
    parts = layers.parts_of(layer)
    phases = {phases[0]: slower * 1e3 * float(found.parts[name][0, 0]) for name, (phases, _) in parts.items()}
    return {
        "model": layer.model,
        "layer": layer.layer,
        "system": layer.system,
        "shape": {"n": layer.length // layer.ranks, "L": layer.length, "ranks": layer.ranks, "rank": layer.ranks // 2},
        "median_ms": slower * 1e3 * float(found.seconds[0, 0]),
        "phases_ms": phases,
        "peak_bytes": larger * found.peak_bytes,
        "shared_keys": layer.shared_keys,
    }


@pytest.fixture
def recorded(monkeypatch):
    rows = []
    data = {"gpu": "h200", "kernel_hash": "x", "together": TOGETHER, "rows": rows}
    monkeypatch.setattr(layers, "_measured", lambda: [("h200", "results/h200-sxm/layers.json", data)])
    monkeypatch.setattr(layers_across, "recorded", lambda: iter(()))
    return rows


def test_a_layer_that_does_what_the_profile_says_is_met(recorded, profile):
    recorded.append(measured(GLM, profile))
    result = check(("layers",), draws=16)
    assert {row["split"] for row in result["rows"]} == {"time", "part", "memory"}
    assert all(abs(row["error"]) < 1e-9 for row in result["rows"])
    assert [bar["passed"] for bar in result["summary"]["layers"]["bars"]] == [True, True, True]


def test_bars_are_over_whole_layers_and_their_memory(recorded, profile):
    recorded.append(measured(GLM, profile, slower=1.13, larger=1.04))
    bars = check(("layers",), draws=0)["summary"]["layers"]["bars"]
    assert [bar["id"] for bar in bars] == ["median error of time", "worst error of time", "worst error of memory"]
    assert [bar["passed"] for bar in bars] == [False, True, False]
    assert bars[1]["value"] == pytest.approx(1 - 1 / 1.13)


def test_other_kernels_are_shown_but_no_bar_is_over_them(recorded, profile, monkeypatch):
    recorded += [measured(replace(GLM, system=name), profile, slower=1.5) for name in ("hyscale", "megatron")]
    monkeypatch.setattr(layers, "TOGETHER", TOGETHER // 2)
    result = check(("layers",), draws=0)
    other = [row for row in result["rows"] if row["split"] == layers.OTHER_KERNELS]
    assert {row["id"].partition(":")[0] for row in other} == {"glm-5.1 dsa 131072/16 hyscale"}
    assert all(f"{TOGETHER} queries share a pass" in row["note"] for row in other)
    assert result["summary"]["layers"]["bars"][0]["value"] == pytest.approx(1 / 3)


def test_a_profile_of_another_gpu_has_no_rows(recorded, profile):
    recorded.append(measured(GLM, profile))
    with pytest.raises(InputError, match="published was measured on no GPU"):
        check(("layers",), profile="published", draws=0)
    assert check(("layers",), profile="h200-sxm", draws=0)["rows"]


def test_the_parts_of_a_layer_are_all_of_it(profile):
    for layer in all_layers():
        found = predict_layer(layer, "h200", profile, 4, 0)
        assert np.allclose(sum(found.parts.values()), found.seconds, rtol=1e-9)
        assert found.peak_bytes == pytest.approx(sum(found.at_peak_bytes.values()))


def test_a_table_of_scores_is_in_the_memory_of_those_who_make_one(profile):
    of = {
        system: predict_layer(replace(GLM, system=system, length=2**20, ranks=128), "h200", profile, 0, 0)
        for system in ("megatron", "hyscale")
    }
    assert of["megatron"].at_peak_bytes["score_table"] == 32 * 2**30
    assert "score_table" not in of["hyscale"].at_peak_bytes
    assert of["hyscale"].peak_bytes < of["megatron"].peak_bytes / 2


def test_layers_are_predicted_by_ratios_that_their_systems_have(profile):
    seconds = {
        layer.system: predict_layer(layer, "h200", profile, 0, 0).seconds[0, 0]
        for layer in all_layers()
        if (layer.model, layer.length) == ("glm-5.1", 2**20)
    }
    assert seconds["megatron"] > seconds["megatron-best"] > seconds["hyscale"]


def test_predictions_in_advance_are_those_of_the_catalogue_on_any_gpu():
    found = predictions("h20-96", "h200-sxm")
    assert [row["id"] for row in found["rows"]] == [layer.id for layer in all_layers()]
    assert all(row["time_s"]["p10"] < row["time_s"]["nominal"] < row["time_s"]["p90"] for row in found["rows"])


def test_predictions_in_advance_have_the_parts_that_are_compared():
    folder = Path(__file__).parents[2] / "calibration/hyscale_calibration/results/predicted/layers"
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    assert len(files) == 4
    named = {layer.id: set(layers.parts_of(layer)) for layer in all_layers()}
    assert all({row["id"]: set(row["parts_s"]) for row in file["rows"]} == named for file in files)


def test_a_layer_has_the_ranks_of_its_case_and_no_communication():
    scenario = layer_scenario(GLM, "h200")
    assert scenario.cluster.nodes * scenario.cluster.gpus_per_node == scenario.layout.cp == 16
    assert scenario.scope.include == ("attention",)
    assert scenario.systems[0].backend == "hyscale_kernels"


PAGE = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")


def test_the_page_tells_what_the_check_finds():
    rows = check(("layers",))["rows"]
    found = {(row["id"].partition(":")[0], row["family"].partition(": ")[2]): row for row in rows}
    told = re.findall(r"^\| (\S+ [dcq]sa \d+/\d+ \S+) \|(.+)\|$", PAGE, re.MULTILINE)
    assert len(told) == len(all_layers())
    for name, line in told:
        cells = [cell.strip() for cell in line.split("|")]
        step, memory = found[name, "step"], found[name, "memory"]
        numbers = [float(re.match(r"[-+]?[\d.]+", cell)[0]) for cell in cells if cell[:1] in "-+0123456789"]
        low, high = (1e3 * step["predicted"][key] for key in ("p10", "p90"))
        assert numbers[:3] == pytest.approx([1e3 * step["reported"], 1e3 * step["predicted"]["nominal"], low], abs=0.06)
        assert float(cells[2].split()[2]) == pytest.approx(high, abs=0.06)
        gib = [memory["reported"] / 2**30, memory["predicted"]["nominal"] / 2**30]
        assert numbers[4:6] == pytest.approx(gib, abs=0.006)
        assert [numbers[3], numbers[6]] == pytest.approx([100 * step["error"], 100 * memory["error"]], abs=0.06)
        assert ("no" in cells[4]) != step["inside"]


def test_the_page_tells_the_bars():
    bars = check(("layers",))["summary"]["layers"]["bars"]
    # Those of layers over ranks stand on another page.
    for bar, text in zip(bars[:3], ("time: median error", "time: worst error", "memory: worst error"), strict=True):
        (reached, met) = re.search(rf"^\| {text} at most \d+ % \| ([\d.]+) % \| (.+?) \|$", PAGE, re.MULTILINE).groups()
        assert float(reached) == pytest.approx(100 * bar["value"], abs=0.06)
        assert ("no" in met) != bar["passed"]


def test_lists_of_pairs_are_told_where_both_sides_have_them(recorded, profile):
    recorded += [measured(replace(GLM, system=name), profile) for name in ("megatron", "hyscale")]
    parts = [row for row in check(("layers",), draws=0)["rows"] if row["split"] == "part"]
    told = {(row["id"].split()[3][:-1], row["family"].partition(": ")[2]) for row in parts}
    both = "sparse attention recompute and backward"
    assert ("hyscale", both) in told
    assert ("megatron", both) not in told
    assert [system for system, part in told if part == "sparse attention backward"] == ["megatron"]
    assert all(abs(row["error"]) < 1e-9 for row in parts)
