"""``hyscale catalog``: the facts the model knows, each with its source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from hyscale_model.errors import InputError

# Where a model's keys and FLOP of one token are told: the last one of a million.
POSITION = 1048576

# What a table of GPUs shows.
GPU_FIELDS = (
    "architecture",
    "sms",
    "boost_hz",
    "bf16_flops",
    "fp8_flops",
    "hbm_bytes_per_s",
    "memory_bytes",
    "nvlink_bytes_per_s",
)

ALL_KINDS = ("models", "gpus", "clusters", "systems", "profiles", "published", "kernels")


def catalog(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=f"One of {', '.join(ALL_KINDS)}; all when left out.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this entry with its sources.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
) -> None:
    """List catalogue entries, or one with its sources."""
    show = _show_listing
    if kind is None:
        data: dict[str, Any] = {each: listing(each) for each in ALL_KINDS if names(each)}
    elif name is None:
        data = {kind: listing(kind)}
        if kind in FIGURES and data[kind]:
            data = {kind: [{**each, **FIGURES[kind](each["name"])} for each in data[kind]]}
            show = _show_table
    else:
        data = describe(kind, name)
        show = _show_entry
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=list))
    else:
        show(data)


def names(kind: str) -> Sequence[str]:
    """Names of a kind, measured profiles among them; none where this installation has no such files."""
    from hyscale_model import catalog as facts

    try:
        found = tuple(facts.names(kind))
    except InputError:
        return ()
    return (*found, *_measured()) if kind == "profiles" else found


def _measured() -> Mapping[str, Any]:
    """Measured profiles by name: their contents, or what is wrong with them."""
    from hyscale_model.catalog import measured

    found: dict[str, Any] = {}
    for name, path in measured.paths().items():
        try:
            found[name] = measured.read(path)
        except InputError as error:
            found[name] = error
    return found


def _describe_measured(name: str, data: Any) -> dict[str, Any]:
    """A measured profile: what it was measured on, how much, and how well its fits predict."""
    if isinstance(data, InputError):
        return {"kind": "profiles", "name": name, "description": f"cannot be used: {data}", "extends": None} | {
            "source": None,
            "values": {},
        }
    fits = data.get("fits") or {}
    held = fits.get("held_out") or {"n": 0}
    cards = sorted({str(identity.get("name")) for identity in data.get("machines", {}).values()})
    errors = f", held-out errors {held['median']:.1%} median, {held['p95']:.1%} at the 95th" if held["n"] else ""
    description = f"measured on {', '.join(cards)}: {len(data['measurements'])} points{errors}"
    values: dict[str, Any] = {
        "gpu": data.get("gpu"),
        "machines": data.get("machines"),
        "collectives": "measured" if data["collectives"]["measured"] else data["collectives"]["reason"],
        **{family: entry["coefficients"] for family, entry in (fits.get("families") or {}).items()},
    }
    source = "hyscale calibrate"
    shown = {field: {"value": value, "source": source} for field, value in values.items()}
    head = {"description": description, "extends": None, "source": source}
    return {"kind": "profiles", "name": name, **head, "values": shown}


def listing(kind: str) -> list[dict[str, Any]]:
    """Name and description of every file of a kind.

    Raises:
        InputError: there is no such kind.
    """
    from hyscale_model import catalog as facts

    found = facts.names(kind)
    found = (*found, *_measured()) if kind == "profiles" else found
    return [{"name": name, "description": describe(kind, name)["description"]} for name in found]


def model_figures(name: str) -> dict[str, Any]:
    """Parameters of a model, what one token meets at ``POSITION``, and its layers by kind."""
    from hyscale_model.families import anatomy, count_parameters, keys_at, token_flops
    from hyscale_model.scenario.convert import model_adapter

    model = model_adapter().validate_python({"name": name, **_fields("models", name)})
    built = anatomy(model)
    parameters = count_parameters(built)
    # Learned positions end; a token beyond them cannot be.
    reached = getattr(model, "max_position_embeddings", POSITION) >= POSITION
    keys = keys_at(built, POSITION) if reached else {}
    flops = token_flops(built, POSITION) if reached else None
    return {
        "parameters": parameters.total,
        "active_parameters": parameters.active,
        "position": POSITION,
        "keys_scored": keys.get("scored"),
        "keys_attended": keys.get("attended"),
        "token_flops": flops and {"weights": flops.weights, "scores": flops.scores, "attention": flops.attention},
        "layers": {
            "attention": dict(Counter(attention for attention, _ in built.layers)),
            "feed_forward": dict(Counter(feed_forward for _, feed_forward in built.layers)),
        },
    }


def gpu_figures(name: str) -> dict[str, Any]:
    """Peaks of a GPU; None where there is none."""
    fields = _fields("gpus", name)
    return {field: fields.get(field) for field in GPU_FIELDS}


# Kinds whose entries are listed with figures.
FIGURES: Mapping[str, Callable[[str], dict[str, Any]]] = {"models": model_figures, "gpus": gpu_figures}


def _fields(kind: str, name: str) -> dict[str, Any]:
    from hyscale_model import catalog as facts

    entry = facts.entry(kind, name)
    base = _fields(kind, entry.extends) if entry.extends else {}
    return {**base, **entry.values}


def describe(kind: str, name: str) -> dict[str, Any]:
    """One file: its values, and for each the source, its own or that of the whole file.

    Raises:
        InputError: there is no such kind or name.
    """
    from hyscale_model import catalog as facts

    if kind == "profiles" and name not in facts.names(kind):
        measured = _measured()
        if name in measured:
            return _describe_measured(name, measured[name])
    if kind in facts.KINDS:
        entry = facts.entry(kind, name)
        values, sources = entry.values, dict(entry.sources or {})
        head = {"description": entry.description, "extends": entry.extends, "source": entry.source}
    else:
        # Tables of published results and profiles are no lists of fields: shown as they are written.
        values, sources = dict(facts.document(kind, name).root.plain()), {}
        head = {key: values.pop(key, None) for key in ("description", "extends", "source")}
    shown = {field: {"value": value, "source": sources.get(field, head["source"])} for field, value in values.items()}
    return {"kind": kind, "name": name, **head, "values": shown}


def _show_listing(data: Mapping[str, Any]) -> None:
    from hyscale_model.report.canvas import heading, make_console, plain_table, printable, sentence

    console = make_console()
    for kind, entries in data.items():
        heading(console, kind)
        if not entries:
            sentence(console, "none", "dim")
            continue
        rows = [[printable(entry["name"]), printable(entry["description"] or "")] for entry in entries]
        console.print(plain_table(["name", "description"], rows, left=(0, 1), fold=(1,)))


def _show_table(data: Mapping[str, Any]) -> None:
    from hyscale_model.report.canvas import make_console
    from hyscale_model.report.catalog import render_gpus, render_models

    ((kind, entries),) = data.items()
    {"models": render_models, "gpus": render_gpus}[kind](entries, make_console())


def _show_entry(data: Mapping[str, Any]) -> None:
    from hyscale_model.report.canvas import make_console, plain_table, printable, sentence

    console = make_console()
    sentence(console, f"{data['name']}: {data['description'] or ''}", "bold")
    if data["extends"]:
        sentence(console, f"extends {data['extends']}")
    if data["source"]:
        sentence(console, f"source: {data['source']}")
    rows = []
    for field, fact in data["values"].items():
        # A source that stands above already is not repeated on every line.
        own = "" if fact["source"] == data["source"] else fact["source"]
        rows.append([printable(field), printable(_text(fact["value"])), printable(own)])
    if rows:
        console.print()
        console.print(
            plain_table(["field", "value", "source, where it has its own"], rows, left=(0, 1, 2), fold=(1, 2))
        )


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float) and value.is_integer():
        return f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
