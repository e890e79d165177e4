from pathlib import Path

import pytest

from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.stated import stated_yaml

SCENARIOS = sorted((Path(__file__).parents[3] / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_stated_scenario_means_the_same(path):
    again = read_scenario(path.parent / "again.yaml", text=stated_yaml(path))
    assert again.scenario == read_scenario(path).scenario


def test_overrides_and_systems_are_in_it():
    path = next(path for path in SCENARIOS if path.stem == "glm-5.1-1m-512xh20")
    asked = {"overrides": ("layout.cp=64", "systems.hyscale.table_rows=4096"), "systems": ("megatron", "hyscale")}
    again = read_scenario("again.yaml", text=stated_yaml(path, **asked))
    assert again.scenario == read_scenario(path, **asked).scenario
    assert again.scenario.layout.cp == 64


def test_a_text_states_no_files():
    with pytest.raises(InputError, match="cannot refer to other files"):
        stated_yaml("mine.yaml", text="extends: other.yaml")
