"""Sessions: every point is written at once, and a plan goes on where it was cut short."""

import json

import pytest
from hyscale_calibration import profile_file
from hyscale_calibration.machine import MachineLost
from hyscale_calibration.plan import plan
from hyscale_calibration.profile_file import ProfileError
from hyscale_calibration.progress import left, line
from hyscale_calibration.session import Session
from simulated import IDENTITY, SimulatedMachine

POINTS = plan("quick", ["gemm", "elementwise"])


def session(path, machine=None, steps=None, clock=None):
    tell = (steps if steps is not None else []).append
    made = Session(machine or SimulatedMachine(), path, tell)
    if clock is not None:
        made.clock = clock
    return made


def started(path, machine=None, resume=False, **options):
    made = session(path, machine, **options)
    made.begin(sorted({point.operation for point in POINTS}), resume=resume)
    return made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.json"


def ids(path):
    return {entry["id"] for entry in profile_file.read(path)["measurements"]}


def test_a_plan_is_measured_point_by_point(path):
    steps = []
    assert started(path, steps=steps).run(POINTS)
    assert ids(path) == {point.id for point in POINTS}
    assert [step.done for step in steps] == list(range(1, len(POINTS) + 1))
    assert steps[-1].left_s == 0
    assert steps[0].left_s > 0
    entry = profile_file.read(path)["measurements"][0]
    assert entry["samples"] == 5
    assert entry["clock_mhz"] == 1700


def test_a_profile_says_what_it_was_measured_on(path):
    started(path).run(POINTS[:1])
    profile = profile_file.read(path)
    (key,) = profile["machines"]
    assert profile["machines"][key] == IDENTITY
    assert profile["measurements"][0]["machine"] == key
    assert profile["gpu"] == "h200"
    assert profile["name"] == "mine"
    assert profile["collectives"] == {"measured": False, "reason": "one GPU; run under torchrun to measure them"}


class Interrupted(SimulatedMachine):
    """Stops like a person or a scheduler would."""

    def __init__(self, after, error=KeyboardInterrupt):
        super().__init__()
        self.after, self.error = after, error

    def measure(self, points):
        for found in super().measure(points):
            if len(self.measured) > self.after:
                raise self.error("stopped")
            yield found


@pytest.mark.parametrize("error", [KeyboardInterrupt, MachineLost])
def test_an_interruption_loses_nothing_and_resume_continues(path, error):
    with pytest.raises(error):
        started(path, Interrupted(7, error)).run(POINTS)
    assert len(ids(path)) == 7
    machine = SimulatedMachine()
    assert started(path, machine, resume=True).run(POINTS)
    assert ids(path) == {point.id for point in POINTS}
    assert len(machine.measured) == len(POINTS) - 7


def test_a_point_that_fails_is_recorded_and_the_rest_goes_on(path):
    steps = []
    assert started(path, SimulatedMachine(broken=("norm",)), steps=steps).run(POINTS)
    profile = profile_file.read(path)
    broken = {point.id for point in POINTS if point.row == "norm"}
    assert {entry["id"] for entry in profile["failed"]} == broken
    assert profile["failed"][0]["message"] == "OutOfMemoryError: no 64 GiB"
    assert len(profile["measurements"]) == len(POINTS) - len(broken)
    assert any("FAILED OutOfMemoryError" in line(step) for step in steps)
    # Tried again, they come off the list.
    started(path, resume=True).run(POINTS)
    assert profile_file.read(path)["failed"] == []


def test_nothing_begins_that_would_end_too_late(path):
    now = [0.0]

    class Slow(SimulatedMachine):
        def measure(self, points):
            for found in super().measure(points):
                now[0] += 10.0
                yield found

    assert not started(path, Slow(), clock=lambda: now[0]).run(POINTS, max_seconds=60.0)
    assert 0 < len(ids(path)) <= 7
    assert started(path, resume=True).run(POINTS, max_seconds=1e6)


def test_no_time_measures_nothing(path):
    assert not started(path).run(POINTS, max_seconds=0.0)
    assert ids(path) == set()


def test_a_profile_that_is_there_is_not_overwritten(path):
    started(path).run(POINTS[:2])
    before = path.read_text()
    with pytest.raises(ProfileError, match="exists; --resume continues it"):
        started(path)
    assert path.read_text() == before


def test_another_gpu_does_not_continue_a_profile(path):
    started(path).run(POINTS[:2])
    other = SimulatedMachine(identity={**IDENTITY, "name": "NVIDIA H20", "sms": 78})
    with pytest.raises(ProfileError, match="holds NVIDIA H200 with 132 SMs, this is NVIDIA H20 with 78"):
        started(path, other, resume=True)


def test_other_versions_of_libraries_are_told_apart(path):
    started(path).run(POINTS[:2])
    started(path, SimulatedMachine(identity={**IDENTITY, "torch": "9.9"}), resume=True).run(POINTS[:4])
    profile = profile_file.read(path)
    assert len(profile["machines"]) == 2
    assert len({entry["machine"] for entry in profile["measurements"]}) == 2


def test_kernels_that_changed_do_not_continue_a_profile(path):
    points = plan("quick", ["replay"])
    first = session(path)
    first.begin(["replay"], resume=False)
    first.run(points[:1])
    profile = json.loads(path.read_text())
    profile["kernels"]["replay"] = "0" * 64
    path.write_text(json.dumps(profile))
    with pytest.raises(ProfileError, match="replay was measured with kernels that changed since"):
        session(path).begin(["replay"], resume=True)
    assert profile_file.stale_operations(profile_file.read(path)) == ["replay"]


def test_time_left_is_told_in_minutes():
    assert left(125.4) == "2:05"
    assert left(-1.0) == "0:00"
