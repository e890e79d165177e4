"""The written file says where each value comes from, in comments that cannot break it."""

from __future__ import annotations

from hyscale_model.importers.complete import complete
from hyscale_model.importers.imported import Entry, Imported, unexpressed
from hyscale_model.importers.megatron import megatron_arguments
from hyscale_model.importers.write import scenario_text
from hyscale_model.scenario import loads, read_scenario

GPT = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --vocab-size 1000"


def test_each_line_names_its_origin() -> None:
    text = scenario_text(complete(megatron_arguments(f"{GPT} --delay-wgrad-compute".split())))
    head, _, body = text.partition("schema_version")
    assert "--delay-wgrad-compute" in head
    assert "(not stated) marks" in head
    assert "  hidden_size: 64  # --hidden-size\n" in body
    assert "  tp: 1  # Megatron-LM's default (not stated)\n" in body
    values = [line for line in body.split("\n") if line.startswith("  ") and ": " in line]
    assert all("  # " in line for line in values)
    assert "systems:\n  - megatron\n" in body


def test_hostile_text_stays_text() -> None:
    base = complete(megatron_arguments(GPT.split()))
    model = {**base.sections["model"], "name": Entry('a: b # c\n"', "line\nbreak: 1")}
    hostile = Imported(
        source="x\ny: 1",
        sections={**base.sections, "model": model},
        not_expressed=(unexpressed("a\nb", "c\nd: 1", "e"),),
    )
    text = scenario_text(hostile)
    assert set(loads(text, "f").data) == {
        "schema_version", "name", "model", "cluster", "layout", "workload", "training", "systems",
    }  # fmt: skip
    assert read_scenario("f", text=text).scenario.model.name == 'a: b # c "'
