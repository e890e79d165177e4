"""A step that was made from a known truth is found again, and one that nothing explains narrows nothing."""

import numpy as np
import pytest

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.fit_run import Measured, fit_run, read_measured

NAME = "glm-5.1-1m-512xh20"
TEXT = catalog.path("published", NAME).read_bytes()
BATCHES = [4, 8, 16]


def read(*overrides):
    return read_scenario(NAME, text=TEXT, overrides=overrides)


@pytest.fixture(scope="module")
def resolved():
    return read()


def truth(**settings):
    """What a run with these settings would measure, by the model at nominal rates."""
    data = predict(read(*(f"{path}={value}" for path, value in settings.items())), draws=1).data
    return {name: system["step_time_s"]["nominal"] for name, system in data["systems"].items()}, data


@pytest.mark.parametrize("batch", BATCHES)
def test_the_batch_of_a_run_is_found_from_its_step_time(resolved, batch):
    steps, _ = truth(**{"workload.global_batch_size": batch})
    data = fit_run(resolved, Measured("megatron", {"step_time_s": steps["megatron"]}))
    assert data["explained"]
    row = next(row for row in data["inputs"] if row["input"] == "workload.global_batch_size")
    chosen = {each["value"]: each["after"] for each in row["choices"]}
    assert chosen[batch] > 0.99
    assert sum(chosen.values()) == pytest.approx(1)
    # The system that was not measured is narrowed with it, around its truth.
    after, before = (data["systems"]["hyscale"][when] for when in ("after", "before"))
    assert after["p10"] < steps["hyscale"] < after["p90"]
    assert after["p90"] - after["p10"] < 0.3 * (before["p90"] - before["p10"])


def test_more_measurements_and_smaller_errors_leave_fewer_draws(resolved):
    steps, data = truth(**{"workload.global_batch_size": 4})
    share = data["systems"]["megatron"]["selection_share_of_step"]["nominal"]
    values = {"step_time_s": steps["megatron"]}
    one = fit_run(resolved, Measured("megatron", values))
    two = fit_run(resolved, Measured("megatron", values | {"selection_share_of_step": share}))
    finer = fit_run(resolved, Measured("megatron", values, error=0.01))
    assert two["effective_draws"] < one["effective_draws"]
    assert finer["effective_draws"] < one["effective_draws"]


def test_an_error_so_large_that_nothing_is_said_changes_nothing(resolved):
    data = fit_run(resolved, Measured("megatron", {"step_time_s": 180.0}, error=1e6))
    assert data["effective_draws"] == pytest.approx(data["draws"])
    for row in (*data["systems"].values(), *data["speedup"].values()):
        assert row["after"] == pytest.approx(row["before"])
    assert all(row["moved"] < 1e-3 for row in data["inputs"])


def test_what_no_draw_explains_narrows_nothing(resolved):
    data = fit_run(resolved, Measured("megatron", {"step_time_s": 20.0}))
    assert not data["explained"]
    assert data["inputs"] == []
    assert all("after" not in row for row in (*data["systems"].values(), *data["speedup"].values()))
    # Each could be, but not both at once.
    data = fit_run(resolved, Measured("megatron", {"step_time_s": 600.0, "selection_share_of_step": 0.1}))
    assert not data["explained"]


def test_percentiles_before_are_those_of_predict(resolved):
    predicted = predict(resolved, draws=4096).data
    data = fit_run(resolved, Measured("hyscale", {"time_s.selection_forward": 20.0}, error=1e6))
    for name, row in data["systems"].items():
        wanted = {key: predicted["systems"][name]["step_time_s"][key] for key in row["before"]}
        assert row["before"] == pytest.approx(wanted, rel=0.01)
    assert np.isfinite(data["measured"][0]["before"]["p50"])


def test_a_file_is_read(tmp_path, resolved):
    path = tmp_path / "run.yaml"
    path.write_text("system: hyscale\nmeasured: {step_time_s: 110, time_s.moe: 9.5}\nerror: 0.05\n")
    measured = read_measured(path, resolved.scenario)
    assert measured == Measured("hyscale", {"step_time_s": 110.0, "time_s.moe": 9.5}, 0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system: hyscal\nmeasured: {step_time_s: 1}", r"run.yaml:1: system: .*'hyscal'.*hyscale"),
        ("measured: {step_time: 1}", r"run.yaml:1: measured.step_time: .*step_time_s"),
        ("measured:\n  step_time_s: -1", r"run.yaml:2: measured.step_time_s: .*above 0"),
        ("measured:\n  step_time_s: fast", r"run.yaml:2: .*above 0"),
        ("measured: {step_time_s: 1}\nerror: 0", r"run.yaml:2: error: .*above 0"),
        ("system: hyscale", "nothing is measured"),
        ("measured: {step_time_s: 1}\nspeed: 3", r"run.yaml:2: speed: unknown key"),
    ],
)
def test_what_a_file_says_wrong_is_named_with_its_place(tmp_path, resolved, text, message):
    path = tmp_path / "run.yaml"
    path.write_text(text + "\n")
    with pytest.raises(InputError, match=message):
        read_measured(path, resolved.scenario)
