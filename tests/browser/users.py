"""How the dashboard bears several users: ``python tests/browser/users.py [USERS] [SECONDS]``.

Each user asks for the page and then changes a control every five seconds, going through the views. Prints how long a
change took, as the browser sees it on the loopback interface, without drawing.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import urllib.request

import numpy as np
from harness import served

from hyscale_model.dashboard.offer import FIRST
from hyscale_model.views import VIEWS

EVERY_S = 5.0


def changed_state(generator: random.Random) -> dict:
    """A page after a change that nobody made before, so that no answer is remembered."""
    changes = {
        "workload.sequence_length": str(generator.choice((131072, 262144, 524288, 1048576))),
        "cluster.nic_efficiency": f"{generator.uniform(0.6, 0.95):.6f}",
    }
    view = generator.choice(list(VIEWS))
    state = {"scenario": FIRST, "set": changes, "range": {}, "systems": None}
    return state | {"view": view, "options": {}, "pinned": None}


def ask(address: str, state: dict) -> bytes:
    """Send a change as the page does."""
    body = {
        "output": "answer.data",
        "outputs": {"id": "answer", "property": "data"},
        "inputs": [
            {"id": "state", "property": "data", "value": state},
            {"id": "theme", "property": "data", "value": "light"},
            {"id": "uploads", "property": "data", "value": None},
        ],
        "changedPropIds": ["state.data"],
    }
    request = urllib.request.Request(
        f"{address}_dash-update-component", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def user(address: str, until: float, seed: int, took: list[float], failures: list[str]) -> None:
    """One user, who starts at a moment of their own."""
    generator = random.Random(seed)
    time.sleep(generator.uniform(0, EVERY_S))
    with urllib.request.urlopen(address, timeout=30) as index:
        index.read()
    while time.monotonic() < until:
        start = time.monotonic()
        try:
            answer = json.loads(ask(address, changed_state(generator)))["response"]["answer"]["data"]
            if answer["problem"] or not answer["cards"]:
                failures.append(str(answer["problem"]))
        except OSError as error:
            failures.append(str(error))
        took.append(time.monotonic() - start)
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - start)))


def main(arguments: list[str]) -> int:
    """Serve, let the users loose, and print what they saw."""
    users, seconds = (int(value) for value in (*arguments, *("10", "60")[len(arguments) :]))
    took: list[float] = []
    failures: list[str] = []
    with served() as address:
        until = time.monotonic() + seconds
        crowd = [threading.Thread(target=user, args=(address, until, seed, took, failures)) for seed in range(users)]
        busy = time.process_time()
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()
        busy = time.process_time() - busy
    middle, high, worst = (1e3 * value for value in np.percentile(took, (50, 95, 100)))
    print(f"{users} users, {seconds} s: {len(took)} changes, {len(failures)} errors")
    print(
        f"median {middle:.0f} ms, p95 {high:.0f} ms, worst {worst:.0f} ms; "
        f"{1e3 * busy / len(took):.0f} ms of processor time a change, those of the users included"
    )
    for failure in sorted(set(failures)):
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
