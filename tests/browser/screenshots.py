"""Pictures of every view for the documents: ``python tests/browser/screenshots.py [FOLDER]``."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from hyscale_model.dashboard.offer import FIRST
from hyscale_model.dashboard.serve import make_server

ROOT = Path(__file__).parents[2]
PINNED = f"pinned=scenario%3D{FIRST}"
# Name of the picture -> what it shows, how wide and high, in which theme.
PICTURES = {
    "what-if": (f"layout.vpp=3&training.index_precision=fp8&{PINNED}", 1280, 900, "light"),
    "breakdown": ("view=breakdown", 1280, 900, "dark"),
    "memory": ("view=memory", 1280, 900, "light"),
    "selection": ("view=selection", 1280, 900, "light"),
    "timeline": ("view=timeline", 1280, 720, "dark"),
    "sensitivity": ("view=sensitivity", 1280, 900, "dark"),
    "decision": ("view=decision", 1280, 900, "light"),
    "evidence": ("view=evidence", 1280, 900, "light"),
    "telephone": (f"layout.vpp=3&{PINNED}", 390, 844, "light"),
}


def main(arguments: list[str]) -> int:
    """Take every picture."""
    folder = Path(arguments[0] if arguments else ROOT / "docs" / "images")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        print("No Chromium here. Debian and Ubuntu: apt-get install chromium", file=sys.stderr)
        return 2
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = make_server("127.0.0.1", port, ROOT / "scenarios")
    threading.Thread(target=server.run, daemon=True).start()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (query, width, height, theme) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(f"http://127.0.0.1:{port}/?scenario={FIRST}&{query}")
            page.wait_for_selector("#headline strong")
            page.wait_for_function(
                "document.querySelectorAll('.figure').length > 0 && "
                "Array.from(document.querySelectorAll('.figure')).every(each => each.querySelector('.main-svg'))"
            )
            page.wait_for_timeout(500)
            page.screenshot(path=folder / f"dashboard-{name}.png")
            print(f"wrote {folder / f'dashboard-{name}.png'}")
            page.close()
        browser.close()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
