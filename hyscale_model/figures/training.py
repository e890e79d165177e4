"""A training of several systems side by side: their losses, and how far these are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyscale_model.checks.training import losses
from hyscale_model.figures import hover
from hyscale_model.figures.palette import SYSTEMS
from hyscale_model.figures.style import Figure, Theme, figure
from hyscale_model.report.units import significant

_HEIGHT = 330
# Curves that coincide are seen through each other: each is drawn narrower than the one before.
_WIDTHS = (9, 5, 1.5)
_MARGIN = {"l": 62}


def training_losses(data: Mapping[str, Any], theme: Theme) -> Figure:
    """The loss of every deterministic run over its steps.

    Args:
        data: a record of ``hyscale_calibration.training``.
        theme: the look.
    """
    traces = []
    shown = [name for name, run in data["runs"].items() if run["deterministic"]]
    for index, name in enumerate(shown):
        run = data["runs"][name]
        found = losses(run)
        steps = list(range(run["first_step"], run["first_step"] + len(found)))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": steps,
                "y": found,
                "customdata": [
                    hover.number(f"{name}, step {step}", value, significant, notes=(f"bits {bits}",))
                    for step, value, bits in zip(steps, found, run["loss"], strict=True)
                ],
                "hovertemplate": hover.TEMPLATE,
                "line": {"color": SYSTEMS[index % len(SYSTEMS)], "width": _WIDTHS[min(index, len(_WIDTHS) - 1)]},
            }
        )
    return _over_steps(data, traces, "cross-entropy", theme, {})


def training_differences(data: Mapping[str, Any], theme: Theme) -> Figure:
    """How far losses of two runs are apart over their steps, relative; where they are equal nothing is drawn.

    Args:
        data, theme: as of ``training_losses``.
    """
    traces = []
    for index, entry in enumerate(data["comparisons"]):
        name = " and ".join(entry["runs"])
        steps, apart = _apart(data, entry)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name + ("" if steps else ": equal"),
                "x": steps,
                "y": apart,
                "customdata": [
                    hover.number(f"{name}, step {step}", value, lambda each: f"{each:.1e} of the loss")
                    for step, value in zip(steps, apart, strict=True)
                ],
                "hovertemplate": hover.TEMPLATE,
                "line": {"color": SYSTEMS[index % len(SYSTEMS)], "width": 1.5},
                "marker": {"color": SYSTEMS[index % len(SYSTEMS)], "size": 5},
            }
        )
    powers = {"type": "log", "exponentformat": "power", "dtick": 1}
    return _over_steps(data, traces, "difference of losses over their size", theme, powers)


def _apart(data: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Steps at which two runs differ, and by how much of the loss."""
    begin, end = entry["first_step"], entry["first_step"] + entry["steps"]
    one, other = (
        losses(run)[begin - run["first_step"] : end - run["first_step"]]
        for run in (data["runs"][name] for name in entry["runs"])
    )
    found = [
        (begin + step, abs(a - b) / (abs(a + b) / 2))
        for step, (a, b) in enumerate(zip(one, other, strict=True))
        if a != b
    ]
    return [step for step, _ in found], [value for _, value in found]


def _over_steps(
    data: Mapping[str, Any],
    traces: Sequence[Mapping[str, Any]],
    title: str,
    theme: Theme,
    axis: Mapping[str, Any],
) -> Figure:
    """Steps from left to right, with the length of documents from where it changes on."""
    longest = max((run["first_step"] + len(run["loss"]) for run in data["runs"].values()), default=0)
    shapes, notes, begin = [], [], 0
    for stage in data["stages"]:
        line = {"color": theme.muted, "width": 1, "dash": "dot"}
        shapes.append({"type": "line", "x0": begin, "x1": begin, "yref": "paper", "y0": 0, "y1": 1, "line": line})
        notes.append(
            {
                "x": begin,
                "yref": "paper",
                "y": 1,
                "xanchor": "left",
                "yanchor": "top",
                "textangle": 90,
                "showarrow": False,
                "text": f"{stage['document']:,} tokens",
                "font": {"size": 11, "color": theme.muted},
            }
        )
        begin += stage["steps"]
    return figure(
        traces,
        theme,
        height=_HEIGHT,
        x_title="step",
        y_title=title,
        legend=True,
        xaxis={"range": [0, longest]},
        yaxis=dict(axis),
        margin=_MARGIN,
        shapes=shapes,
        annotations=notes,
    )
