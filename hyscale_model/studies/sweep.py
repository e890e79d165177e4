"""A sweep: every point of the axes of a scenario, chunk by chunk, so that memory does not grow with the points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyscale_model.batch import assign
from hyscale_model.errors import InputError
from hyscale_model.scenario.assumptions import for_each_system
from hyscale_model.scenario.references import REFERENCES
from hyscale_model.scenario.resolve import Resolved
from hyscale_model.studies.axes import MOST_POINTS, Axes
from hyscale_model.studies.columns import column_names, table
from hyscale_model.studies.points import Chunk, Run, here

# Values (points times columns of draws) that are evaluated at once: enough to amortise Python, few enough to stay in
# the caches.
CHUNK_VALUES = 8192
REFERENCE_PATHS = frozenset(".".join(path) for path in REFERENCES)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A scenario and the axes it is swept over.

    Attributes:
        resolved: the scenario at its own values.
        axes: what varies.
        draws, seed: of the intervals; 0 draws: nominal values alone.
    """

    resolved: Resolved
    axes: Axes
    draws: int
    seed: int

    @classmethod
    def of(cls, resolved: Resolved, draws: int = 64, seed: int = 0, most: int = MOST_POINTS) -> Sweep:
        """The sweep that a scenario's ``sweep`` and ``zip`` ask for.

        Raises:
            InputError: nothing is swept, or more than ``most`` points.
        """
        return cls(resolved, Axes.of(resolved.scenario, resolved.file, most), draws, seed)

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, each of which has a row a point."""
        return tuple(system.name for system in self.resolved.scenario.systems)

    def collect(self, run: Run | None = None) -> dict[str, Any]:
        """All points as the JSON of ``hyscale sweep``; ``run`` evaluates chunks, None: here."""
        rows: list[dict[str, Any]] = []
        for chunk, result in (run or here)(self.chunks()):
            columns = table(chunk, result)
            rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return self.as_json(rows)

    def as_json(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The JSON of ``hyscale sweep`` with these rows."""
        return {
            "schema_version": 1,
            "name": self.resolved.scenario.name,
            "draws": self.draws,
            "seed": self.seed,
            "points": self.axes.count,
            "systems": list(self.systems),
            "axes": list(self.axes.paths),
            "columns": column_names(self.axes.paths, self.draws),
            "rows": rows,
        }

    def chunks(self) -> Iterator[Chunk]:
        """All points in order, in pieces."""
        size = max(1, CHUNK_VALUES // (self.draws + 1))
        by_name: dict[tuple[tuple[str, Any], ...], Resolved | str] = {}
        for fixed in self.axes.each_variant():
            named = tuple((path, value) for path, value in fixed.items() if path in REFERENCE_PATHS)
            if named not in by_name:
                by_name[named] = self._again(named)
            base = by_name[named]
            plain = self._each({path: value for path, value in fixed.items() if path not in REFERENCE_PATHS})
            scenario = None if isinstance(base, str) else base.linked(assign(base.scenario, plain))
            for start in range(0, self.axes.inside, size):
                stop = min(start + size, self.axes.inside)
                values = self.axes.columns(start, stop)
                yield Chunk(
                    scenario=scenario,
                    systems=self.systems,
                    paths=self.axes.paths,
                    fixed=fixed,
                    values=values,
                    points=stop - start,
                    draws=self.draws,
                    seed=self.seed,
                    problem=base if isinstance(base, str) else "",
                )

    def _again(self, named: tuple[tuple[str, Any], ...]) -> Resolved | str:
        """The scenario with other entries of the catalogue, or why there is none."""
        if not named:
            return self.resolved
        try:
            return self.resolved.again([f"{path}={value}" for path, value in named])
        except InputError as error:
            return str(error)

    def _each(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {each: value for path, value in values.items() for each in for_each_system(path, self.systems)}
