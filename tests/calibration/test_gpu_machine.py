"""The machine that runs benchmarks: what goes wrong with a point is its result, unless the device is lost."""

import io

import pytest
from hyscale_calibration import __main__ as command
from hyscale_calibration import gpu, profile_file
from hyscale_calibration.benches import registry
from hyscale_calibration.benches.operation import CannotRun, Case, CheckFailed, Measurement, Operation, Skipped
from hyscale_calibration.gpu import GpuMachine
from hyscale_calibration.machine import Failed, MachineLost, Measured
from hyscale_calibration.plan import FEWEST_SAMPLES, MOST_SAMPLES, plan
from hyscale_calibration.point import Point
from hyscale_calibration.progress import shown
from hyscale_calibration.session import Step
from simulated import SimulatedMachine

CASE = Case(name="a case", shape={"n": 4})


class Device:
    """Every run takes ``ms``."""

    name = "cpu"

    def __init__(self, ms=1.0):
        self.ms, self.runs = ms, 0

    def description(self):
        return {"name": "a device"}

    def driver(self):
        return "1.2"

    def milliseconds(self, run, samples, warm_up=3):
        for _ in range(warm_up + samples):
            run()
            self.runs += 1
        return [self.ms] * samples

    def peak_bytes(self, run):
        return 7

    def clocks(self):
        return {"clock_mhz": 1500, "throttled": True}


def point(row):
    return Point(operation="ours", row=row, dtype="bf16", shape=CASE.shape)


def raising(error):
    def raise_it():
        raise error

    return raise_it


def row(name, check=dict, run=lambda: None):
    return Measurement(name=name, shape=CASE.shape, check=check, run=run, flop=1.0)


@pytest.fixture
def measure(monkeypatch):
    """Results of rows by name, of an operation that yields ``found``."""

    def _measure(found, rows, device=None, synchronize=lambda: None, end=None):
        def all_of_it(shape, dtype, name):
            yield from found
            if end is not None:
                raise end

        ours = Operation(name="ours", description="ours", dtypes=("bf16",), cases=(CASE,), trial={}, measure=all_of_it)
        monkeypatch.setattr(registry, "load", lambda _name: ours)
        machine = GpuMachine(device or Device(), synchronize, lambda: None)
        return {made.row: result for made, result in machine.measure([point(name) for name in rows])}

    return _measure


def test_a_point_is_checked_then_timed(measure):
    log = []
    result = measure([row("a", lambda: log.append("check") or {"error": 0.5}, lambda: log.append("run"))], ["a"])["a"]
    assert isinstance(result, Measured)
    assert log[0] == "check"
    assert set(log[1:]) == {"run"}
    assert result.found == {"error": 0.5, "clock_mhz": 1500, "throttled": True}
    assert result.peak_bytes == 7


@pytest.mark.parametrize(("ms", "samples"), [(0.01, MOST_SAMPLES), (8.0, 15), (1e4, FEWEST_SAMPLES)])
def test_long_runs_are_repeated_less(measure, ms, samples):
    result = measure([row("a")], ["a"], Device(ms))["a"]
    assert len(result.times_ms) == samples


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (raising(CheckFailed("off by 1")), "CheckFailed: off by 1"),
        (raising(CannotRun("the tile does not fit")), "CannotRun: the tile does not fit"),
        (raising(MemoryError("no\n  64 GiB")), "MemoryError: no 64 GiB"),
    ],
)
def test_a_point_that_fails_leaves_the_others(measure, check, message):
    device = Device()
    results = measure([row("a", check), row("b")], ["a", "b"], device)
    assert results["a"] == Failed(message=message)
    assert isinstance(results["b"], Measured)


def test_rows_that_are_skipped_or_missing_say_why(measure):
    results = measure([Skipped(name="a", reason="not installed")], ["a", "b"])
    assert results["a"] == Failed(message="not installed")
    assert results["b"] == Failed(message="the benchmark does not have this row at this shape")


def test_inputs_that_cannot_be_made_fail_all_that_is_left(measure):
    results = measure([row("a")], ["a", "b", "c"], end=MemoryError("no room"))
    assert isinstance(results["a"], Measured)
    assert results["b"] == results["c"] == Failed(message="MemoryError: no room")


def test_a_device_beyond_use_ends_the_run(measure):
    with pytest.raises(MachineLost, match=r"illegal address.*run again with --resume"):
        measure([row("a", run=raising(RuntimeError("illegal address")))], ["a"], synchronize=raising(RuntimeError()))


def test_rows_after_the_last_wanted_one_are_not_made(measure):
    made = []

    def found():
        for name in "abc":
            made.append(name)
            yield row(name)

    measure(found(), ["a", "b"])
    assert made == ["a", "b"]


def test_a_machine_says_how_it_times():
    identity = GpuMachine(Device(), lambda: None, lambda: None).identity()
    assert identity == {"name": "a device", "driver": "1.2", "timing": gpu.TIMING}


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_tells_failures_and_time_left(stream):
    shown_on = stream()
    (first, *_) = plan("quick")
    with shown(shown_on) as tell:
        tell(Step(point=first, result=Failed(message="no memory"), done=1, total=2, left_s=61.0))
        tell(Step(point=first, result=Measured(times_ms=[2.0], peak_bytes=0, found={}), done=2, total=2, left_s=0.0))
    text = shown_on.getvalue()
    assert "no memory" in text
    # A terminal is drawn again at intervals.
    assert "1:01 left" in text or "0:00 left" in text


def test_measuring_alone_writes_a_profile_without_fits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(GpuMachine, "current", classmethod(lambda cls: SimulatedMachine()))
    path = tmp_path / "raw.json"
    assert command.main(["--output", str(path), "--op", "memory"]) == 0
    profile = profile_file.read(path)
    assert len(profile["measurements"]) == len(plan("quick", ["memory"]))
    assert profile["fits"] == {}
    assert "0 failed" in capsys.readouterr().out
    assert command.main(["--output", str(path), "--op", "memory"]) == 2
    assert "--resume continues it" in capsys.readouterr().err
    assert command.main(["--output", str(path), "--op", "gemm", "--resume", "--max-seconds", "0"]) == 0
    assert "continue with --resume" in capsys.readouterr().out
