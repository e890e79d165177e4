import json
import subprocess
from types import SimpleNamespace

import pytest

from hyscale_model import checks as checks_module
from hyscale_model.cli import check, doctor


def test_check_passes_its_arguments_on(run, checks):
    result = run("check", "a.yaml", "b.yaml", "--group", "paper", "--profile", "h200-sxm")
    assert result.code == 0
    called = checks.called
    assert (called.groups, called.files, called.profile) == (("paper",), ("a.yaml", "b.yaml"), "h200-sxm")
    assert "No bar failed." in result.out


def test_check_json(run, checks):
    result = run("check", "--json")
    assert result.code == 0
    assert json.loads(result.out) == checks.data
    assert checks.called.groups == ()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_missed_bar_is_a_failed_requirement(run, checks, options):
    checks.data["summary"]["paper"]["passed"] = False
    result = run("check", *options)
    assert result.code == 1
    assert result.out
    assert "1 bar missed" in result.err


def test_groups_may_stand_between_commas(run, checks):
    assert run("check", "--group", "kernels,layers", "--group", "paper").code == 0
    assert checks.called.groups == ("kernels", "layers", "paper")


def test_the_groups_that_the_command_names_are_those_there_are():
    assert sorted(check.GROUPS) == sorted(checks_module.GROUPS)


def test_an_unknown_group_is_bad_input(run, checks):
    result = run("check", "--group", "papers")
    assert result.code == 2
    assert "paper" in result.err
    assert checks.called is None


def test_schema_is_json(run, engine):
    for options in ((), ("--json",)):
        result = run("schema", *options)
        assert result.code == 0
        assert json.loads(result.out) == {"type": "object", "title": "é"}


def test_catalog_lists_kinds_and_entries(run, facts):
    result = run("catalog")
    assert result.code == 0
    assert "h20-96" in result.out
    assert "published" in result.out
    assert json.loads(run("catalog", "--json").out)["gpus"] == [
        {"name": "h20-96", "description": "NVIDIA H20 96 GB"},
    ]
    assert list(json.loads(run("catalog", "gpus", "--json").out)) == ["gpus"]
    assert "none" in run("catalog", "models").out


def test_a_catalogue_entry_shows_the_source_of_each_value(run, facts):
    data = json.loads(run("catalog", "gpus", "h20-96", "--json").out)
    assert data["values"]["memory_bytes"] == {"value": 102625181696, "source": "the driver"}
    assert data["values"]["sms"] == {"value": 78, "source": "a data sheet"}
    text = run("catalog", "gpus", "h20-96").out
    assert "102,625,181,696" in text
    assert "the driver" in text
    assert text.count("a data sheet") == 1
    assert "148,000,000,000,000" in text


def test_a_file_that_is_no_list_of_fields_is_shown_as_it_is(run, facts):
    data = json.loads(run("catalog", "published", "paper", "--json").out)
    assert data["description"] == "a table"
    assert data["values"]["rows"]["value"] == [{"id": "P1", "value": 2.07}]
    assert run("catalog", "published", "paper").code == 0


def test_what_the_catalogue_does_not_have_is_bad_input(run, facts):
    assert run("catalog", "gpus", "h21").code == 2
    assert run("catalog", "cars").code == 2


def test_doctor(run, facts, monkeypatch, tmp_path):
    import hyscale_model.locations

    monkeypatch.setattr(doctor, "gpus", lambda: [{"name": "H200", "memory": "1 MiB", "driver": "1"}])
    monkeypatch.setattr(hyscale_model.locations, "user_profile_directory", lambda: tmp_path)
    (tmp_path / "mine.json").write_text("{}", encoding="utf-8")
    result = run("doctor", "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert data["packages"]["numpy"]
    assert data["profiles"]["yours"] == ["mine"]
    text = run("doctor").out
    assert "H200" in text
    assert "mine" in text


@pytest.mark.parametrize(
    ("stale", "told"), [([], None), (["h200-sxm/x"], "h200-sxm/x"), (ModuleNotFoundError("x"), "not installed")]
)
def test_doctor_tells_which_measurements_are_of_other_kernels(run, facts, monkeypatch, stale, told):
    recorded = pytest.importorskip("hyscale_calibration.recorded")

    def stale_results():
        if isinstance(stale, Exception):
            raise stale
        return stale

    monkeypatch.setattr(recorded, "stale_results", stale_results)
    monkeypatch.setattr(doctor, "gpus", list)
    data = json.loads(run("doctor", "--json").out)
    assert data["stale_results"] == (None if isinstance(stale, Exception) else stale)
    text = run("doctor").out
    assert ("results, stale" in text) == (told is not None)
    assert told is None or told in " ".join(text.split())


@pytest.mark.parametrize("failure", [OSError("no"), subprocess.TimeoutExpired("x", 1), None])
def test_a_driver_that_does_not_answer_means_no_gpu(monkeypatch, failure):
    def answer(*_arguments, **_options):
        if failure is not None:
            raise failure
        return SimpleNamespace(stdout="NVIDIA H200, 143771 MiB, 570.1\nnonsense\n")

    monkeypatch.setattr(doctor.shutil, "which", lambda _name: "nvidia-smi")
    monkeypatch.setattr(doctor.subprocess, "run", answer)
    assert doctor.gpus() == (
        [] if failure is not None else [{"name": "NVIDIA H200", "memory": "143771 MiB", "driver": "570.1"}]
    )
