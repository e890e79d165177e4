"""A recorded training of several systems side by side, as cards: do they train the same model, and how fast?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.checks.training import long_steps, records
from hyscale_model.figures import Theme
from hyscale_model.report.units import count
from hyscale_model.views.cards import Card, table

_SERIES = {"selected": "selections", "loss": "losses", "weights": "weights"}


def training_cards(theme: Theme) -> list[Card]:
    """Losses and their differences of the first record there is; nothing without one."""
    for source, data in records():
        return [_losses(data, source, theme), _differences(data, theme)]
    return []


def _losses(data: Mapping[str, Any], source: str, theme: Theme) -> Card:
    steps = max(len(run["loss"]) for run in data["runs"].values())
    about = (
        f"A transformer of {data['model']['num_hidden_layers']} layers trained {steps} steps of "
        f"{count(data['task']['tokens'])} tokens on one {data['device']['name']}, to recall what stands further back "
        f"than the {count(data['model']['index_topk'])} keys it attends to, by kernels that add in a fixed "
        f"order ({source})."
    )
    return Card(
        name="training-losses",
        title="Same selection, same loss",
        about=about,
        figure=figures.training_losses(data, theme),
        wide=True,
    )


def _differences(data: Mapping[str, Any], theme: Theme) -> Card:
    head = ["runs", *(f"{told} differ from" for told in _SERIES.values()), "losses apart, at most", "steps"]
    rows = [
        [
            " and ".join(entry["runs"]),
            *(_at(entry["first_difference"][series]) for series in _SERIES),
            f"{apart:.1e}" if (apart := entry["loss_difference"]["largest"]) else "0",
            count(entry["steps"]),
        ]
        for entry in data["comparisons"]
    ]
    about = (
        "The first step at which something differs by a bit. Runs called atomic add in any order, as kernels usually "
        f"do, and go on from where megatron is at step {long_steps(data)}; one of them is there twice."
    )
    return Card(
        name="training-differences",
        title="Where trainings part",
        about=about,
        figure=figures.training_differences(data, theme),
        content=(table("training-differences", head, rows, left=1),),
        csv="training-differences",
        wide=True,
    )


def _at(step: int | None) -> str:
    return "never" if step is None else f"step {step}"
