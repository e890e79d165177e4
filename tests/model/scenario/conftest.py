from pathlib import Path

import pytest

BASE = Path(__file__).parent / "base.yaml"


@pytest.fixture
def base() -> Path:
    """A valid scenario whose lines the tests count on."""
    return BASE


@pytest.fixture
def base_text() -> str:
    return BASE.read_text()
