import json

from hyscale_model import catalog

SCENARIO = catalog.path("published", "glm-5.1-1m-512xh20")


def write(tmp_path, seconds):
    path = tmp_path / "run.yaml"
    path.write_text(f"system: megatron\nmeasured: {{step_time_s: {seconds}}}\n")
    return path


def test_people_see_before_and_after(run, tmp_path):
    result = run("fit-run", SCENARIO, "--measured", write(tmp_path, 180))
    assert result.code == 0
    assert "Predicted, before and after" in result.out
    assert "workload.global_batch" in result.out


def test_json_is_all_that_stdout_holds(run, tmp_path):
    out = tmp_path / "fit.json"
    result = run("fit-run", SCENARIO, "--measured", write(tmp_path, 180), "--json", "--output", out)
    assert json.loads(result.out) == json.loads(out.read_text())


def test_a_measurement_that_nothing_explains_is_an_exit_of_one(run, tmp_path):
    result = run("fit-run", SCENARIO, "--measured", write(tmp_path, 20))
    assert result.code == 1
    assert "outside what the scenario leaves open" in " ".join(result.out.split())
    assert "not explained" in result.err


def test_a_file_that_is_missing_is_bad_input(run, tmp_path):
    result = run("fit-run", SCENARIO, "--measured", tmp_path / "none.yaml")
    assert result.code == 2
    assert "there is no such file" in result.err
