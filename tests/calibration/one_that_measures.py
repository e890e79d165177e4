"""What one rank of test_measured_collectives.py does: ``torchrun ... one_that_measures.py FOLDER [RANK THAT FAILS]``.

Ranks have a file each, as on nodes that share no disk.
"""

import os
import sys
from pathlib import Path

from hyscale_calibration import collectives

RANK = os.environ["RANK"]
FOLDER, FAILS = Path(sys.argv[1]), sys.argv[2:]


def fails(self, kind, size):
    if RANK in FAILS and kind == "reduce_scatter":
        raise RuntimeError(f"rank {RANK} is wrong")
    return measure(self, kind, size)


collectives.SIZES = {"quick": tuple(2**power for power in range(12, 18))}
measure, collectives.Ranks._measure = collectives.Ranks._measure, fails
found = collectives.measure_into(FOLDER / f"{RANK}.json", "quick", resume=False)
assert (found is not None) == (RANK == "0")
