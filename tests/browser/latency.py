"""How long a change takes to show, view by view: ``python tests/browser/latency.py [CHANGES [VIEW...]]``.

From the change of a control to the frame in which a figure in sight is drawn anew, and to that of the last figure, in
headless Chromium at 1280 pixels; and the processor time that the server takes for it. Medians, at most 31 changes.
"""

from __future__ import annotations

import statistics
import sys
import time

import flask
from harness import LACKING, OPTIONS, ROOT, chromium, served, settled
from playwright.sync_api import sync_playwright

from hyscale_model.dashboard.app import create_app
from hyscale_model.dashboard.offer import FIRST
from hyscale_model.views import VIEWS

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
      // A figure that is no longer on the page has no listeners either.
      plots.forEach((plot) => plot.removeAllListeners && plot.removeAllListeners("plotly_afterplot"));
      done([first ?? now, last ?? first ?? now]);
    } else requestAnimationFrame(wait);
  };
  requestAnimationFrame(wait);
})"""


def main(arguments: list[str]) -> int:
    """Measure every view."""
    changes = int(arguments[0]) if arguments else 12
    path = chromium()
    if path is None:
        print(LACKING, file=sys.stderr)
        return 2
    app = create_app(ROOT / "scenarios").server
    spent: list[float] = []

    def begin() -> None:
        flask.g.began = time.thread_time()

    def end(response: flask.Response) -> flask.Response:
        spent.append(1e3 * (time.thread_time() - flask.g.began))
        return response

    app.before_request(begin)
    app.after_request(end)
    print(f"{'view':12s} {'in sight':>9s} {'all':>7s} {'server CPU':>11s}")
    with served(app) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=OPTIONS)
        for place, name in enumerate(arguments[1:] or VIEWS):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            # Of its own for each view, so that no answer is remembered.
            page.goto(f"{address}?scenario={FIRST}&view={name}&cluster.nic_efficiency={0.7 + 0.01 * place:.2f}")
            settled(page)
            page.wait_for_timeout(1000)
            entry = page.query_selector('[data-set="workload.sequence_length"]')
            rows = []
            for number in range(1, changes + 1):
                spent.clear()
                shown = page.evaluate(MEASURE, [entry, str((32 - number) * 32768)])
                rows.append([*shown, sum(spent)])
            page.close()
            sight, whole, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
            late = "  later than the bar" if sight > BAR_MS else ""
            print(f"{name:12s} {sight:6.0f} ms {whole:4.0f} ms {cpu:8.0f} ms{late}", flush=True)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
