import pytest
from synthetic import Recorder

from hyscale_model.traces import attribute, read_trace, shipped_rules


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def attributed(tmp_path):
    """A recorder's trace, written, read and attributed."""

    def run(recorder, rules=None, **facts):
        trace = read_trace(recorder.write(tmp_path / "trace.json", **facts))
        return attribute(trace, rules or shipped_rules())

    return run
