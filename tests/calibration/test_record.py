"""The hash of a kernel: what its code means, and whether recorded results are of the kernels in the tree."""

import json
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is optional")

from hyscale_calibration.benches.record import kernel_hash

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "calibration" / "hyscale_calibration" / "results"
# Read, not imported: what is imported first decides whether kernels are interpreted.
KERNELS = {"score_table": ("score_table/triton.py", "scoring/triton.py")}


@pytest.fixture
def source(tmp_path):
    def write(name: str, *lines: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text("\n".join(lines))
        return path

    return write


def test_comments_docstrings_and_layout_do_not_count(source):
    plain = source("plain", "def f(x):", "    return x + 1")
    told = source(
        "told", '"""Adds."""', "def f(x):", '    """One."""', "    # Why.", "    return (x +", "            1)"
    )
    assert kernel_hash(plain) == kernel_hash(told)


def test_code_and_its_order_count(source):
    one, two = source("one", "x = 1"), source("two", "x = 2")
    assert kernel_hash(one) != kernel_hash(two)
    assert kernel_hash(one, two) != kernel_hash(two, one)


@pytest.mark.parametrize("name", KERNELS)
def test_recorded_results_name_their_kernels(name):
    found = kernel_hash(*(ROOT / "kernels" / "hyscale_kernels" / each for each in KERNELS[name]))
    for path in RESULTS.glob(f"*/{name}.json"):
        recorded = json.loads(path.read_text())["kernel_hash"]
        assert len(recorded) == 64
        if recorded != found:
            warnings.warn(f"{path.parent.name}/{path.name} is of other kernels: measure again", stacklevel=1)
