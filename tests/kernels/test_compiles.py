"""Kernels compile for a Hopper GPU: the interpreter accepts what the compiler does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_every_number_of_heads_and_type_compiles():
    done = build()
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("filter_kernel") == 8
