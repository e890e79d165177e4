import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def prediction():
    """A prediction made by hand: no figure in it is a result."""
    return json.loads((HERE / "sample_prediction.json").read_text(encoding="utf-8"))


@pytest.fixture
def checked():
    """A result of ``check`` made by hand."""
    return json.loads((HERE / "sample_check.json").read_text(encoding="utf-8"))
