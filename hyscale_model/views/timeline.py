"""Timeline: when which pass runs on which stage, and what a pass consists of."""

from __future__ import annotations

from hyscale_model import figures
from hyscale_model.figures.hover import origin_text
from hyscale_model.report.canvas import noun
from hyscale_model.report.units import count, percent
from hyscale_model.timeline import timeline
from hyscale_model.views.cards import Card, Choice
from hyscale_model.views.page import Page


def build(page: Page) -> list[Card]:
    """The pipeline of one system, and the streams of one of its virtual stages."""
    systems = page.data["systems"]
    system = page.option("system", systems)
    found = timeline(page.resolved, system)
    origin = origin_text(page.data, f"systems.{system}")
    stages = {str(index): f"virtual stage {index}" for index in range(len(found.stages))}
    critical = str(systems[system]["critical_stage"])
    stage = page.options.get("stage", critical)
    stage = stage if stage in stages else critical
    bubble = systems[system]["time_s"].get("pp_bubble", 0.0) / found.step_s
    shown = (
        f"all {count(found.micro_batches)} micro-batches"
        if found.shown == found.micro_batches
        else f"the first {found.shown} of {count(found.micro_batches)} micro-batches, as a step of their own"
    )
    origins = {term: str(entry["origin"]) for term, entry in systems[system]["terms"].items()}
    return [
        Card(
            name="pipeline",
            title=f"The {noun(page.data)} on its pipeline stages",
            about=f"{shown}, nominal; gaps are the bubble, {percent(bubble)} of the {noun(page.data)}. Drag to zoom, "
            "double-click to see all.",
            choices=(Choice("system", "System", {name: name for name in systems}, system),),
            figure=figures.pipeline(found, system, origin, page.theme),
            wide=True,
        ),
        Card(
            name="streams",
            title="The blocks of a stage on their streams",
            about="Each kind of block once: all of them forward, then back with recomputation (hatched) and backward "
            "(crossed). What overlaps computation is hidden.",
            choices=(Choice("stage", "Stage", stages, stage),),
            figure=figures.streams(found, int(stage), system, origins, page.theme),
            wide=True,
        ),
    ]
