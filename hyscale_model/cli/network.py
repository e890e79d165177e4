"""``hyscale network``: what crosses which link in a step, what waits for it and what hides it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hyscale_model.cli.outcome import say
from hyscale_model.errors import InputError


def network(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario file (YAML), or - for stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write the JSON to this file too.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="PATH", help="Draw the graph of the last system here.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show and draw this parallel group alone, such as cp or ep.")
    ] = None,
    system: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these systems; repeatable.")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Replace a field; repeatable.")
    ] = None,
) -> None:
    """The communication graph of a scenario: bytes on every link, the bottleneck, exposed and hidden seconds."""
    from hyscale_model.cli.files import read, write_text
    from hyscale_model.report import dumps, make_console
    from hyscale_model.report.network import render_network
    from hyscale_model.traffic import traffic

    resolved = read(file, override or (), system or ())
    systems = {each.name: traffic(resolved, each.name) for each in resolved.scenario.systems}
    data = {"schema_version": 1, "scenario": resolved.scenario.name, "systems": systems}
    last = list(systems.values())[-1]
    if group is not None and group not in last["groups"]:
        known = ", ".join(last["groups"]) or "no group sends anything"
        raise InputError(f"group {group} sends nothing in {last['system']}", field="--group", expected=known)
    text = dumps(data)
    if as_json:
        typer.echo(text)
    else:
        render_network(data, make_console(), group)
    if output is not None:
        write_text(output, text + "\n")
        say(f"wrote {output}")
    if html is not None:
        import plotly.graph_objects as go

        from hyscale_model.figures import LIGHT
        from hyscale_model.figures import network as drawn

        what = "all groups" if group is None else group.upper()
        title = (
            f"{last['system']}: bytes (width) and load (colour) of the links of one of {last['nodes']} nodes in a step"
        )
        figure = go.Figure(drawn(last, LIGHT, group)).update_layout(title=f"{title}, {what}", margin={"t": 60})
        write_text(html, figure.to_html(include_plotlyjs=True), "--html")
        say(f"wrote {html}")
