from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.dashboard.answer import answer, resolve
from hyscale_model.dashboard.question import Question
from hyscale_model.errors import InputError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_changes_are_those_of_the_command_line(page, offer):
    question = Question.from_page(page({"layout.cp": "64", "layout.ep": "64"}, systems=["megatron", "hyscale"]))
    found = answer(question, offer, {})
    assert found.resolved.scenario.layout.cp == 64
    assert list(found.data["systems"]) == ["megatron", "hyscale"]
    assert found.command.endswith("--system megatron --system hyscale --set layout.cp=64 --set layout.ep=64")


def test_the_first_scenario_stands_in_for_none():
    assert Question.from_page({"scenario": None}, "first").scenario == "first"


@pytest.mark.parametrize(
    "changes",
    [
        {"extends": "/etc/passwd"},
        {"profile": "/etc/profile.yaml"},
        {"model.hf_config": "/etc/passwd"},
        {"model": "{hf_config: /etc/passwd}"},
        {"model": "/etc/passwd"},
        {"cluster": "[1, 2]"},
        {"workload.document_lengths.file": "/etc/passwd"},
        {"workload.document_lengths": "{file: /etc/passwd}"},
        {"systems": "megatron"},
        {"systems.hyscale.layout": "1"},
        {"assumptions": "[]"},
        {"reported": "[]"},
        {"layout.pp": "1\nextends: /etc/passwd"},
        {"layout.pp": "9" * 500},
        {"layout.nothing": "1"},
        {"": ""},
    ],
    ids=str,
)
def test_only_single_values_of_fields_can_be_set(page, offer, changes, monkeypatch):
    opened = []
    real = Path.open

    def spy(path, *arguments, **options):
        opened.append(str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", spy)
    with pytest.raises(InputError):
        answer(Question.from_page(page(changes)), offer, {})
    assert not [path for path in opened if path.startswith("/etc")]


def test_a_range_replaces_the_one_of_the_scenario(page, offer):
    ranges = {"cluster.nic_efficiency": "0.75,0.85", "systems.*.dispatcher": "deepep"}
    question = Question.from_page(page(ranges=ranges))
    scenario = resolve(question, offer.source(question.scenario, {})).scenario
    drawn = {item.path: item for item in scenario.assumptions}
    assert drawn["cluster.nic_efficiency"].range == (0.75, 0.85)
    assert {system.dispatcher for system in scenario.systems} == {"deepep"}
    assert not [path for path in drawn if path.endswith("dispatcher")]
    assert "training.moe_imbalance" in drawn


def test_choices_keep_their_weights(page, offer):
    question = Question.from_page(page(ranges={"workload.global_batch_size": "4,16"}))
    scenario = resolve(question, offer.source(question.scenario, {})).scenario
    (item,) = [item for item in scenario.assumptions if item.path == "workload.global_batch_size"]
    assert (item.choices, item.weights) == ((4, 16), (2.0, 1.0))


@pytest.mark.parametrize("ranges", [{"cluster.nic_efficiency": "0.9,0.7"}, {"layout.vpp": "2,5"}, {"layout.cp": "1,2"}])
def test_bad_ranges_are_refused(page, offer, ranges):
    with pytest.raises(InputError):
        answer(Question.from_page(page(ranges=ranges)), offer, {})


@given(JSON)
def test_whatever_a_browser_sends_is_a_question_or_refused(data):
    with suppress(InputError):
        assert Question.from_page(data, "first").scenario
