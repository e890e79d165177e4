"""``hyscale schema``: the JSON Schema of a scenario file."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    as_json: Annotated[bool, typer.Option("--json", help="Accepted as everywhere; the output is JSON anyway.")] = False,
) -> None:
    """Print the JSON Schema of a scenario file."""
    import json

    from hyscale_model.scenario import scenario_json_schema

    typer.echo(json.dumps(scenario_json_schema(), indent=2, ensure_ascii=False, allow_nan=False))
