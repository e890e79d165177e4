"""``hyscale dashboard``: predictions in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Where a checkout, or a folder of one's own, keeps scenarios.
FOLDER = Path("scenarios")


def dashboard(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; the default can only be reached from here.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Port to listen on.")] = 8050,
) -> None:
    """Show predictions in a browser, and what changes when you change something.

    Offers the scenarios of the folder scenarios/ here, or those of the catalogue where there is none.
    """
    from hyscale_model.dashboard.serve import serve

    serve(host, port, FOLDER)
