"""``hyscale calibrate`` and ``hyscale profile`` from end to end, on a machine whose kernels follow a known law."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hyscale_calibration import profile_file
from hyscale_calibration.plan import plan
from simulated import IDENTITY, SimulatedMachine, law_of

from hyscale_model.catalog import measured
from hyscale_model.cli import calibrate as command
from hyscale_model.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(capsys):
    def _run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return _run


@pytest.fixture
def machine(monkeypatch):
    found = SimulatedMachine()
    monkeypatch.setattr(command, "_machine", lambda _calibration: found)
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.json"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole plan, measured and fitted."""
    path = tmp_path_factory.mktemp("profiles") / "mine.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_machine", lambda _calibration: SimulatedMachine())
        assert main(["calibrate", "--plan", "full", "--output", str(path)]) == 0
    return path


@pytest.mark.slow
def test_a_whole_plan_recovers_the_law(finished):
    profile = profile_file.read(finished)
    assert len(profile["measurements"]) == len(plan("full"))
    fits = profile["fits"]["families"]
    for family, name in (("copy", "hbm"), ("topk_torch", "clocks.visible_bytes"), ("gemm", "tensor.bf16")):
        truth = law_of(SimpleNamespace(units={"visible_bytes": 1}, flops=1)).as_json()[name]
        assert fits[family]["coefficients"][name] == pytest.approx(truth, rel=0.06), family
    assert profile["fits"]["held_out"]["median"] < 0.03
    assert 0.7 <= profile["fits"]["held_out"]["coverage"] <= 0.95


@pytest.mark.slow
def test_a_prediction_uses_it(finished, run):
    arguments = ("predict", ROOT / "scenarios" / "glm-5.1-1m-512xh200.yaml", "--json", "--draws", 8)
    backend = ("--set", "systems.*.backend=hyscale_kernels")
    mine = json.loads(run(*arguments, "--set", f"profile={finished}", *backend).out)
    terms = mine["systems"]["megatron"]["terms"]
    # What is longer than anything in the plan, or shorter, is extrapolated.
    for term in ("selection_forward", "sparse_attention_backward"):
        assert terms[term]["origin"] in ("measured", "transferred"), term
    published = json.loads(run(*arguments, "--set", "profile=published").out)
    assert published["systems"]["megatron"]["terms"]["selection_forward"]["origin"] in ("published", "assumed")
    before, after = (each["systems"]["megatron"]["time_s"]["projections"] for each in (published, mine))
    assert before != after


def test_the_report_and_the_next_command(run, machine, path):
    done = run("calibrate", "--op", "elementwise", "--op", "memory", "--output", path)
    assert done.code == 0
    assert "Held-out errors" in done.out
    assert "elementwise" in done.out
    assert "collectives were not measured: one GPU" in done.out
    assert f"hyscale predict SCENARIO --set profile={path}" in done.err


def test_json_is_all_there_is_on_stdout(run, machine, path):
    done = run("calibrate", "--op", "memory", "--output", path, "--json")
    data = json.loads(done.out)
    assert data["complete"]
    assert set(data["fits"]["families"]) == {"copy", "gather", "scatter_add"}
    assert data["collectives"]["measured"] is False


def test_a_plan_cut_short_goes_on(run, machine, path):
    first = run("calibrate", "--max-seconds", 0, "--op", "gemm", "--output", path)
    assert first.code == 0
    assert f"hyscale calibrate --plan quick --resume --output {path}" in first.err
    assert run("calibrate", "--op", "gemm", "--output", path).code == 2
    assert run("calibrate", "--op", "gemm", "--output", path, "--resume").code == 0
    assert len(profile_file.read(path)["measurements"]) == len(plan("quick", ["gemm"]))


def test_failed_points_are_told_of(run, machine, path):
    machine.broken = ("norm",)
    done = run("calibrate", "--op", "elementwise", "--output", path)
    assert done.code == 0
    assert "points failed" in done.err
    assert "OutOfMemoryError" in done.err


def test_without_a_gpu_it_says_so(run, path):
    done = run("calibrate", "--output", path)
    if done.code == 0:
        pytest.skip("there is a GPU")
    assert done.code == 2
    assert "error: calibrate: benchmarks need" in done.err
    assert not path.exists()


def test_a_dry_run_needs_no_gpu(run):
    done = run("calibrate", "--dry-run", "--plan", "full")
    lines = done.out.splitlines()
    assert done.code == 0
    assert len(lines) == len(plan("full")) + 1
    assert lines[-1].startswith(f"{len(plan('full'))} points, about ")
    data = json.loads(run("calibrate", "--dry-run", "--json").out)
    assert [row["id"] for row in data["points"]] == [point.id for point in plan("quick")]


def test_a_job_for_slurm_runs_every_operation_and_says_how_to_merge(run, tmp_path):
    done = run("calibrate", "--plan", "full", "--emit", "slurm", "--output", tmp_path / "whole.json")
    operations = sorted({point.operation for point in plan("full")})
    assert f"#SBATCH --array=0-{len(operations) - 1}" in done.out
    assert f"operations=({' '.join(operations)})" in done.out
    assert f"hyscale profile merge {tmp_path}/whole-parts/*.json --output {tmp_path}/whole.json" in done.out
    assert subprocess.run(["bash", "-n"], input=done.out, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "gem"], "there is no operation 'gem'. Expected: "),
        (["--op", "score_table"], "the plan quick has no points of score_table"),
        (["--plan", "huge"], "huge"),
    ],
)
def test_what_does_not_exist_is_refused(run, machine, arguments, message):
    done = run("calibrate", *arguments)
    assert done.code == 2
    assert message in done.err


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(run, machine, tmp_path):
    done = run("calibrate", "--output", tmp_path / "no" / "p.json")
    assert done.code == 2
    assert "the folder does not exist" in done.err
    assert machine.measured == []


def test_a_gpu_that_the_catalogue_lacks_keeps_its_measurements(run, monkeypatch, path):
    other = SimulatedMachine(identity={**IDENTITY, "name": "a new card"})
    monkeypatch.setattr(command, "_machine", lambda _calibration: other)
    done = run("calibrate", "--op", "memory", "--output", path)
    assert done.code == 2
    assert "a new card is not in the catalogue" in done.err
    assert profile_file.read(path)["measurements"]
    assert run("profile", "merge", path, "--gpu", "h200").code == 0
    assert profile_file.read(path)["fits"]["families"]


def test_parts_are_merged_and_fitted(run, machine, tmp_path):
    parts = [tmp_path / f"{name}.json" for name in ("memory", "gemm")]
    for part in parts:
        assert run("calibrate", "--op", part.stem, "--output", part, "--json").code == 0
    whole = tmp_path / "whole.json"
    done = run("profile", "merge", *parts, "--output", whole, "--json")
    assert done.code == 0
    data = profile_file.read(whole)
    assert len(data["measurements"]) == len(plan("quick", ["memory", "gemm"]))
    assert set(json.loads(done.out)["fits"]["families"]) == {"copy", "gather", "scatter_add", "gemm"}
    bad = tmp_path / "bad.json"
    bad.write_text(whole.read_text()[:200])
    done = run("profile", "merge", whole, bad)
    assert done.code == 2
    assert "damaged or cut short" in done.err


@pytest.mark.slow
def test_profiles_are_listed_and_shown(run, finished, monkeypatch):
    monkeypatch.setattr(measured, "folders", lambda: [finished.parent])
    listed = run("catalog", "profiles")
    assert "mine" in listed.out
    assert "measured on NVIDIA H200" in " ".join(listed.out.split())
    shown = json.loads(run("catalog", "profiles", "mine", "--json").out)
    assert shown["values"]["copy"]["value"]["hbm"] == pytest.approx(0.88, rel=0.02)


def test_the_model_alone_says_what_to_install(tmp_path):
    script = (
        f"import sys\nsys.path[:0] = [{str(ROOT)!r}]\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'hyscale_calibration':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from hyscale_model.cli.main import main\nsys.exit(main(['calibrate', '--dry-run']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'hyscale-model[gpu]'" in done.stderr
