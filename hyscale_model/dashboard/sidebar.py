"""The controls beside the figures, made from a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from hyscale_model import catalog
from hyscale_model.dashboard.controls import OPEN, Control, Spread, sections, spreads, switches
from hyscale_model.scenario import Resolved

_TITLES: Mapping[str, str] = {
    "workload": "Workload",
    "layout": "Layout",
    "training": "Training",
    "cluster": "Cluster",
    "model": "Model",
}


def build(
    resolved: Resolved, changes: Mapping[str, str], ranges: Mapping[str, str]
) -> tuple[Component, dict[str, Any]]:
    """The controls of a scenario, and what each of them says without changes.

    Args:
        resolved: the scenario, with those changes only that decide which fields there are.
        changes: path -> value as text, of everything that was changed.
        ranges: path -> ends or choices, separated by commas.

    Returns:
        the controls, and ``{"set": path -> value, "range": path -> text, "systems": names}``.
    """
    groups: list[Component] = []
    base: dict[str, str] = {}
    for section, controls in sections(resolved).items():
        groups.append(_group(_TITLES[section], [_control(each, changes) for each in controls], section in OPEN))
        base |= {each.path: each.value for each in controls}
    # What is compared comes after how it runs, before the details of training and hardware.
    place = len(OPEN)
    systems, of_systems = _systems(resolved, changes)
    base |= of_systems
    drawn = spreads(resolved.scenario)
    groups[place:place] = [systems, *([_assumptions(drawn, ranges)] if drawn else [])]
    names = [system.name for system in resolved.scenario.systems]
    return html.Div(groups), {"set": base, "range": {each.path: _spread_text(each) for each in drawn}, "systems": names}


def _group(title: str, content: Sequence[Component], opened: bool, about: str = "") -> Component:
    intro = [html.P(about, className="about")] if about else []
    return html.Details([html.Summary(title), *intro, *content], open=opened, className="group")


def _control(control: Control, changes: Mapping[str, str]) -> Component:
    value = changes.get(control.path, control.value)
    identity = {"kind": "control", "path": control.path}
    entry: Component
    if control.options:
        options = control.options if value in control.options else (value, *control.options)
        entry = dcc.Dropdown(
            id=identity, options=list(options), value=value, clearable=False, searchable=len(options) > 12
        )
    else:
        entry = dcc.Input(id=identity, type="number", value=_number(value), step="any", debounce=0.4)
    label = html.Label([html.Span(control.label), entry], title=control.hint)
    if not control.doubled:
        return html.Div(label, className="control")
    buttons = [
        html.Button(sign, id={"kind": kind, "path": control.path}, className="small", title=f"{word} {control.label}")
        for kind, sign, word in (("halve", "÷2", "Halve"), ("double", "×2", "Double"))
    ]
    return html.Div([label, *buttons], className="control doubled")


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        return float(text) if text else None


def _systems(resolved: Resolved, changes: Mapping[str, str]) -> tuple[Component, dict[str, str]]:
    chosen = [system.name for system in resolved.scenario.systems]
    offered = list(dict.fromkeys([*chosen, *catalog.names("systems")]))
    base: dict[str, str] = {}
    content: list[Component] = [
        dcc.Checklist(id={"kind": "systems", "path": "systems"}, options=offered, value=chosen, className="checks")
    ]
    for system in resolved.scenario.systems:
        controls = switches(resolved, system)
        base |= {each.path: each.value for each in controls}
        inner = [html.Summary(f"Switches of {system.name}"), *(_control(each, changes) for each in controls)]
        content.append(html.Details(inner, className="inner"))
    about = "The first is the baseline, the ablation leads to the last."
    return _group("Systems", content, True, about), base


def _assumptions(drawn: Sequence[Spread], ranges: Mapping[str, str]) -> Component:
    about = "What is not known is drawn. A field set above is no longer drawn."
    return _group("Assumptions", [_spread(each, ranges.get(each.path)) for each in drawn], False, about)


def _spread_text(spread: Spread) -> str:
    if spread.ends is None:
        return ",".join(spread.choices)
    return ",".join(f"{end:g}" for end in spread.ends)


def _spread(spread: Spread, changed: str | None) -> Component:
    identity = {"kind": "range", "path": spread.path}
    values = (changed or _spread_text(spread)).split(",")
    entry: Component
    if spread.ends is None:
        entry = dcc.Checklist(id=identity, options=list(spread.choices), value=values, inline=True, className="checks")
    else:
        assert spread.limits is not None
        low, high = spread.limits
        entry = dcc.RangeSlider(
            id=identity,
            min=low,
            max=high,
            step=_step(high - low),
            marks=None,
            value=[float(value) for value in values],
            allowCross=False,
        )
    name = f"{spread.label}{'' if '*' not in spread.path else ', every system'}"
    return html.Div(
        [html.Span(name, className="name", title=spread.path), entry, html.P(spread.reason, className="about")],
        className="control spread",
    )


def _step(width: float) -> float:
    """A hundredth of a range, rounded to what people write."""
    return float(f"{width / 100:.0e}")
