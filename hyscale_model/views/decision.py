"""Decision: port, flip a flag or measure first, with what it costs and what stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyscale_model import figures
from hyscale_model.errors import InputError
from hyscale_model.report.decision import FITS, HINTS, ROWS, SAID
from hyscale_model.report.markup import Markup, element
from hyscale_model.report.units import NOTHING, percent, seconds, significant
from hyscale_model.studies.decision import decide
from hyscale_model.views.cards import Card, Choice, sentences, table
from hyscale_model.views.page import Page

TOKENS: Mapping[str, str] = {
    "1e9": "1 billion",
    "1e10": "10 billion",
    "1e11": "100 billion",
    "1e12": "1 trillion",
    "1e13": "10 trillion",
}
USUAL = "1e11"


def build(page: Page) -> list[Card]:
    """The answer with the sheet, what each technique brings in every order, and what to do."""
    tokens = page.options.get("tokens", USUAL)
    tokens = tokens if tokens in TOKENS else USUAL
    try:
        data = decide(page.resolved, tokens=float(tokens), draws=page.data["draws"], seed=page.data["seed"])
    except InputError as error:
        # A scenario that can be predicted, but is no decision: one system, one layer.
        about = f"Nothing to decide: {error.problem}. A decision needs {error.expected}."
        return [Card(name="nothing", title="Decision", about=about, wide=True)]
    cards = [
        Card(
            name="decision",
            title="Port, or flip a flag?",
            about=f"What hyscale decide says of {TOKENS[tokens]} tokens on {data['gpus']:,} GPUs.",
            choices=(Choice("tokens", "Tokens to train", TOKENS, tokens),),
            content=(element("p", _answer(data), class_="answer"), _sheet(data), sentences(_unknown(data))),
            csv="decision",
            wide=True,
        )
    ]
    if data["techniques"]:
        cards.append(
            Card(
                name="techniques",
                title="What each change brings",
                about="What a technique seems to bring depends on what is there already; this is every order.",
                figure=figures.techniques(data, page.theme),
                wide=True,
            )
        )
    if data["work"]:
        steps = [f"{step['change']}: {step['what']}" for step in data["work"]]
        cards.append(
            Card(name="work", title="What to do", about="For each change.", content=(sentences(steps),), wide=True)
        )
    return cards


def _answer(data: Mapping[str, Any]) -> str:
    answer = data["answer"]
    gain = answer["gain"]
    said = SAID[answer["answer"]].format(
        target=answer["target"],
        without=answer["without_port"],
        low=gain["p10"],
        high=gain["p90"],
        worth=answer["worth"],
    )
    if answer["target_fits"] == "fits":
        return said
    return f"{said} In this layout {answer['target']} {FITS[answer['target_fits']]}."


def _sheet(data: Mapping[str, Any]) -> Markup:
    systems = data["systems"]
    lines = [[title, *(show(system) for system in systems.values())] for title, show in ROWS]
    known = [line for line in lines if any(cell != NOTHING for cell in line[1:])]
    return table("decision", ["", *systems], known)


def _unknown(data: Mapping[str, Any]) -> list[str]:
    """What is not told, and what the rest assumes."""
    operation = data["operation"]
    low, high = operation["power_share"]
    missing = [
        hint
        for title, show in ROWS
        if (hint := HINTS.get(title)) and all(show(system) == NOTHING for system in data["systems"].values())
    ]
    texts = [f"Not told, since not known: {', '.join(missing)}."] if missing else []
    return [
        *texts,
        f"Assumed: {significant(1e6 * operation['failures_per_gpu_hour'], 3)} failures in a million GPU-hours "
        f"(Llama 3 405B), {seconds(operation['restart_s'])} to restart, a checkpoint every "
        f"{seconds(operation['checkpoint_s'])}; boards at {percent(low)} to {percent(high)} of their power limit, "
        "hosts, network and cooling left out.",
    ]
