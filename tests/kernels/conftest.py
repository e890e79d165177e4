import importlib
import os
from functools import cache

import pytest

# Their assertions tell the values that they compare, as those of tests do.
pytest.register_assert_rewrite("attended", "inputs", "losses", "rescored")


class Unavailable(pytest.Module):
    """A module of tests that is not imported, for what it imports is not here."""

    reason = ""

    def collect(self):
        pytest.skip(self.reason, allow_module_level=True)


@cache
def missing():
    """Why kernels cannot run here, empty when they can. Decides first whether Triton compiles or interprets, fast."""
    for name in ("torch", "triton"):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            return f"kernels need {name}, an optional dependency ({error}): make test EXTRAS=test,kernel-tests"
        if name == "torch" and not module.cuda.is_available():
            os.environ["TRITON_INTERPRET"] = "1"
            # The arrays of an interpreted program are too small for threads.
            module.set_num_threads(1)
            numpy = importlib.import_module("numpy").__version__
            if tuple(map(int, numpy.split(".")[:2])) >= (2, 4):
                return f"Triton's interpreter needs numpy below 2.4, here is {numpy}: see constraints.txt"
    importlib.import_module("interpreted").hasten()
    return ""


# Only once a module of this folder is collected, so that tests elsewhere never import torch.
def pytest_pycollect_makemodule(module_path, parent):
    if not (reason := missing()):
        return None
    module = Unavailable.from_parent(parent, path=module_path)
    module.reason = reason
    return module


@pytest.fixture(scope="session")
def device():
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def gpu(device):
    if device != "cuda":
        pytest.skip("needs a CUDA GPU")
