import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_an_internal_error_keeps_its_traceback_in_a_file(run, engine, scenario, temporary):
    engine.error = RuntimeError("the roof\nis on fire")
    result = run("predict", scenario)
    assert result.code == 3
    assert result.out == ""
    assert "internal error: RuntimeError: the roof is on fire" in result.err
    assert "Traceback" not in result.err
    (kept,) = temporary.iterdir()
    assert str(kept) in result.err
    details = kept.read_text(encoding="utf-8")
    assert "Traceback" in details
    assert str(scenario) in details


def test_debug_shows_the_traceback(run, engine, scenario, temporary):
    engine.error = RuntimeError("the roof")
    result = run("--debug", "predict", scenario)
    assert result.code == 3
    assert "Traceback" in result.err
    assert not list(temporary.iterdir())


def test_an_internal_error_is_told_even_without_a_temporary_folder(run, engine, scenario, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    engine.error = RuntimeError("the roof")
    result = run("predict", scenario)
    assert result.code == 3
    assert "Traceback" not in result.err
    assert "--debug" in result.err


def test_an_interrupt_is_130(run, engine, scenario):
    engine.error = KeyboardInterrupt()
    result = run("predict", scenario)
    assert result.code == 130
    assert "Traceback" not in result.err


def test_a_closed_pipe_is_quiet(run, engine, scenario):
    engine.error = BrokenPipeError(32, "Broken pipe")
    result = run("predict", scenario)
    assert result.code == 141
    assert result.err == ""


def test_a_closed_pipe_is_quiet_in_a_process_too(tmp_path):
    # The reader is gone before anything is written.
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); time.sleep(0.5)\n"
        "from hyscale_model.cli.main import main\n"
        "sys.exit(main(['--help']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(ROOT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert err == ""


def test_commands_without_arguments(run):
    result = run()
    assert result.code == 2
    assert "Usage: hyscale" in result.out
    assert run("predict").code == 2
    unknown = run("predcit")
    assert unknown.code == 2
    assert "predcit" in unknown.err


def test_help_and_version(run):
    assert run("--help").code == 0
    version = run("--version")
    assert version.code == 0
    assert re.match(r"hyscale \S+", version.out)


@pytest.mark.parametrize("command", ["predict", "check", "catalog", "schema", "doctor"])
def test_every_command_explains_itself_and_takes_json(run, command):
    result = run(command, "--help")
    assert result.code == 0
    assert "--json" in result.out


def test_a_terminal_without_a_character_is_no_error(engine, scenario, monkeypatch):
    import io

    from hyscale_model.cli.main import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    engine.data["scenario"]["name"] = "长上下文"
    assert main(["predict", str(scenario)]) == 0
    assert b"????" in out.buffer.getvalue()
