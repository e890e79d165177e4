"""Sensitivity: which unknown moves the speed-up, what would leave no gain, and from which length each change pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.errors import InputError
from hyscale_model.report.markup import Markup
from hyscale_model.report.units import NOTHING, or_nothing, ratio, seconds, tokens
from hyscale_model.studies.sensitivity import sensitivity
from hyscale_model.views.cards import Card, sentences, table, told
from hyscale_model.views.page import Page


def build(page: Page) -> list[Card]:
    """A tornado of the unknowns, and two tables."""
    try:
        data = sensitivity(page.resolved, draws=page.data["draws"], seed=page.data["seed"])
    except InputError as error:
        # A scenario that can be predicted, but compares nothing.
        about = f"Nothing to compare: {error.problem}. This view needs {error.expected}."
        return [Card(name="nothing", title="Sensitivity", about=about, wide=True)]
    name = str(data["metric"]).removeprefix("speedup.").replace("/", " over ")
    against = data["all_against"]
    ending = "and still a gain" if against["holds"] else "no gain is left"
    cards: list[Card] = []
    if data["inputs"]:
        cards.append(
            Card(
                name="tornado",
                title=f"What moves {name}",
                about=f"Nominal {ratio(data['nominal'])}; each unknown alone, from the 10th to the 90th percentile.",
                figure=figures.tornado(data, page.theme),
                content=(sentences([f"All of them against it at once: {ratio(against['speedup'])}, {ending}."]),),
                wide=True,
            )
        )
    if data["vanishes"]:
        cards.append(
            Card(
                name="vanishes",
                title="What would have to be true for no gain at all",
                about="Parts of the first system's step, and how fast each alone would have to be.",
                content=(_vanishing(data),),
                csv="vanishes",
                wide=True,
            )
        )
    if data["break_even"]:
        cards.append(
            Card(
                name="break-even",
                title="From which sequence length on each change pays",
                about="Each change alone on the first system; it pays where it is worth 1 %, surely where the 10th "
                "percentile is.",
                content=(_lengths(data),),
                csv="break-even",
                wide=True,
            )
        )
    return cards


def _vanishing(data: Mapping[str, Any]) -> Markup:
    rows = [
        [
            row["part"],
            seconds(row["seconds"]),
            "even 0 s would leave a gain" if row["needed_s"] is None else seconds(row["needed_s"]),
            NOTHING if row["times_faster"] is None else f"{row['times_faster']:.1f} times faster",
        ]
        for row in data["vanishes"]
    ]
    return table("vanishes", ["part", "is", "would have to be", ""], rows)


def _lengths(data: Mapping[str, Any]) -> Markup:
    lengths = [gain["tokens"] for gain in data["break_even"][0]["gains"]]
    rows = []
    for row in data["break_even"]:
        gains = [
            told(ratio(gain["nominal"]), f"80 % of the draws: {ratio(gain['p10'])} to {ratio(gain['p90'])}")
            for gain in row["gains"]
        ]
        surely = [or_nothing(row[key], tokens) for key in ("from_tokens", "sure_from_tokens")]
        rows.append([row["change"], *surely, *gains])
    return table("break-even", ["change", "from", "surely from", *map(tokens, lengths)], rows)
