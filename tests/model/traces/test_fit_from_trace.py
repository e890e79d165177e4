"""A trace that was made from a known truth narrows the prediction to it."""

import pytest

from hyscale_model import catalog
from hyscale_model.errors import InputError
from hyscale_model.predict import predict
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.fit_run import ERROR, TERM_ERROR, Measured, fit_run, measured_in_trace, told
from hyscale_model.traces import attribute, read_trace, shipped_rules
from hyscale_model.traces.attribution import Attribution, Part

NAME = "glm-5.1-1m-512xh20"
TEXT = catalog.path("published", NAME).read_bytes()
# A kernel of each term, and what encloses its launch.
KERNELS = {
    "selection_forward": ("void at::native::mbtopk::radixFindKthValues<float>", "forward"),
    "selection_recompute": ("void at::native::mbtopk::radixFindKthValues<float>", "CheckpointFunctionBackward"),
    "index_loss": ("gradient_kernel", "forward"),
    "sparse_attention_forward": ("main_kernel", "SparseMLA"),
    "sparse_attention_backward": ("main_kernel", "SparseMLABackward"),
    "projections": ("nvjet_tst_128x256", "forward"),
    "moe": ("grouped_gemm", "forward"),
    "optimizer": ("multi_tensor_apply_kernel", "forward"),
}


@pytest.fixture(scope="module")
def resolved():
    return read_scenario(NAME, text=TEXT)


def record(recorder, path, times, factor=1.0):
    """A trace in which every term of a step takes its time; kernels of those without one of their own are unknown."""
    at, seconds = 0.0, 1e6 * factor
    recorder.operation("forward", -10, 5)
    for term, each in times.items():
        name, within = KERNELS.get(term, (f"unheard_of_{term}", "forward"))
        if term.endswith("_exposed"):
            group = {"cp": "CONTEXT", "ep": "EXPERT_MODEL", "dp": "DATA", "pp": "PIPELINE"}[term[:2]]
            recorder.collective("AllGather", at, each * seconds, f"{group}_PARALLEL_GROUP")
        elif each:
            recorder.operation(within, at, 10)
            recorder.kernel(name, at, each * seconds, launched=at + 1)
        at += each * seconds
    return read_trace(recorder.write(path))


@pytest.mark.parametrize("batch", [4, 16])
def test_the_batch_of_a_run_is_found_from_its_trace(recorder, resolved, tmp_path, batch):
    truth = predict(read_scenario(NAME, text=TEXT, overrides=[f"workload.global_batch_size={batch}"]), draws=1).data
    system = truth["systems"]["megatron"]
    trace = record(recorder, tmp_path / "trace.json", system["time_s"])
    found = attribute(trace, shipped_rules())
    measured = measured_in_trace(found, resolved.scenario)
    assert measured.system == "megatron"
    assert measured.values["step_time_s"] == pytest.approx(system["step_time_s"]["nominal"], rel=1e-6)
    assert measured.values["time_s.selection_forward"] == pytest.approx(system["time_s"]["selection_forward"], rel=1e-6)
    data = fit_run(resolved, measured)
    assert data["explained"]
    row = next(row for row in data["inputs"] if row["input"] == "workload.global_batch_size")
    assert {each["value"]: each["after"] for each in row["choices"]}[batch] > 0.99
    wanted = truth["systems"]["hyscale"]["step_time_s"]["nominal"]
    after = data["systems"]["hyscale"]["after"]
    assert after["p10"] < wanted < after["p90"]
    alone = fit_run(resolved, Measured("megatron", {"step_time_s": found.step_s}))
    assert data["effective_draws"] < alone["effective_draws"]


def test_parts_that_nothing_explains_are_refused_though_the_step_could_be(resolved):
    step = predict(resolved, draws=1).data["systems"]["megatron"]["step_time_s"]["nominal"]
    found = Attribution(step, (step,), step, (Part(("moe",), 0.9 * step, 0.0),), 0.0, (), 0.0)
    assert fit_run(resolved, Measured("megatron", {"step_time_s": step}))["explained"]
    assert not fit_run(resolved, measured_in_trace(found, resolved.scenario))["explained"]


def test_what_is_not_attributed_makes_every_part_less_certain(resolved):
    parts = (Part(("moe",), 4.0, 0.0), Part(("projections", "head_and_loss"), 2.0, 0.0), Part(("optimizer",), 0.1, 0.0))
    found = Attribution(10.0, (10.0,), 9.0, parts, 1.5, (("unheard_of", 1.5),), 0.5)
    measured = measured_in_trace(found, resolved.scenario, "hyscale")
    assert measured.system == "hyscale"
    assert measured.values == {"step_time_s": 10.0, "time_s.moe": 4.0, "time_s.projections+head_and_loss": 2.0}
    assert measured.error_of("step_time_s") == ERROR
    assert measured.error_of("time_s.moe") == pytest.approx((TERM_ERROR**2 + 0.5**2) ** 0.5)
    assert measured.error_of("time_s.projections+head_and_loss") == pytest.approx((TERM_ERROR**2 + 1.0) ** 0.5)
    with pytest.raises(InputError, match=r"--system: .*'hyscal'.*hyscale"):
        measured_in_trace(found, resolved.scenario, "hyscal")


def test_what_is_told_sums_to_the_step(recorder, resolved, tmp_path):
    times = predict(resolved, draws=1).data["systems"]["megatron"]["time_s"]
    trace = record(recorder, tmp_path / "trace.json", times)
    data = told(trace, attribute(trace, shipped_rules()))
    parts = sum(part["seconds"] for part in data["parts"]) + data["uncertain_s"] + data["unattributed_s"]
    assert parts == pytest.approx(data["busy_s"])
    assert {row["kernel"] for row in data["largest_unattributed"]} >= {"unheard_of_index_projections"}
