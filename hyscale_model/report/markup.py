"""HTML from Python: elements whose text and attributes are escaped, so that nothing a user wrote becomes markup."""

from __future__ import annotations

from html import escape

_VOID = frozenset({"input", "meta", "br"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *content: str | None, **attributes: str | bool | float | None) -> Markup:
    """An element.

    Args:
        tag: its name.
        content: what is in it, in order; plain text is escaped, None left out.
        attributes: by name, with ``_`` for ``-`` and a ``_`` behind names that Python keeps (``class_``); True stands
            alone, False and None are left out.
    """
    return Markup(f"<{tag}{_attributes(attributes)}>" + ("" if tag in _VOID else f"{joined(*content)}</{tag}>"))


def joined(*content: str | None) -> Markup:
    """Contents one after another."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in content if part is not None))


def _attributes(attributes: dict[str, str | bool | float | None]) -> str:
    parts = []
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    return "".join(parts)
