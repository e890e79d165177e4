import json

import pytest

from hyscale_model import catalog

SCENARIO = catalog.path("published", "glm-5.1-1m-512xh20")


@pytest.mark.parametrize("columns", ["80", "150"])
def test_people_get_the_widest_swing_first(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    result = run("sensitivity", SCENARIO, "--draws", 4)
    assert result.code == 0
    data = json.loads(run("sensitivity", SCENARIO, "--draws", 4, "--json").out)
    places = [result.out.index(row["input"]) for row in data["inputs"][:5]]
    assert places == sorted(places)
    assert "What would have to be true for no gain at all" in result.out
    assert max(map(len, result.out.splitlines())) <= int(columns)


def test_output_holds_what_json_holds(run, tmp_path):
    path = tmp_path / "study.json"
    result = run("sensitivity", SCENARIO, "--draws", 2, "--json", "--output", path)
    assert json.loads(result.out) == json.loads(path.read_text())
