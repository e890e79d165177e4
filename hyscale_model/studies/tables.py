"""Tables on disk, written as they come: whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.studies.columns import evaluate_csv, evaluate_table
from hyscale_model.studies.points import Chunk
from hyscale_model.whole import replacing

SUFFIXES = (".csv", ".parquet")
# What a worker makes of a chunk for a table, and how it is written.
Work = Callable[[Chunk], Any]


def work_for(path: Path) -> Work:
    """What workers make of a chunk for the table at ``path``: finished lines for CSV, columns for Parquet.

    Raises:
        InputError: another kind of file, or Parquet without pyarrow.
    """
    if path.suffix not in SUFFIXES:
        expected = f"a name that ends in {' or '.join(SUFFIXES)}"
        raise InputError(
            f"{path.suffix or path.name!r} is no kind of table", str(path), field="--output", expected=expected
        )
    if path.suffix == ".csv":
        return evaluate_csv
    _arrow(path)
    return evaluate_table


@contextmanager
def open_table(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Any], None]]:
    """A function that appends what ``work_for`` made of a chunk. The file appears when all is written.

    Raises:
        InputError: the file cannot be written.
    """
    path = path.resolve()
    opened = _csv if path.suffix == ".csv" else _parquet
    try:
        with replacing(path) as unfinished, opened(unfinished, columns) as write:
            yield write
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", str(path), field="--output") from None


@contextmanager
def _csv(path: Path, columns: Sequence[str]) -> Iterator[Callable[[str], None]]:
    with path.open("x", encoding="utf-8", newline="") as file:
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerow(columns)
        file.write(head.getvalue())

        def write(lines: str) -> None:
            file.write(lines)

        yield write


@contextmanager
def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Callable[[dict[str, list[Any]]], None]]:
    arrow = _arrow(path)
    import pyarrow.parquet as parquet

    writer: Any = None
    schema: Any = None

    def write(table: dict[str, list[Any]]) -> None:
        nonlocal writer, schema
        if writer is None:
            schema = arrow.schema([(name, _kind(arrow, name, values)) for name, values in table.items()])
            writer = parquet.ParquetWriter(path, schema)
        columns = {name: _as(schema.field(name).type, arrow, values) for name, values in table.items()}
        writer.write_table(arrow.table(columns, schema=schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _kind(arrow: Any, name: str, values: Sequence[Any]) -> Any:
    """The type of a column, by its first values: results are numbers, names text, swept values as they are."""
    if name in ("system", "verdict", "extrapolated", "reason"):
        return arrow.string()
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return arrow.bool_()
    if kinds == {int}:
        return arrow.int64()
    return arrow.float64() if kinds <= {int, float} else arrow.string()


def _as(kind: Any, arrow: Any, values: Sequence[Any]) -> Any:
    if kind == arrow.string():
        return arrow.array([None if value is None else str(value) for value in values], kind)
    if kind == arrow.float64():
        return arrow.array([None if value is None else float(value) for value in values], kind)
    return arrow.array(values, kind)


def _arrow(path: Path) -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        expected = "pip install 'hyscale-model[parquet]', or a name that ends in .csv"
        raise InputError("Parquet needs pyarrow", str(path), field="--output", expected=expected) from None
    return pyarrow
