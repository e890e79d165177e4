"""Kernels compile for a Hopper GPU: the interpreter accepts what the compiler does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Kernels in the interpreter.
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("compile_for_hopper.py")


def build(*arguments):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_one_of_each_kernel_compiles():
    done = build("--few")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_few_and_many_heads_narrow_and_wide_ones_and_both_types_compile():
    done = build()
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("filter_kernel") == 8
    # In Triton for each form of attention, and in Gluon for absorbed MLA.
    assert done.stdout.count("queries_kernel") == 4 + 1
