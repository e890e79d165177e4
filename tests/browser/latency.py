"""How long a change takes to show, view by view: ``python tests/browser/latency.py [CHANGES]``.

From the change of a control to the frame in which the first figure is drawn anew, and to that of the last one, medians
in headless Chromium at 1280 pixels; and what the server computes for it, as time of its own thread.
"""

from __future__ import annotations

import socket
import statistics
import sys
import threading
import time
from pathlib import Path

import flask
import waitress
from playwright.sync_api import sync_playwright

from hyscale_model.dashboard.app import create_app
from hyscale_model.dashboard.offer import FIRST
from hyscale_model.dashboard.serve import THREADS
from hyscale_model.views import VIEWS

ROOT = Path(__file__).parents[2]
BAR_MS = 300
# Changes a control, then waits for the frames in which figures in sight, and the last of all, show something else.
MEASURE = """([entry, value]) => new Promise((done) => {
  const plots = Array.from(document.querySelectorAll(".js-plotly-plot"));
  const seen = (plot) => {
    const place = plot.getBoundingClientRect();
    return place.top < window.innerHeight && place.bottom > 0;
  };
  const texts = () => Array.from(document.querySelectorAll("#headline, #view .told")).map((e) => e.textContent).join();
  const before = texts();
  let first = null, last = null, told = null;
  const start = performance.now();
  const stamp = () => requestAnimationFrame(() => {
    last = performance.now() - start;
  });
  plots.forEach((plot) => plot.on("plotly_afterplot", () => {
    if (first === null && seen(plot)) requestAnimationFrame(() => { first = first ?? performance.now() - start; });
    stamp();
  }));
  entry.value = value;
  entry.dispatchEvent(new Event("change", { bubbles: true }));
  const wait = () => {
    const now = performance.now() - start;
    if (told === null && texts() !== before) told = now;
    // Where no figure has news, texts are all there is to see.
    if (first === null && told !== null && now - told > 500) first = told;
    if ((first !== null && now - Math.max(first, last) > 500) || now > 5000) {
      plots.forEach((plot) => plot.removeAllListeners("plotly_afterplot"));
      done([first ?? now, last ?? first ?? now]);
    } else requestAnimationFrame(wait);
  };
  requestAnimationFrame(wait);
})"""


def main(arguments: list[str]) -> int:
    """Measure every view."""
    changes = int(arguments[0]) if arguments else 12
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = create_app(ROOT / "scenarios").server
    spent: list[float] = []

    def begin() -> None:
        flask.g.began = time.thread_time()

    def end(response: flask.Response) -> flask.Response:
        spent.append(1e3 * (time.thread_time() - flask.g.began))
        return response

    app.before_request(begin)
    app.after_request(end)
    server = waitress.create_server(app, host="127.0.0.1", port=port, threads=THREADS)
    threading.Thread(target=server.run, daemon=True).start()
    print(f"{'view':12s} {'shown':>7s} {'all':>7s} {'server CPU':>11s}")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for place, name in enumerate(VIEWS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(
                f"http://127.0.0.1:{port}/?scenario={FIRST}&view={name}&cluster.nic_efficiency={0.7 + 0.01 * place:.2f}"
            )
            page.wait_for_selector("#headline strong")
            page.wait_for_selector("#sidebar details", state="attached")
            page.wait_for_selector(".figure .main-svg")
            page.wait_for_timeout(1500)
            shown, whole, cpu = [], [], []
            for number in range(1, changes + 1):
                spent.clear()
                entry = page.locator('[data-set="workload.sequence_length"]').element_handle()
                # Lengths that nobody asked about, so that no answer is remembered.
                first, last = page.evaluate(MEASURE, [entry, str((32 - number % 16) * 32768)])
                shown.append(first)
                whole.append(last)
                cpu.append(sum(spent))
            page.close()
            middle = [statistics.median(each) for each in (shown, whole, cpu)]
            late = "  later than the bar" if middle[0] > BAR_MS else ""
            print(f"{name:12s} {middle[0]:4.0f} ms {middle[1]:4.0f} ms {middle[2]:8.0f} ms{late}", flush=True)
        browser.close()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
