"""Pictures of every view for the documents: ``python tests/browser/screenshots.py [FOLDER]``."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import LACKING, OPTIONS, ROOT, chromium, served, settled
from playwright.sync_api import sync_playwright

from hyscale_model.dashboard.offer import FIRST

PINNED = f"pinned=scenario%3D{FIRST}"
# Name of the picture -> what it shows, how wide and high, in which theme.
PICTURES = {
    "what-if": (f"layout.vpp=3&training.index_precision=fp8&{PINNED}", 1280, 900, "light"),
    "breakdown": ("view=breakdown", 1280, 900, "dark"),
    "memory": ("view=memory", 1280, 900, "light"),
    "selection": ("view=selection", 1280, 900, "light"),
    "network": ("view=network", 1280, 720, "dark"),
    "timeline": ("view=timeline", 1280, 720, "dark"),
    "sweep": ("view=sweep", 1280, 900, "light"),
    "search": ("view=sweep&view.search=on", 1280, 900, "light"),
    "sensitivity": ("view=sensitivity", 1280, 900, "dark"),
    "decision": ("view=decision", 1280, 900, "light"),
    "calibration": ("view=calibration&view.family=index_scoring.filter", 1280, 900, "light"),
    "evidence": ("view=evidence", 1280, 900, "light"),
    "training": ("view=evidence", 1280, 900, "light"),
    "telephone": (f"layout.vpp=3&{PINNED}", 390, 844, "light"),
}
# Where a picture begins, if not at the top of the page.
SCROLLED = {"search": "#head-front", "training": "#head-training-losses"}
# A search takes seconds, on a busy machine many.
PATIENCE_MS = 180_000


def main(arguments: list[str]) -> int:
    """Take every picture."""
    folder = Path(arguments[0] if arguments else ROOT / "docs" / "images")
    path = chromium()
    if path is None:
        print(LACKING, file=sys.stderr)
        return 2
    with served() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=OPTIONS)
        for name, (query, width, height, theme) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(f"{address}?scenario={FIRST}&{query}")
            settled(page)
            page.wait_for_function("document.querySelectorAll('[data-job]').length === 0", timeout=PATIENCE_MS)
            settled(page)
            page.wait_for_timeout(800)
            if name in SCROLLED:
                page.evaluate(
                    """(place) => window.scrollTo(0, document.querySelector(place).getBoundingClientRect().top
                        + window.scrollY - document.querySelector("header").offsetHeight - 20)""",
                    SCROLLED[name],
                )
                page.wait_for_timeout(300)
            page.screenshot(path=folder / f"dashboard-{name}.png")
            print(f"wrote {folder / f'dashboard-{name}.png'}", flush=True)
            page.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
