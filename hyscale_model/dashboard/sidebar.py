"""The controls beside the figures, made from a scenario: plain elements of HTML, which a keyboard reaches everywhere.

Each says what it changes (``data-set``, ``data-range`` or ``data-system``) and what the scenario itself says
(``data-own``), which is all that the page needs to know to tell what was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hyscale_model import catalog
from hyscale_model.dashboard.controls import OPEN, Control, Spread, sections, spreads, switches
from hyscale_model.dashboard.question import NAMED
from hyscale_model.report.markup import Markup, element, joined
from hyscale_model.scenario import Resolved

_TITLES: Mapping[str, str] = {
    "workload": "Workload",
    "layout": "Layout",
    "training": "Training",
    "cluster": "Cluster",
    "model": "Model",
}


def build(resolved: Resolved, changes: Mapping[str, str], ranges: Mapping[str, str]) -> Markup:
    """The controls of a scenario.

    Args:
        resolved: the scenario, with those changes only that decide which fields there are.
        changes: path -> value as text, of everything that was changed.
        ranges: path -> ends or choices, separated by commas.
    """
    groups = [
        _group(_TITLES[section], [_control(each, changes) for each in controls], section in OPEN)
        for section, controls in sections(resolved).items()
    ]
    # What is compared comes after how it runs, before the details of training and hardware.
    place = len(OPEN)
    drawn = spreads(resolved.scenario)
    groups[place:place] = [_systems(resolved, changes), *([_assumptions(drawn, ranges)] if drawn else [])]
    return joined(*groups)


def _group(title: str, content: Sequence[Markup], opened: bool, about: str = "") -> Markup:
    intro = element("p", about, class_="about") if about else None
    return element("details", element("summary", title), intro, *content, open=opened, class_="group")


def _control(control: Control, changes: Mapping[str, str]) -> Markup:
    value = changes.get(control.path, control.value)
    marks: dict[str, str | bool] = {
        "data_set": control.path,
        "data_own": control.value,
        "data_anew": control.path in NAMED,
    }
    entry = _select(control, value, marks) if control.options else _number(value, marks)
    label = element("label", element("span", control.label), entry, title=control.hint)
    if not control.doubled:
        return element("div", label, class_="control")
    buttons = [
        element(
            "button",
            sign,
            type="button",
            class_="small",
            data_scale=control.path,
            data_by=by,
            title=f"{word} {control.label}",
        )
        for by, sign, word in (("0.5", "÷2", "Halve"), ("2", "×2", "Double"))
    ]
    return element("div", label, *buttons, class_="control doubled")


def _select(control: Control, value: str, marks: Mapping[str, str | bool]) -> Markup:
    options = control.options if value in control.options else (value, *control.options)
    return element(
        "select", *(element("option", each, value=each, selected=each == value) for each in options), **marks
    )


def _number(value: str, marks: Mapping[str, str | bool]) -> Markup:
    return element("input", type="number", step="any", value=value, inputmode="decimal", **marks)


def _systems(resolved: Resolved, changes: Mapping[str, str]) -> Markup:
    chosen = [system.name for system in resolved.scenario.systems]
    offered = list(dict.fromkeys([*chosen, *catalog.names("systems")]))
    boxes = [
        element("label", element("input", type="checkbox", value=name, checked=name in chosen, data_system=True), name)
        for name in offered
    ]
    content = [element("div", *boxes, class_="checks")]
    for system in resolved.scenario.systems:
        inner = [_control(each, changes) for each in switches(resolved, system)]
        content.append(element("details", element("summary", f"Switches of {system.name}"), *inner, class_="inner"))
    return _group("Systems", content, True, "The first is the baseline, the ablation leads to the last.")


def _assumptions(drawn: Sequence[Spread], ranges: Mapping[str, str]) -> Markup:
    about = "What is not known is drawn. A field set above is no longer drawn."
    return _group("Assumptions", [_spread(each, ranges.get(each.path)) for each in drawn], False, about)


def _spread(spread: Spread, changed: str | None) -> Markup:
    own = ",".join(spread.choices if spread.ends is None else (f"{end:g}" for end in spread.ends))
    values = (changed or own).split(",")
    name = f"{spread.label}{', every system' if '*' in spread.path else ''}"
    entry: list[str] = []
    if spread.ends is None:
        for choice in spread.choices:
            box = element("input", type="checkbox", value=choice, checked=choice in values)
            entry.append(element("label", box, choice))
    else:
        assert spread.limits is not None
        low, high = (f"{limit:g}" for limit in spread.limits)
        step = f"{(spread.limits[1] - spread.limits[0]) / 100:.0e}"
        for value, which in zip(values, ("from", "to"), strict=False):
            number = element("input", type="number", step=float(step), min=low, max=high, value=value)
            entry.append(element("label", element("span", which), number))
    return element(
        "fieldset",
        element("legend", name, title=spread.path),
        element("div", *entry, class_="checks", data_range=spread.path, data_own=own),
        element("p", spread.reason, class_="about"),
        class_="spread",
    )
