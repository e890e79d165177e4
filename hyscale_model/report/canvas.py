"""The few drawing tools the reports share. They need no colour and no box characters to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, TypeVar

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Only the line under the head is drawn, with a character every terminal and file has.
_UNDERLINE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)

T = TypeVar("T")
_EIGHTHS = " ▏▎▍▌▋▊▉"

WIDE = 110


def make_console(file: IO[str] | None = None, *, width: int | None = None, record: bool = False) -> Console:
    """A console that takes text as it is: markup, emoji codes and highlighting in user text mean nothing."""
    return Console(file=file, width=width, record=record, markup=False, emoji=False, highlight=False, soft_wrap=False)


def printable(text: Any) -> str:
    """Text of a user without control characters, which could drive the terminal."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def blocks_allowed(console: Console) -> bool:
    """Whether the output can carry block characters."""
    return (console.encoding or "").lower().replace("-", "").startswith("utf")


def bar(share: float, width: int, *, blocks: bool = True) -> str:
    """A bar of ``width`` characters, ``share`` of it filled, in steps of an eighth of a character."""
    share = min(max(share, 0.0), 1.0)
    if not blocks:
        return ("#" * round(share * width)).ljust(width)
    eighths = round(share * width * 8)
    # A share that is not zero stays visible.
    eighths = max(eighths, 1) if share > 0 else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def plain_table(
    head: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: Sequence[int] = (0,), fold: Sequence[int] = ()
) -> Table:
    """A table of text: columns in ``left`` start left, the others end right; those in ``fold`` may wrap."""
    table = Table(box=_UNDERLINE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for index, title in enumerate(head):
        table.add_column(
            title,
            justify="left" if index in left else "right",
            no_wrap=index not in fold,
            overflow="fold" if index in fold else "ellipsis",
        )
    for row in rows:
        table.add_row(*row)
    return table


def noun(data: Mapping[str, Any]) -> str:
    """What a prediction is of: a step, or one layer."""
    scope = (data.get("scenario") or {}).get("scope")
    return f"{scope['layer']} layer" if isinstance(scope, Mapping) else "step"


def heading(console: Console, text: str) -> None:
    """A section title with an empty line above."""
    console.print()
    console.print(Text(text, style="bold cyan"))


def sentence(console: Console, text: str, style: str = "") -> None:
    """Running text, wrapped at the width of the console."""
    console.print(Text(printable(text), style=style))


def in_groups(names: Sequence[T], each: int) -> Iterable[Sequence[T]]:
    """``names`` in runs of at most ``each``."""
    each = max(1, each)
    return (names[start : start + each] for start in range(0, len(names), each))
