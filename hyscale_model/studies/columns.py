"""Results of a chunk as a table, one row a point and system: what varies, the verdict, results, marks and reasons."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyscale_model.prediction import TERMS
from hyscale_model.studies.points import BITS, INVALID, VERDICTS, Chunk, Rows, empty, evaluate

# Digits of a number in a line of text: more than any rate has, and half the time of all seventeen.
DIGITS = 12


def table(chunk: Chunk, rows: Rows) -> dict[str, list[Any]]:
    """Results as columns. A result that does not exist is None."""
    count = len(chunk.systems)
    found: dict[str, list[Any]] = {}
    for path in chunk.paths:
        if path in chunk.fixed:
            found[path] = [chunk.fixed[path]] * (chunk.points * count)
        else:
            found[path] = np.repeat(chunk.values[path][:, 0], count).tolist()
    found["system"] = list(chunk.systems) * chunk.points
    found["verdict"] = [VERDICTS[index] for index in rows.verdict.T.ravel().tolist()]
    for name, values in rows.results.items():
        found[name] = [None if value != value else value for value in values.T.ravel().tolist()]
    told = extrapolated_texts(rows)
    found["extrapolated"] = [told[bits] for bits in rows.extrapolated.T.ravel().tolist()]
    found["reason"] = [rows.texts[index] for index in rows.reasons.T.ravel().tolist()]
    return found


def extrapolated_texts(rows: Rows) -> dict[int, str]:
    """Each combination of extrapolated terms that occurs as text: their names with ``;`` between."""
    return {
        bits: ";".join(term for term, bit in zip(TERMS, BITS.tolist(), strict=True) if bits & bit)
        for bits in np.unique(rows.extrapolated).tolist()
    }


def lines(chunk: Chunk, rows: Rows) -> str:
    """The same as lines of CSV without a header, results with ``DIGITS`` significant digits.

    Text is most of a large table's time: names are quoted once, numbers of a system are formatted in one go, and those
    of points that cannot run not at all.
    """
    columns = [
        [_quoted(chunk.fixed[path])] * chunk.points if path in chunk.fixed else _each_quoted(chunk.values[path][:, 0])
        for path in chunk.paths
    ]
    swept = list(map(",".join, zip(*columns, strict=True)))
    reasons, told = [_quoted(text) for text in rows.texts], extrapolated_texts(rows)
    count = len(chunk.systems)
    found = [""] * (chunk.points * count)
    for place, system in enumerate(chunk.systems):
        values = np.stack([each[place] for each in rows.results.values()], axis=1)
        numbers = np.full(chunk.points, "," * (values.shape[1] - 1), dtype=object)
        there = rows.verdict[place] != INVALID
        numbers[there] = _numbers(values[there])
        name = _quoted(system)
        found[place::count] = [
            f"{point},{name},{VERDICTS[verdict]},{number},{told[bits]},{reasons[reason]}\n"
            for point, verdict, number, bits, reason in zip(
                swept,
                rows.verdict[place].tolist(),
                numbers.tolist(),
                rows.extrapolated[place].tolist(),
                rows.reasons[place].tolist(),
                strict=True,
            )
        ]
    return "".join(found)


def _numbers(values: np.ndarray) -> list[str]:
    """Rows of numbers with commas between, nothing for NaN."""
    template = ",".join([f"%.{DIGITS}g"] * values.shape[1]) + "\n"
    text = (template * len(values)) % tuple(values.ravel().tolist())
    return text.replace("nan", "").split("\n")[:-1]


def _each_quoted(values: np.ndarray) -> list[str]:
    """Fields of CSV; of values of one type, each is written once."""
    if values.dtype == object:
        return [_quoted(value) for value in values.tolist()]
    known = {value: _quoted(value) for value in np.unique(values).tolist()}
    return [known[value] for value in values.tolist()]


def _quoted(value: Any) -> str:
    """A value as a field of CSV."""
    if type(value) in (int, float, bool):
        return str(value)
    text = io.StringIO()
    # A lone empty field would be written as a pair of quotes.
    csv.writer(text, lineterminator="").writerow([value, ""])
    return text.getvalue()[:-1]


def evaluate_table(chunk: Chunk) -> dict[str, list[Any]]:
    """``table`` of ``evaluate``."""
    return table(chunk, evaluate(chunk))


def evaluate_csv(chunk: Chunk) -> str:
    """``lines`` of ``evaluate``: written by the worker, so that no other process has to."""
    return lines(chunk, evaluate(chunk))


def column_names(paths: Sequence[str], draws: int) -> list[str]:
    """Names of the columns of ``table``."""
    return [*paths, "system", "verdict", *empty(1, 1, draws).results, "extrapolated", "reason"]
