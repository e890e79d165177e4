import json
import math
from pathlib import Path

import pytest

from hyscale_model.errors import InputError

SHIPPED = Path(__file__).parents[3] / "scenarios" / "glm-5.2-200k-608xh100.yaml"


def test_people_get_tables(run, engine, scenario):
    result = run("predict", scenario)
    assert result.code == 0
    assert result.err == ""
    assert "Where the time goes" in result.out


def test_json_is_all_that_stdout_holds(run, engine, scenario):
    result = run("predict", scenario, "--json")
    assert result.code == 0
    assert json.loads(result.out) == engine.data
    assert result.err == ""


def test_options_reach_the_engine(run, engine, scenario):
    options = ("--system", "megatron", "--system", "hyscale", "--set", "layout.cp=64", "--set", "a=b=c")
    assert run("predict", scenario, *options, "--draws", 8, "--seed", 3).code == 0
    assert engine.read.source == str(scenario)
    assert engine.read.systems == ("megatron", "hyscale")
    assert engine.read.overrides == ("layout.cp=64", "a=b=c")
    assert engine.read.text is None
    assert engine.predicted[1:] == (8, 3)


def test_defaults(run, engine, scenario):
    run("predict", scenario)
    assert engine.read.systems == engine.read.overrides == ()
    assert engine.predicted[1:] == (64, 0)


def test_a_scenario_may_come_from_stdin(run, engine):
    assert run("predict", "-", "--json", stdin="name: x\n").code == 0
    assert engine.read.text == "name: x\n"


def test_output_writes_the_json_and_leaves_nothing_else(run, engine, scenario, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "prediction.json"
    target.write_text("old", encoding="utf-8")
    result = run("predict", scenario, "--output", target)
    assert result.code == 0
    assert json.loads(target.read_text(encoding="utf-8")) == engine.data
    assert [path.name for path in folder.iterdir()] == ["prediction.json"]
    assert "Where the time goes" in result.out
    assert str(target) in result.err


def test_json_and_output_together_keep_stdout_clean(run, engine, scenario, tmp_path):
    result = run("predict", scenario, "--json", "--output", tmp_path / "p.json")
    assert json.loads(result.out) == engine.data


def test_a_folder_that_is_missing_is_bad_input(run, engine, scenario, tmp_path):
    result = run("predict", scenario, "--json", "--output", tmp_path / "missing" / "p.json")
    assert result.code == 2
    assert "does not exist" in result.err
    assert run("predict", scenario, "--output", tmp_path).code == 2


def test_a_device_is_written_to_and_not_replaced(run, engine, scenario):
    from pathlib import Path

    device = Path("/dev/null")
    if not device.is_char_device():
        pytest.skip("no null device here")
    assert run("predict", scenario, "--output", device).code == 0
    assert device.is_char_device()


def test_a_failed_write_keeps_the_old_file(run, engine, scenario, tmp_path, monkeypatch):
    from pathlib import Path

    target = tmp_path / "p.json"
    target.write_text("old", encoding="utf-8")

    def refuse(self, other):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    result = run("predict", scenario, "--output", target)
    assert result.code == 2
    assert "No space left on device" in result.err
    assert target.read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "scenario.yaml"]


def test_require_fit_fails_after_showing_everything(run, engine, scenario):
    result = run("predict", scenario, "--require-fit")
    assert result.code == 1
    assert "Where the numbers come from" in result.out
    assert "megatron" in result.err
    assert run("predict", scenario).code == 0


def test_require_fit_takes_no_verdict_for_no(run, engine, scenario):
    del engine.data["systems"]["megatron"]
    assert run("predict", scenario, "--require-fit").code == 0
    engine.data["systems"]["hyscale"]["memory"] = None
    assert run("predict", scenario, "--require-fit").code == 1


def test_bad_input_is_one_line_without_a_traceback(run, engine, scenario):
    engine.error = InputError("cp must divide\x1b[2J 1048576", file="s.yaml", line=7, field="layout.cp", expected="128")
    result = run("predict", scenario, "--json")
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: s.yaml:7: layout.cp: cp must divide")
    assert "Expected: 128" in result.err
    assert "Traceback" not in result.err
    assert "\x1b" not in result.err


def test_a_missing_file_is_bad_input(run, engine, tmp_path):
    result = run("predict", tmp_path / "absent.yaml")
    assert result.code == 2
    assert "no such file" in result.err


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_is_not_finite_never_leaves(run, engine, scenario, tmp_path, value, options):
    engine.data["systems"]["hyscale"]["busy_time_s"] = value
    target = tmp_path / "p.json"
    result = run("predict", scenario, *options, "--output", target)
    assert result.code == 3
    assert result.out == ""
    assert "systems.hyscale.busy_time_s" in result.err
    assert not target.exists()


@pytest.mark.parametrize(
    "options", [("--draws", "0"), ("--draws", "many"), ("--seed", "-1"), ("--nonsense",), ("another",)]
)
def test_misuse_is_bad_input_with_a_pointer_to_help(run, engine, scenario, options):
    result = run("predict", scenario, *options)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert "hyscale predict --help" in result.err
    assert len(result.err.splitlines()) <= 3


def test_one_number_is_explained(run):
    result = run("predict", SHIPPED, "--explain", "systems.megatron.time_s.optimizer")
    assert result.code == 0
    assert "HBM rate" in result.out
    told = run("predict", SHIPPED, "--explain", "layout.cp", "--json")
    assert json.loads(told.out)["value"] == 32
    assert run("predict", SHIPPED, "--explain", "nothing").code == 2
