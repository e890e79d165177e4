from itertools import product

import pytest

from hyscale_model.checks import GROUPS, check
from hyscale_model.errors import InputError
from hyscale_model.reported import inside
from hyscale_model.scenario import Reported

AXES = {
    "training.index_precision": ("bf16", "fp8"),
    "causal_skip": (True, False),
    "table_topk": ("torch", "radix"),
    "layout.vpp": (1, 2, 3),
    "workload.global_batch_size": (4, 8, 16),
}


@pytest.fixture(scope="module")
def checked():
    return check(["paper"], draws=16)


def item(relation, value):
    return Reported(metric="speedup.a/b", value=value, source="a test", relation=relation)


@pytest.mark.parametrize(
    ("relation", "value", "expected"),
    [
        ("equal", 0.99, False),
        ("equal", 1.0, True),
        ("equal", 2.0, True),
        ("equal", 3.0, True),
        ("equal", 3.01, False),
        ("at_most", 2.0, True),
        ("at_most", 1.99, False),
        ("at_least", 2.0, True),
        ("at_least", 2.01, False),
    ],
)
def test_a_value_lies_inside_the_interval_and_a_bound_holds_at_the_median(relation, value, expected):
    predicted = {"nominal": 50.0, "p10": 1.0, "p50": 2.0, "p90": 3.0}
    assert inside(item(relation, value), predicted) is expected


def test_rows_have_the_keys_of_their_contract(checked):
    keys = {
        "id",
        "group",
        "metric",
        "relation",
        "reported",
        "predicted",
        "error",
        "inside",
        "split",
        "family",
        "source",
    }
    assert checked["rows"]
    for row in checked["rows"]:
        assert keys <= set(row)
        assert set(row["predicted"]) == {"nominal", "p10", "p50", "p90"}
        assert row["relation"] in ("equal", "at_most", "at_least")
        assert row["group"] in GROUPS
        assert row["split"] == "paper"


def test_rows_follow_from_their_interval(checked):
    for row in checked["rows"]:
        low, middle, high = (row["predicted"][key] for key in ("p10", "p50", "p90"))
        assert low <= middle <= high
        holds = {
            "equal": low <= row["reported"] <= high,
            "at_most": middle <= row["reported"],
            "at_least": middle >= row["reported"],
        }
        assert row["inside"] == holds[row["relation"]]
        assert row["error"] == pytest.approx(row["predicted"]["nominal"] / row["reported"] - 1)


def test_shares_are_shares(checked):
    for row in checked["rows"]:
        if "share" in row["metric"]:
            assert 0 <= row["predicted"]["p10"] <= row["predicted"]["p90"] <= 1
    for share in checked["grid"]["share_within_10_percent"].values():
        assert 0 <= share <= 1
    for row in checked["grid"]["rows"]:
        assert 0 < row["P4"] < 1


def test_the_exact_sizes_of_the_paper_are_exact(checked):
    rows = {row["id"]: row for row in checked["rows"]}
    assert rows["P7"]["predicted"]["nominal"] == 34_359_738_368
    assert rows["P8"]["predicted"]["nominal"] == 67_108_864
    for name in ("P7", "P8"):
        assert rows[name]["inside"]
        assert rows[name]["error"] == 0


def test_replay_stays_below_its_published_share(checked):
    rows = {row["id"]: row for row in checked["rows"]}
    assert rows["P6"]["relation"] == "at_most"
    assert rows["P6"]["predicted"]["p90"] <= 0.016


def test_the_summary_counts_its_rows(checked):
    rows = checked["rows"]
    summary = checked["summary"]["paper"]
    errors = {row["id"]: row["error"] for row in rows if row["relation"] == "equal"}
    assert summary["n"] == len(rows)
    # The step of GLM-5.1, the CSA layers of V4-Flash, the QSA layers of Qwen3.8.
    assert summary["families"] == len({row["family"] for row in rows}) == 3
    assert summary["coverage"] == pytest.approx(sum(row["inside"] for row in rows) / len(rows))
    assert summary["mape"] == pytest.approx(sum(map(abs, errors.values())) / len(errors))
    assert summary["bias"] == pytest.approx(sum(errors.values()) / len(errors))
    assert abs(summary["worst"]["error"]) == max(map(abs, errors.values()))
    assert errors[summary["worst"]["id"]] == summary["worst"]["error"]


def test_the_grid_holds_every_combination_once(checked):
    rows = checked["grid"]["rows"]
    assert len(rows) == 72
    assert {tuple(row[name] for name in AXES) for row in rows} == set(product(*AXES.values()))


# Points of the grid, by what makes a prediction of its own reach them.
PLACES = {
    ("bf16", True, "torch", 2, 4): (),
    ("fp8", True, "torch", 3, 16): (
        "training.index_precision=fp8",
        "layout.vpp=3",
        "workload.global_batch_size=16",
    ),
    ("bf16", False, "radix", 1, 8): (
        "systems.*.causal_skip=false",
        "systems.*.table_topk=radix",
        "layout.vpp=1",
        "layout.schedule=1f1b",
        "workload.global_batch_size=8",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_point_of_the_grid_is_a_prediction(checked, predicted, place):
    (row,) = (row for row in checked["grid"]["rows"] if tuple(row[name] for name in AXES) == place)
    data = predicted(*PLACES[place])
    assert row["P1"] == pytest.approx(data["speedup"]["hyscale/megatron"]["nominal"], rel=1e-9)
    system = data["systems"]["megatron"]
    assert row["P4"] == pytest.approx(system["selection_share_of_step"]["nominal"], rel=1e-9)
    assert row["P5"] == pytest.approx(system["time_s"]["selection_recompute"], rel=1e-9)


def test_shares_of_the_grid_count_what_comes_within_ten_percent(checked):
    grid = checked["grid"]
    close = [
        {key: abs(row[key] / grid["reported"][key] - 1) <= 0.1 for key in ("P1", "P4", "P5")} for row in grid["rows"]
    ]
    shares = grid["share_within_10_percent"]
    for key in ("P1", "P4", "P5"):
        assert shares[key] == pytest.approx(sum(hit[key] for hit in close) / 72)
    assert shares["P1 and P4"] == pytest.approx(sum(hit["P1"] and hit["P4"] for hit in close) / 72)
    assert shares["P1, P4 and P5"] == pytest.approx(sum(all(hit.values()) for hit in close) / 72)
    assert grid["reported"] == {"P1": 2.07, "P4": 0.47, "P5": 37.0}


def test_a_file_of_the_user_is_checked_by_itself(tmp_path, predicted):
    path = tmp_path / "mine.yaml"
    path.write_text(
        """
schema_version: 1
name: mine
model: glm-5.1
cluster: 512xh20
layout: {pp: 4, cp: 128, ep: 128}
workload: {sequence_length: 1048576, global_batch_size: 4}
training: {}
systems: [megatron, hyscale]
reported: [{metric: speedup.hyscale/megatron, relation: at_least, value: 1.0, source: my own run}]
""",
        encoding="utf-8",
    )
    result = check(files=[str(path)], draws=16)
    (row,) = result["rows"]
    assert (row["group"], row["split"], row["family"]) == ("user", "user", str(path))
    assert row["inside"]
    assert "grid" not in result
    assert result["summary"]["user"]["mape"] is None
    assert result["summary"]["user"]["coverage"] == 1


def test_a_file_without_results_has_nothing_to_check(tmp_path):
    path = tmp_path / "mine.yaml"
    text = "schema_version: 1\nname: mine\nmodel: glm-5.1\ncluster: 512xh20\nlayout: {pp: 4, cp: 128, ep: 128}\n"
    text += "workload: {sequence_length: 1048576, global_batch_size: 4}\ntraining: {}\nsystems: [megatron]\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        check(files=[str(path)])
    assert refused.value.field == "reported"


def test_an_unknown_group_is_refused():
    with pytest.raises(InputError) as refused:
        check(["papers"])
    assert "paper" in str(refused.value)


def test_a_check_can_be_repeated(checked):
    assert check(["paper"], draws=16) == checked
