from pathlib import Path

import pytest

from hyscale_model.dashboard.offer import Offer

SCENARIOS = Path(__file__).parents[3] / "scenarios"


@pytest.fixture(scope="session")
def offer():
    return Offer(SCENARIOS)


@pytest.fixture
def page():
    """What a page sends, of the scenario of the introduction."""

    def _page(changes=None, ranges=None, systems=None, **more):
        state = {"scenario": "glm-5.1-1m-512xh20", "set": changes or {}, "range": ranges or {}, "systems": systems}
        return state | {"view": None, "options": {}, "pinned": None} | more

    return _page
