"""What a training leaves: one JSON file, written again and again while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hyscale_calibration.training.compare import bits_of, comparisons

KIND = "training"
SCHEMA_VERSION = 1
# Lists of a run with an entry a step, one line each in the file.
_SERIES = ("loss", "index_loss", "selected", "weights", "time_ms")


class Record:
    """Collects steps and writes them.

    Args:
        about: what was trained, how and on what.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = dict(about)
        self.runs: dict[str, dict[str, Any]] = {}
        self.sets: list[dict[str, Any]] = []
        self.selections: list[dict[str, Any]] = []

    def begin(self, name: str, *, system: str, deterministic: bool, first_step: int = 0) -> None:
        """A run that steps will be added to, from the first one on."""
        self.runs[name] = {
            "system": system,
            "deterministic": deterministic,
            "first_step": first_step,
            **{series: [] for series in _SERIES},
            "peak_bytes": None,
            "reselected_otherwise": 0,
        }

    def add(self, name: str, step: Any) -> None:
        """One ``trainer.Step`` of a run."""
        run = self.runs[name]
        run["loss"].append(bits_of(step.loss))
        run["index_loss"].append(bits_of(step.index_loss))
        run["selected"].append(" ".join(step.selected))
        run["weights"].append(step.weights)
        run["time_ms"].append(round(step.time_ms, 3))
        run["reselected_otherwise"] += sum(a != b for a, b in zip(step.selected, step.reselected, strict=True))
        if step.peak_bytes is not None:
            run["peak_bytes"] = max(run["peak_bytes"] or 0, step.peak_bytes)

    def add_sets(self, step: int, pair: Sequence[str], queries: Sequence[int], keys: Sequence[int]) -> None:
        """Sets that were compared themselves: queries of each layer whose sets differ, and keys that only one has."""
        self.sets.append({"step": step, "runs": list(pair), "queries": list(queries), "keys": list(keys)})

    def add_selection(self, step: int, run: str, **layers: Sequence[float]) -> None:
        """What the selections of a step are like: numbers of each layer by name."""
        shown = {name: [round(value, 4) for value in values] for name, values in layers.items()}
        self.selections.append({"step": step, "run": run, **shown})

    def data(self) -> dict[str, Any]:
        """The whole of it, with comparisons of the runs."""
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            **self.about,
            "runs": self.runs,
            "comparisons": comparisons(self.runs),
            "sets": self.sets,
            "selections": self.selections,
        }

    def write(self, path: Path) -> None:
        """Write the file; it is whole at any time."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(dumps(self.data()), encoding="utf-8")
        part.replace(path)


def dumps(data: Mapping[str, Any]) -> str:
    """JSON with a line for every list of a run and every entry of other lists, so that versions can be compared."""
    lines = []
    for key, value in data.items():
        if key == "runs":
            runs = [
                f"  {json.dumps(name)}: {{\n"
                + ",\n".join(f"   {json.dumps(part)}: {json.dumps(held)}" for part, held in run.items())
                + "\n  }"
                for name, run in value.items()
            ]
            lines.append(' "runs": {\n' + ",\n".join(runs) + "\n }")
        elif isinstance(value, list) and value:
            lines.append(f" {json.dumps(key)}: [\n" + ",\n".join(f"  {json.dumps(each)}" for each in value) + "\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
