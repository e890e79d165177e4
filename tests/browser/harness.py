"""What tests and tools of the dashboard share: a browser, a server, and when a page is done."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import waitress

from hyscale_model.dashboard.app import create_app
from hyscale_model.dashboard.serve import THREADS

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
LACKING = f"none of {', '.join(NAMES)} is here. Debian and Ubuntu: apt-get update && apt-get install chromium"
# Inside a container there is no sandbox to be had, and the page is our own.
OPTIONS = ("--no-sandbox",)


def chromium() -> str | None:
    """The browser's path."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def served(app: Any = None) -> Iterator[str]:
    """The address of the dashboard on a free port, served as ``hyscale dashboard`` serves it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    application = app or create_app(ROOT / "scenarios").server
    server = waitress.create_server(application, host="127.0.0.1", port=port, threads=THREADS)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{port}/"
    server.close()


def watch(page: Any, address: str) -> list[str]:
    """What the browser complains about from now on, as a list that grows."""
    complaints: list[str] = []

    def elsewhere(url: str) -> list[str]:
        return [] if url.startswith((address, "data:", "blob:")) else [url]

    def failed(request: Any) -> list[str]:
        # A page that is left gives up what it asked for.
        return [] if request.failure == "net::ERR_ABORTED" else [f"failed: {request.url}"]

    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.extend(failed(request)))
    page.on("request", lambda request: complaints.extend(elsewhere(request.url)))
    return complaints


def settled(page: Any) -> None:
    """Wait until the page shows the answer to what it asked, with its controls and figures."""
    page.wait_for_selector('#view[aria-busy="false"]')
    page.wait_for_selector("#sidebar details", state="attached")
    page.wait_for_function(
        "Array.from(document.querySelectorAll('.figure')).every(each => each.querySelector('.main-svg'))"
    )
