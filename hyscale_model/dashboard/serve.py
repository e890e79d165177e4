"""Serves the dashboard with a real WSGI server."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import waitress

from hyscale_model.dashboard.app import LIMIT_REQUEST_BYTES, create_app
from hyscale_model.errors import InputError

# A browser opens six connections at once; predictions share the interpreter's lock anyway.
THREADS = 8


def serve(host: str = "127.0.0.1", port: int = 8050, scenarios: Path | None = None) -> None:
    """Serve until interrupted.

    Args:
        host: the address to listen on; the default can only be reached from this machine.
        port: the port.
        scenarios: a folder of scenario files to offer.

    Raises:
        InputError: the address cannot be used.
    """
    logging.basicConfig(level=logging.WARNING)
    # A queue for some milliseconds while a page loads its parts is no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server = make_server(host, port, scenarios)
    print(f"Dashboard on http://{host}:{port} (end it with Ctrl-C)", flush=True)
    server.run()


def make_server(host: str, port: int, scenarios: Path | None) -> Any:
    """The server, listening; ``run`` serves.

    Raises:
        InputError: the address cannot be used.
    """
    app = create_app(scenarios)
    try:
        return waitress.create_server(
            app.server,
            host=host,
            port=port,
            threads=THREADS,
            max_request_body_size=LIMIT_REQUEST_BYTES,
            ident="hyscale",
        )
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        raise InputError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}",
            field="--port" if taken else "--host",
            expected="another port, such as --port 8051" if taken else "an address of this machine",
        ) from None
