"""Published bandwidth of collectives."""

import numpy as np

from hyscale_model.checks import check
from hyscale_model.checks.collectives import BAR, FITTED


def test_the_median_of_published_bandwidths_is_within_its_bar():
    found = check(["collectives"])
    rows = found["rows"]
    assert np.median([abs(row["error"]) for row in rows]) <= BAR
    (bar,) = found["summary"]["collectives"]["bars"]
    assert bar["passed"]
    # The rows that no efficiency was taken from are within it too.
    free = [abs(row["error"]) for row in rows if row["id"] not in FITTED and row["series"] == "nccl"]
    assert len(free) >= 10
    assert np.median(free) <= BAR / 2
