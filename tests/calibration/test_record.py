"""The JSON of results, and whether recorded results are of the kernels in the tree."""

import json
import warnings

import pytest
from hyscale_calibration import kernel_hash, recorded
from hyscale_calibration.benches import record
from hyscale_calibration.benches.operation import Case, Measurement, Operation, Skipped
from hyscale_calibration.kernel_hash import hash_of_sources
from hyscale_calibration.recorded import is_stale, recorded_results, stale_results

RECORDED = dict(recorded_results())
ROW = {"name", "dtype", "shape", "median_ms", "p10_ms", "p90_ms", "samples"}


def measurement(**rates):
    return Measurement(name="x", shape={"n": 3}, check=dict, run=lambda: None, **rates)


def test_rates_are_those_of_the_median_time():
    result = record.row(measurement(flop=6e12, traffic_bytes=3e9), "bf16", [4.0, 1.0, 3.0], 7, {"error": 0.5})
    assert result == {
        "name": "x",
        "dtype": "bf16",
        "shape": {"n": 3},
        "median_ms": 3.0,
        "p10_ms": 1.0,
        "p90_ms": 4.0,
        "samples": 3,
        "peak_bytes": 7,
        "tflops": pytest.approx(2000.0),
        "tb_per_s": pytest.approx(1.0),
        "error": 0.5,
    }


def test_a_row_has_the_rates_it_knows_and_at_least_one():
    assert "tflops" not in record.row(measurement(traffic_bytes=1.0), "fp32", [1.0], 0, {})
    assert "tb_per_s" not in record.row(measurement(flop=1.0), "fp32", [1.0], 0, {})
    with pytest.raises(ValueError, match="neither"):
        measurement()


def test_deciles_of_eleven_times_are_the_second_and_the_last_but_one():
    times = record.median_and_spread([float(each) for each in range(11)])
    assert times == {"median_ms": 5.0, "p10_ms": 1.0, "p90_ms": 9.0, "samples": 11}


def test_a_record_tells_its_kernels_ceilings_and_what_it_skipped(tmp_path):
    sources = ("scoring/triton.py",)
    operation = Operation(
        name="x",
        description="x",
        dtypes=("bf16",),
        cases=(Case(name="x", shape={}),),
        trial={},
        measure=lambda *_: iter(()),
        sources=sources,
    )
    skipped = [Skipped(name="theirs", reason="not here")]
    results = record.record(operation, {"name": "a GPU"}, {"bf16_tflops": 1.0, "fp8_tflops": None}, [{}], skipped)
    record.write(tmp_path / "x.json", results)
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "device": {"name": "a GPU"},
        "kernel_hash": hash_of_sources(sources),
        "sources": ["scoring/triton.py"],
        "ceilings": {"bf16_tflops": 1.0, "fp8_tflops": None},
        "skipped": [{"name": "theirs", "reason": "not here"}],
        "rows": [{}],
    }


# A training has steps, not rows.
@pytest.mark.parametrize("name", [name for name in RECORDED if not name.endswith("/training")])
def test_recorded_results_have_the_form(name):
    results = RECORDED[name]
    assert {"device", "kernel_hash", "sources", "rows"} <= set(results)
    assert (results["kernel_hash"] is None) == (not results["sources"])
    for row in results["rows"]:
        # Layers over ranks are told by what they are.
        assert set(row) >= (ROW - {"name", "dtype"} if "cp_overlap" in row else ROW)
        # Of a layer no single rate tells anything.
        assert {"tflops", "tb_per_s", "phases_ms"} & set(row)
        assert 0 < row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_results_name_their_kernels(name):
    assert RECORDED[name]["kernel_hash"] is None or len(RECORDED[name]["kernel_hash"]) == 64
    if is_stale(RECORDED[name]):
        warnings.warn(f"{name} is of other kernels: measure again", stacklevel=1)


def test_a_result_is_stale_when_its_kernel_changed_or_went():
    names = ["scoring/triton.py"]
    assert not is_stale({"kernel_hash": hash_of_sources(names), "sources": names})
    assert is_stale({"kernel_hash": "0" * 64, "sources": names})
    assert is_stale({"kernel_hash": "0" * 64, "sources": ["no/such.py"]})
    assert not is_stale({"kernel_hash": None, "sources": []})


def test_stale_results_are_named(monkeypatch):
    old = {"kernel_hash": "0" * 64, "sources": ["scoring/triton.py"]}
    library = {"kernel_hash": None, "sources": []}
    monkeypatch.setattr(recorded, "recorded_results", lambda: iter([("a/x", old), ("a/y", library), ("b/x", old)]))
    assert stale_results() == ["a/x", "b/x"]


def test_without_the_kernels_nothing_is_called_current(monkeypatch):
    monkeypatch.setattr(kernel_hash, "find_spec", lambda _name: None)
    with pytest.raises(ModuleNotFoundError):
        stale_results()
