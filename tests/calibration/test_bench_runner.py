"""The runner of benchmarks, with operations and a device of our own."""

import json
import os
import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hyscale_calibration.benches import __main__ as command
from hyscale_calibration.benches import registry
from hyscale_calibration.benches.operation import (
    CannotRun,
    Case,
    CheckFailed,
    Measurement,
    Operation,
    Skipped,
    peer,
)
from hyscale_calibration.benches.runner import Failed, measure
from hyscale_calibration.benches.table import Table, describe_ceilings, share_of_ceiling

CEILINGS = {"copy_tb_per_s": 4.0, "bf16_tflops": 800.0, "fp8_tflops": None}


class Device:
    """Every run takes 2 ms and 5 bytes."""

    name = "cpu"

    def description(self):
        return {"name": "a device"}

    def milliseconds(self, run, samples):
        run()
        return [2.0] * samples

    def peak_bytes(self, run):
        run()
        return 5


def operation(log, *, name="ours", check=dict, run=None, more=(), measure=None):
    def measure_all(shape, dtype, device):
        log.append("begin")
        try:
            yield Measurement(
                name=name,
                shape={**shape, "tile": 64},
                check=lambda: log.append("check") or check(),
                run=run or (lambda: log.append("run")),
                flop=8e11,
                traffic_bytes=4e9,
            )
            yield from more
        finally:
            log.append("end")

    return Operation(
        name=name,
        description="an operation of ours",
        dtypes=("bf16", "fp8"),
        cases=(
            Case(name="small", shape={"n": 4, "share": 0.5, "kind": "a", "sms": 0}),
            Case(name="large", shape={"n": 8, "share": 0.5, "kind": "b", "sms": 2}),
        ),
        trial={},
        measure=measure or measure_all,
        samples=3,
    )


def raising(error):
    def check():
        raise error

    return check


def run_one(ours, **options):
    said = []
    options = {"device": Device(), "ceilings": CEILINGS, "say": said.append, **options}
    return measure(ours, ours.cases[:1], ("bf16",), **options), said


@pytest.fixture
def run(monkeypatch, capsys):
    """The command with operations of ours in place of the registered ones, on a device of ours."""
    operations = {}
    monkeypatch.setattr(registry, "NAMES", operations.keys())
    monkeypatch.setattr(registry, "load", operations.__getitem__)
    monkeypatch.setattr(command, "find_gpu", Device)
    ceilings = SimpleNamespace(measure_ceilings=lambda _gpu: CEILINGS)
    monkeypatch.setitem(sys.modules, "hyscale_calibration.benches.ceilings", ceilings)

    def _run(*arguments, **given):
        operations.update(given or {"ours": operation([])})
        code = command.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return _run


def test_a_measurement_is_checked_before_it_is_timed():
    log = []
    results, _ = run_one(operation(log, check=lambda: {"error": 0.25}))
    assert log == ["begin", "check", "run", "run", "end"]
    (row,) = results["rows"]
    assert row["shape"] == {"n": 4, "share": 0.5, "kind": "a", "sms": 0, "tile": 64}
    assert (row["samples"], row["peak_bytes"], row["error"]) == (3, 5, 0.25)
    assert row["tflops"] == pytest.approx(400.0)
    assert row["tb_per_s"] == pytest.approx(2.0)


def test_a_failed_check_is_never_timed_and_names_its_case():
    log = []
    with pytest.raises(Failed, match=r"ours, small, bf16, ours at n=4 .*tile=64: check failed: off by 1"):
        run_one(operation(log, check=raising(CheckFailed("off by 1"))))
    assert log == ["begin", "check", "end"]


@pytest.mark.parametrize("where", ["check", "run", "measure"])
def test_any_other_error_names_its_case_too(where):
    def broken(*_):
        raise ZeroDivisionError("nothing to divide")
        yield

    ours = operation([], **{where: broken if where == "measure" else raising(ZeroDivisionError("nothing to divide"))})
    with pytest.raises(Failed, match=r"ours, small, bf16.*ZeroDivisionError: nothing to divide"):
        run_one(ours)


def test_what_is_skipped_is_said_and_recorded():
    missing = Skipped(name="theirs", reason="not installed")
    wide = Measurement(name="wide", shape={"tile": 512}, check=raising(CannotRun("too wide")), run=dict, flop=1.0)
    results, said = run_one(operation([], more=(missing, wide)))
    assert results["skipped"] == [
        {"name": "theirs", "reason": "not installed"},
        {"name": "wide", "reason": "bf16, tile=512: too wide"},
    ]
    assert len(results["rows"]) == 1
    assert "SKIPPED theirs: not installed" in said
    assert any(line.startswith("SKIPPED wide") for line in said)


def test_an_operation_that_measured_nothing_failed():
    def nothing(*_):
        raise CannotRun("no such GPU")
        yield

    with pytest.raises(Failed, match="nothing could be measured"):
        run_one(operation([], measure=nothing))


def test_what_a_measurement_holds_lasts_while_it_is_timed():
    log = []

    @contextmanager
    def part():
        log.append("enter")
        yield
        log.append("leave")

    def held(shape, dtype, device):
        with part():
            yield Measurement(name="x", shape=shape, check=dict, run=lambda: log.append("run"), flop=1.0)

    run_one(operation([], measure=held))
    assert log == ["enter", "run", "run", "leave"]


def test_a_peer_is_a_module_or_the_notice_that_it_is_missing(monkeypatch):
    assert peer("theirs", "json") is json
    assert peer("theirs", "no_such_library.topk") == Skipped(
        name="theirs", reason="no_such_library.topk is not installed"
    )
    monkeypatch.setitem(sys.modules, "no_such_library", None)
    assert isinstance(peer("theirs", "no_such_library"), Skipped)


def test_a_peer_that_does_not_import_tells_why(monkeypatch, tmp_path):
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('no compiler')")
    (tmp_path / "needy_library.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    assert "no compiler" in peer("theirs", "broken_library").reason
    assert "no_such_library" in peer("theirs", "needy_library").reason
    assert "needy_library is not installed" not in peer("theirs", "needy_library").reason


def test_rates_are_compared_with_the_ceiling_of_their_own():
    row = {"dtype": "bf16", "tflops": 400.0, "tb_per_s": 1.0}
    assert share_of_ceiling(row, "tflops", CEILINGS) == 0.5
    assert share_of_ceiling(row, "tb_per_s", CEILINGS) == 0.25
    assert share_of_ceiling({**row, "dtype": "fp8"}, "tflops", CEILINGS) is None
    assert share_of_ceiling({**row, "dtype": "fp32"}, "tflops", CEILINGS) is None
    assert share_of_ceiling({"dtype": "bf16"}, "tb_per_s", CEILINGS) is None
    assert describe_ceilings(CEILINGS) == (
        "ceilings: device copy 4.00 TB/s, BF16 8192^3 product 800 TFLOP/s, FP8 8192^3 product not on this card"
    )


def test_columns_are_aligned():
    ours = operation([])
    _, said = run_one(ours)
    titles, line = said[-2:]
    assert titles.index("shape") == line.index("tile=64")
    assert len(titles) == len(line)
    assert "400.0 ( 50% of max)" in line
    shared, _ = Table([case.shape for case in ours.cases], {}).head()
    assert shared == "all at share=0.5"


def test_list_shows_a_line_for_each(run):
    result = run("--list", ours=operation([]), others=operation([], name="others"))
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["ours", "others"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--op: ours"),
        (("--op", "theirs"), "no operation 'theirs', there are ours"),
        (("--op", "ours", "--dtype", "fp4"), "ours has no dtype 'fp4', it has bf16, fp8"),
        (("--op", "ours", "--shape", "m=1"), "no shape key 'm', it has n, share, kind, sms"),
        (("--op", "ours", "--shape", "n"), "key=value"),
        (("--op", "ours", "--shape", "n=1,n=2"), "n twice"),
        (("--op", "ours", "--shape", "n=many"), "n must be a whole number, is 'many'"),
        (("--op", "ours", "--shape", "n=0"), "n must be a positive whole number, is 0"),
        (("--op", "ours", "--shape", "share=nan"), "share must be a positive number, is nan"),
        (("--op", "ours", "--shape", "kind=c"), "kind is one of a, b, not 'c'"),
    ],
)
def test_what_does_not_exist_is_bad_input_that_names_what_does(run, arguments, message):
    result = run(*arguments)
    assert result.code == 2
    assert message in result.err


@pytest.mark.parametrize("arguments", [("--op", "ours", "--samples", "0"), ("--op", "ours", "--sample", "3")])
def test_options_are_checked(run, arguments):
    with pytest.raises(SystemExit) as left:
        run(*arguments)
    assert left.value.code == 2


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    torch = SimpleNamespace(
        __version__="9", version=SimpleNamespace(cuda=None), cuda=SimpleNamespace(is_available=lambda: False)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert command.main(["--op", registry.NAMES[0]]) == 2
    assert "need a CUDA GPU" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    assert command.main(["--op", registry.NAMES[0]]) == 2
    assert "need torch" in capsys.readouterr().err


def test_results_of_one_operation_are_a_file(run, tmp_path):
    path = tmp_path / "new" / "result.json"
    result = run("--op", "ours", "--samples", 4, "--json", path)
    assert result.code == 0
    results = json.loads(path.read_text())
    assert [(row["dtype"], row["shape"]["n"], row["samples"]) for row in results["rows"]] == [
        ("bf16", 4, 4),
        ("fp8", 4, 4),
        ("bf16", 8, 4),
        ("fp8", 8, 4),
    ]
    assert results["ceilings"] == CEILINGS
    assert "device copy 4.00 TB/s" in result.out


def test_values_replace_those_of_the_cases_and_equal_cases_are_one(run, tmp_path):
    run("--op", "ours", "--dtype", "fp8", "--shape", "n=2, share=1,kind=a,sms=0", "--json", tmp_path / "x.json")
    (row,) = json.loads((tmp_path / "x.json").read_text())["rows"]
    assert row["shape"] == {"n": 2, "share": 1.0, "kind": "a", "sms": 0, "tile": 64}
    assert row["dtype"] == "fp8"


def test_results_of_several_are_files_of_a_directory_and_a_failed_one_has_none(run, tmp_path):
    wrong = operation([], name="wrong", check=raising(CheckFailed("off")))
    folder = tmp_path / "results"
    chosen = ("--op", "wrong", "--op", "ours", "--op", "ours")
    result = run(*chosen, "--json", folder, ours=operation([]), wrong=wrong)
    assert result.code == 1
    assert "wrong, small, bf16" in result.err
    assert "nothing is written of wrong" in result.err
    assert [path.name for path in folder.iterdir()] == ["ours.json"]


def test_an_interrupted_run_writes_what_it_has_and_says_what_is_missing(run, tmp_path):
    done = []

    def check():
        if len(done) == 2:
            # As a batch system ends a run that takes too long.
            os.kill(os.getpid(), signal.SIGTERM)
        done.append(1)
        return {}

    path = tmp_path / "ours.json"
    result = run("--op", "ours", "--json", path, ours=operation([], check=check))
    assert result.code == 130
    results = json.loads(path.read_text())
    assert len(results["rows"]) == 2
    (notice,) = results["skipped"]
    assert notice["reason"] == "interrupted: all or part of large (bf16), large (fp8)"


def test_a_run_that_is_interrupted_at_once_writes_nothing(run, tmp_path):
    path = tmp_path / "ours.json"
    result = run("--op", "ours", "--json", path, ours=operation([], check=raising(KeyboardInterrupt())))
    assert result.code == 130
    assert "before anything was measured" in result.err
    assert not path.exists()


def test_a_file_is_no_directory(run, tmp_path):
    path = tmp_path / "x.json"
    path.write_text("kept")
    arguments = ("--op", "ours", "--op", "others", "--json", path)
    result = run(*arguments, ours=operation([]), others=operation([], name="others"))
    assert result.code == 2
    assert "is a file" in result.err
    assert path.read_text() == "kept"
