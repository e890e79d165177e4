from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[3] / "scenarios" / "glm-5.1-1m-512xh20.yaml"


@pytest.fixture
def shipped() -> Path:
    return SHIPPED


@pytest.fixture
def shipped_text() -> str:
    return SHIPPED.read_text()
