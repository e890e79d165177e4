import json

import pytest

from hyscale_model import catalog

SCENARIO = catalog.path("published", "glm-5.1-1m-512xh20")


@pytest.mark.parametrize("columns", ["80", "150"])
def test_people_get_the_widest_swing_first(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    result = run("sensitivity", SCENARIO, "--draws", 4)
    assert result.code == 0
    data = json.loads(run("sensitivity", SCENARIO, "--draws", 4, "--minutes", 0, "--json").out)
    places = [result.out.index(row["input"]) for row in data["inputs"][:5]]
    assert places == sorted(places)
    assert "What would have to be true for no gain at all" in result.out
    assert max(map(len, result.out.splitlines())) <= int(columns)


def test_output_holds_what_json_holds(run, tmp_path):
    path = tmp_path / "study.json"
    result = run("sensitivity", SCENARIO, "--draws", 2, "--minutes", 0, "--json", "--output", path)
    assert json.loads(result.out) == json.loads(path.read_text())


def test_commands_that_are_told_can_be_typed(run):
    result = run("sensitivity", SCENARIO, "--json")
    first = json.loads(result.out)["measure_first"]
    kernels, links = first["commands"]
    asked = [name for name in kernels.split() if name not in ("hyscale", "calibrate", "--op")]
    chosen = [row["name"] for row in first["measurements"] if row["chosen"]]
    assert set(asked) >= set(chosen) - {"collectives"}
    assert run(*kernels.split()[1:], "--dry-run").code == 0
    assert links.startswith("torchrun")
    assert "--op collectives" in links


def test_people_see_what_to_measure_unless_they_have_no_time(run):
    assert "hyscale calibrate --plan quick --op" in run("sensitivity", SCENARIO, "--draws", 4).out
    assert "measure" not in run("sensitivity", SCENARIO, "--draws", 4, "--minutes", 0).out
