"""The scenarios for users to copy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.load import load

FOLDER = Path(__file__).parents[3] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_scenario_is_valid(file: Path) -> None:
    scenario = read_scenario(file).scenario
    assert scenario.name
    names = {system.name for system in scenario.systems}
    for row in scenario.reported:
        systems = re.findall(r"^systems\.([^.]+)|^speedup[^.]*\.([^./]+)/([^./]+)", row.metric)
        assert {name for found in systems for name in found if name} <= names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_scenario_can_be_predicted(file: Path) -> None:
    resolved = read_scenario(file)
    systems = predict(resolved, draws=1).data["systems"]
    assert [system.name for system in resolved.scenario.systems] == list(systems)
    assert all(system["step_time_s"]["nominal"] > 0 for system in systems.values())


def test_names_differ() -> None:
    names = [load(file).data["name"] for file in FILES]
    assert len(set(names)) == len(FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_scenario_says_what_it_asks(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) < 50


def test_the_page_lists_every_scenario_once() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[([^]]+)\]\(\1\) \|", page, re.M)) == [file.name for file in FILES]


@pytest.mark.parametrize("file", [file for file in FILES if "glm-5.2" in file.stem], ids=lambda file: file.stem)
def test_every_stage_of_glm_5_2_begins_with_a_selection(file: Path) -> None:
    scenario = read_scenario(file).scenario
    stages = scenario.layout.stage_layers
    assert stages is not None
    starts = [sum(stages[:index]) for index in range(1, len(stages))]
    assert all((layer + 1 - 3) % 4 == 0 for layer in starts)
