"""Answers to questions of pages: resolved scenarios and predictions, remembered while they are likely to be asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hyscale_model.dashboard.offer import Offer, Source
from hyscale_model.dashboard.question import Question
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.report.command import command
from hyscale_model.scenario import Assumption, Resolved, read_scenario
from hyscale_model.scenario.stated import stated_yaml

REMEMBERED = 128
_NAME = re.compile(r"[\w+-]+(\.[\w+-]+)*")
_FILE_SUFFIXES = (".yaml", ".yml", ".json")

Uploads = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine says to a question.

    Attributes:
        question: the question.
        source: the scenario it is about.
        resolved: the scenario with every change.
        data: the JSON of its prediction.
        command: what gives the same numbers on the command line.
    """

    question: Question
    source: Source
    resolved: Resolved
    data: dict[str, Any]
    command: str


def answer(question: Question, offer: Offer, uploads: Uploads) -> Answer:
    """Predict what a question asks.

    Raises:
        InputError: the scenario or a change to it cannot be used, as on the command line.
    """
    source = offer.source(question.scenario, uploads)
    resolved = resolve(question, source)
    same = command(source.name, question.systems, overrides(question, source))
    return Answer(question, source, resolved, _predict(question, source), same)


@lru_cache(maxsize=REMEMBERED)
def resolve(question: Question, source: Source) -> Resolved:
    """The scenario of a question with its changes.

    Raises:
        InputError: it cannot be used.
    """
    return _read(question, source, overrides(question, source))


def overrides(question: Question, source: Source) -> tuple[str, ...]:
    """The changes of a question as ``--set`` takes them."""
    return question.overrides(_assumptions(source) if question.ranges else ())


@lru_cache(maxsize=REMEMBERED)
def _assumptions(source: Source) -> tuple[Assumption, ...]:
    return _read(Question(source.name), source, ()).scenario.assumptions


def _read(question: Question, source: Source, changes: tuple[str, ...]) -> Resolved:
    resolved = read_scenario(source.name, overrides=changes, systems=question.systems, text=source.text)
    profile = resolved.scenario.profile
    if source.text is not None and (not _NAME.fullmatch(profile) or profile.endswith(_FILE_SUFFIXES)):
        raise InputError(
            "a scenario given as text cannot refer to other files", source.name, None, "profile", "a profile by name"
        )
    return resolved


@lru_cache(maxsize=REMEMBERED)
def _predict(question: Question, source: Source) -> dict[str, Any]:
    return predict(resolve(question, source)).data


def scenario_text(question: Question, source: Source) -> str:
    """The scenario of a question as YAML, with its changes in it.

    Raises:
        InputError: it cannot be used.
    """
    # What cannot be predicted is no scenario to hand out.
    resolved = resolve(question, source)
    changes = overrides(question, source)
    if resolved.restated:
        # Results reported for the file do not belong to another experiment.
        changes = (*changes, "reported=[]")
    return stated_yaml(source.name, overrides=changes, systems=question.systems, text=source.text)
