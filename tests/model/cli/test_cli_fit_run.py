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


def trace(tmp_path, *kernels):
    path = tmp_path / "trace.json"
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "ts": at * 1e7,
            "dur": 1e7,
            "pid": 0,
            "tid": 7,
            "args": {"device": 0},
        }
        for at, name in enumerate(kernels)
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_people_see_where_the_time_of_a_trace_went(run, tmp_path):
    path = trace(tmp_path, *["table_kernel"] * 8, *["nvjet_tst"] * 9, "unheard_of<\x1b[31m>")
    result = run("fit-run", SCENARIO, "--measured", path)
    assert result.code in (0, 1)
    assert "the whole trace" in result.out
    assert "selection_fwd, selection_rec" in result.out
    assert "unheard_of" in result.out
    assert "\x1b" not in result.out


def test_a_trace_in_json_with_own_rules(run, tmp_path):
    path = trace(tmp_path, *["table_kernel"] * 17, "unheard_of")
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{kernel: unheard, terms: [optimizer]}]")
    options = ("--measured", path, "--json", "--draws", 500)
    plain = json.loads(run("fit-run", SCENARIO, *options).out)
    assert plain["trace"]["largest_unattributed"] == [{"kernel": "unheard_of", "seconds": 10.0}]
    own = json.loads(run("fit-run", SCENARIO, *options, "--kernels", rules, "--system", "hyscale").out)
    assert own["trace"]["attributed_share"] == 1
    assert own["system"] == "hyscale"


def test_options_of_a_trace_are_refused_for_a_measurement(run, tmp_path):
    result = run("fit-run", SCENARIO, "--measured", write(tmp_path, 180), "--system", "hyscale")
    assert result.code == 2
    assert "--system: this is for a trace" in result.err
