from __future__ import annotations

from importlib.resources.abc import Traversable
from pathlib import Path

import pytest

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario

BASE = Path(__file__).parents[1] / "scenario" / "base.yaml"
ENTRIES = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_is_complete_and_sourced(kind: str, name: str) -> None:
    entry = catalog.entry(kind, name)
    assert (entry.kind, entry.name) == (kind, name)
    assert entry.description
    assert "\n" not in entry.description
    assert entry.source
    assert entry.values
    assert set(entry.sources) <= set(entry.values)
    for field in entry.values:
        assert entry.node.value[field].origin == entry.origin(field)
    if entry.extends:
        assert entry.extends in catalog.names(kind)


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_no_source_ends_in_a_comment(kind: str, name: str) -> None:
    # In YAML the rest of "issue #1244" without quotes is a comment.
    for line in catalog.path(kind, name).read_text(encoding="utf-8").splitlines():
        before, mark, _ = line.partition(" #")
        assert not mark or before.count('"') == 1 or not before.strip(), line


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_facts_are_public(kind: str, name: str) -> None:
    entry = catalog.entry(kind, name)
    for source in (entry.source, *entry.sources.values()):
        assert "shared/" not in source
        assert "/home/" not in source


def test_names_are_unique_without_regard_to_case() -> None:
    for kind in catalog.KINDS:
        lowered = [name.lower() for name in catalog.names(kind)]
        assert len(set(lowered)) == len(lowered)


SECTIONS = {"models": "model", "gpus": "cluster.gpu", "clusters": "cluster"}

# One GPU holds the model, so that entries of every size fit: nothing here is about layouts.
ALONE = ["layout={}", "workload.global_batch_size=9216", "workload.sequence_length=8192"]


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_entry_can_be_named_in_a_scenario(kind: str, name: str) -> None:
    base_text = BASE.read_text()
    if kind == "systems":
        resolved = read_scenario("x", text=base_text, systems=[name])
        assert [system.name for system in resolved.scenario.systems] == [name]
        return
    section = SECTIONS[kind]
    resolved = read_scenario("x", text=base_text, overrides=[*ALONE, f"{section}={name}"], systems=["megatron"])
    assert resolved.origins[f"{section}.name"].origin == "published"


def test_a_field_has_its_own_source_before_that_of_the_entry() -> None:
    entry = catalog.entry("gpus", "h20-96")
    assert entry.origin("memory_bytes").detail == entry.sources["memory_bytes"]
    assert entry.origin("sms").detail == entry.source


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("models", "GLM5.1", "glm-5.1"),
        ("gpus", "h20", "h20-141 (one of"),
        ("systems", "hyscal", "hyscale (one of hyscale, megatron, megatron-best)"),
        ("systems", "../systems/hyscale", "one of"),
        ("gpu", "h200", "gpus (one of"),
    ],
)
def test_unknown_names_get_the_nearest(kind: str, name: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.entry(kind, name)
    assert expected in (caught.value.expected or "")
    with pytest.raises(InputError):
        catalog.document(kind, name)


def test_any_file_can_be_read_with_its_positions() -> None:
    file = catalog.path("gpus", "h200")
    assert isinstance(file, Traversable)
    document = catalog.document("gpus", "h200")
    assert document.line(("name",)) == 1
    assert document.file == "hyscale_model/catalog/gpus/h200.yaml"
    assert document is catalog.document("gpus", "h200")


def test_entries_cannot_be_changed_by_their_users() -> None:
    first = catalog.entry("gpus", "h200")
    dict(first.values).clear()
    first.values["sms"] = 1  # type: ignore[index]
    assert catalog.entry("gpus", "h200").values["sms"] == 132
