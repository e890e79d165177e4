"""The parts of a step sum to it, whatever runs on how many streams, and belong to the terms that their kernels name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import Recorder

from hyscale_model.errors import InputError
from hyscale_model.prediction import TERMS
from hyscale_model.traces import attribute, read_rules, read_trace, shipped_rules
from hyscale_model.traces.rules import first_match
from hyscale_model.traces.trace import Kernel


def seconds(found):
    return {part.terms: pytest.approx(part.seconds) for part in found.parts}


def test_what_overlaps_is_counted_once_and_transfers_only_where_nothing_computes(recorder, attributed):
    recorder.kernel("table_kernel", 0, 100, launched=-9)
    recorder.kernel("forward_kernel", 50, 100, stream=8, launched=-8)
    recorder.collective("AllGather", 120, 80, "CONTEXT_PARALLEL_GROUP", stream=20)
    recorder.kernel("Memcpy DtoH (Device -> Pinned)", 180, 60, stream=21, category="gpu_memcpy")
    recorder.kernel("unheard_of<3>", 300, 50)
    recorder.operation("op", -10, 1)
    found = attributed(recorder)
    assert found.step_s == pytest.approx(350e-6)
    # 0 to 50 alone, 50 to 100 shared by two; of the gather 150 to 180 alone, 180 to 200 shared with the copy.
    assert seconds(found) == {
        ("selection_forward",): 75e-6,
        ("sparse_attention_forward",): 75e-6,
        ("cp_communication_exposed",): 40e-6,
        ("offload",): 50e-6,
    }
    hidden = {part.terms: part.hidden_s for part in found.parts}
    assert hidden["cp_communication_exposed",] == pytest.approx(40e-6)
    assert found.unattributed_s == pytest.approx(50e-6)
    assert [name for name, _ in found.largest] == ["unheard_of<3>"]
    assert found.busy_s == pytest.approx(290e-6)
    assert found.attributed_share == pytest.approx(240 / 290)


NAMES = st.sampled_from(
    ["table_kernel", "nvjet_tst", "ncclDevKernel_AllReduce", "Memcpy HtoD (x)", "unheard_of", "void at::native::mul"]
)
KERNELS = st.lists(st.tuples(NAMES, st.integers(0, 50), st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=20)


@settings(max_examples=60)
@given(kernels=KERNELS)
def test_parts_sum_to_the_time_in_which_anything_ran(tmp_path_factory, kernels):
    recorder = Recorder()
    for name, start, duration, stream in kernels:
        recorder.kernel(name, start, duration, stream=stream)
    trace = read_trace(recorder.write(tmp_path_factory.mktemp("trace") / "trace.json"))
    found = attribute(trace, shipped_rules())
    ran = np.zeros(100, dtype=bool)
    for _, start, duration, _ in kernels:
        ran[start : start + duration] = True
    assert found.busy_s == pytest.approx(ran.sum() * 1e-6, abs=1e-12)
    parts = sum(part.seconds for part in found.parts) + found.unattributed_s + found.uncertain_s
    assert parts == pytest.approx(found.busy_s, abs=1e-12)
    assert found.busy_s <= found.step_s + 1e-12
    assert all(part.seconds >= -1e-12 and part.hidden_s >= -1e-12 for part in found.parts)
    terms = [term for part in found.parts for term in part.terms]
    assert len(terms) == len(set(terms))


def test_steps_are_those_marked_and_the_median_counts(recorder, attributed):
    recorder.kernel("table_kernel", -100, 90, launched=-200)
    # Kernels run long after their launch, the last of each even after the next step has begun on the host.
    for number, length in enumerate((30, 50, 40)):
        recorder.step(number, 100 * number, 99)
        recorder.kernel("table_kernel", 150 + 100 * number, length, launched=100 * number + 5)
        recorder.kernel("nvjet_tst", 200 + 100 * number, 20, launched=100 * number + 90)
    found = attributed(recorder)
    assert found.steps_s == pytest.approx((100e-6, 100e-6, 70e-6))
    assert found.step_s == pytest.approx(100e-6)
    assert sum(part.seconds for part in found.parts) == pytest.approx(50e-6)


def test_without_marks_the_whole_trace_is_a_step(recorder, tmp_path):
    recorder.kernel("table_kernel", 5, 10)
    recorder.kernel("table_kernel", 105, 10)
    trace = read_trace(recorder.write(tmp_path / "trace.json.gz"))
    assert not trace.marked
    assert attribute(trace, shipped_rules()).steps_s == pytest.approx((110e-6,))


def test_what_encloses_a_launch_tells_recomputation_from_the_forward_pass(recorder, attributed):
    recorder.operation("forward", 0, 50)
    recorder.kernel("table_kernel", 0, 10, launched=10)
    recorder.operation("autograd::engine::evaluate_function: CheckpointFunctionBackward", 100, 100, thread=2)
    recorder.operation("CheckpointFunctionBackward", 101, 98, thread=2)
    recorder.kernel("table_kernel", 100, 20, launched=110, thread=2)
    recorder.kernel("forward_kernel", 120, 30, launched=120, thread=2)
    recorder.operation("autograd::engine::evaluate_function: SparseMLABackward", 130, 20, thread=2)
    recorder.operation("SparseMLABackward", 131, 18, thread=2)
    recorder.kernel("main_kernel", 150, 40, launched=140, thread=2)
    assert seconds(attributed(recorder)) == {
        ("selection_forward",): 10e-6,
        ("selection_recompute",): 20e-6,
        ("sparse_attention_recompute",): 30e-6,
        ("sparse_attention_backward",): 40e-6,
    }


def test_terms_that_share_a_kernel_are_told_together_unless_it_is_short(recorder, attributed):
    recorder.operation("forward", 0, 5000)
    recorder.kernel("grouped_gemm", 0, 500, launched=1)
    recorder.kernel("nvjet_tst", 500, 4, launched=2)
    assert seconds(attributed(recorder)) == {("moe",): 500e-6}
    assert attributed(recorder).uncertain_s == pytest.approx(4e-6)
    recorder.kernel("nvjet_tst", 504, 400, launched=3)
    (part,) = attributed(recorder).parts
    assert set(part.terms) > {"moe", "projections"}
    assert part.seconds == pytest.approx(904e-6)


@pytest.mark.parametrize(
    ("group", "term"),
    [
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
    ],
)
def test_collectives_belong_to_the_axis_of_their_group(recorder, attributed, group, term):
    recorder.collective("AllGather", 0, 10, group)
    (part,) = attributed(recorder).parts
    assert [each for each in part.terms if each.endswith("_exposed")] == [f"{term}_communication_exposed"]


@pytest.mark.parametrize(
    ("name", "within", "terms"),
    [
        ("void at::native::mbtopk::radixFindKthValues<float, unsigned int>", ("aten::topk",), {"selection_forward"}),
        ("void at::native::sbtopk::gatherTopK<float>", ("TopKRouter", "aten::topk"), {"moe"}),
        ("nvjet_hsh_256x128_64x4", ("_GroupedLinear",), {"moe"}),
        ("nvjet_hsh_256x128_64x4", ("aten::mm", "VocabParallelCrossEntropy"), {"head_and_loss"}),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<128>", (), {"dense_attention"}),
        ("void at::native::multi_tensor_apply_kernel<AdamFunctor>", (), {"optimizer"}),
        ("rescore_kernel", ("hyscale::replay",), {"index_loss"}),
        ("rescore_kernel", (), {"selection_forward"}),
        ("rescore_kernel", ("CheckpointFunctionBackward", "hyscale::replay"), {"selection_recompute"}),
        ("chunk_gated_delta_rule_fwd_kernel_h", (), {"linear_attention"}),
        ("fmha_cutlassF_bf16_aligned", (), {"dense_attention"}),
    ],
)
def test_kernels_known_by_name(name, within, terms):
    kernel = Kernel(name, "kernel", within=within)
    assert set(first_match(shipped_rules(), kernel).terms_of(kernel)) == terms


def test_every_compute_and_communication_term_has_a_rule():
    named = {term for rule in shipped_rules() for term in (*rule.terms, *rule.recomputed)}
    # Waiting for the host is the time between kernels.
    assert named == set(TERMS) - {"host_bound"}


def test_own_rules_come_first(recorder, attributed, tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text('rules:\n  - {kernel: "^table", terms: [linear_attention]}\n  - {kernel: unheard, terms: [moe]}\n')
    recorder.kernel("table_kernel", 0, 10)
    recorder.kernel("unheard_of", 10, 30)
    found = attributed(recorder, (*read_rules(path), *shipped_rules()))
    assert seconds(found) == {("moe",): 30e-6, ("linear_attention",): 10e-6}
    assert found.unattributed_s == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [{kernel: a, terms: [mo]}]", r"rules.yaml:1: rules.0.terms: .*'mo'.*moe"),
        ("rules:\n  - {kernel: '(', terms: [moe]}", r"rules.yaml:2: rules.0.kernel: no regular expression"),
        ("rules: [{terms: [moe]}]", "nothing says which kernels"),
        ("rules: [{kernel: a}]", "no terms are named"),
        ("rules: [{kernel: a, terms: [moe], expose: true}]", "unknown key 'expose'.*exposed"),
        ("rules: [{kernel: a, terms: [moe], exposed: 3}]", "true or false"),
        ("rules: []", "there are no rules"),
        ("rules: [a]", "this is 'a'"),
        ("kernels: []", "unknown key 'kernels'"),
    ],
)
def test_what_is_wrong_with_rules_is_said(tmp_path, text, message):
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_rules(path)


def test_a_trace_tells_its_gpu_and_its_ranks_and_the_busiest_of_several_counts(recorder, tmp_path):
    recorder.kernel("table_kernel", 0, 10, device=0)
    recorder.kernel("table_kernel", 0, 50, device=1)
    facts = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H20"}, {"id": 1, "name": "NVIDIA H200"}],
        "distributedInfo": {"rank": 3, "world_size": 512},
    }
    trace = read_trace(recorder.write(tmp_path / "trace.json", **facts))
    assert (trace.device, trace.ranks) == ("NVIDIA H200", 512)
    assert trace.end_s.max() == pytest.approx(50e-6)


def test_events_of_other_kinds_and_without_times_are_passed_over(recorder, attributed):
    recorder.kernel("table_kernel", 0, 10)
    recorder.events += [
        {"ph": "i", "name": "mark", "ts": 3},
        {"ph": "X", "cat": "kernel", "name": "no time", "pid": 0},
        {"ph": "X", "cat": None, "name": "x", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "rescore_kernel", "ts": 10, "dur": 5, "pid": 0, "args": None},
        {},
    ]
    assert attributed(recorder).busy_s > 0


def test_a_trace_recorded_without_a_gpu_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "trace.json"
    profiler = torch.profiler
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    ) as recording:
        for _ in range(3):
            with profiler.record_function("moe"):
                torch.ones(8, 8) @ torch.ones(8, 8)
            recording.step()
    with pytest.raises(InputError, match=r"no kernel of a GPU.*") as refused:
        read_trace(path)
    assert "ProfilerActivity.CUDA" in refused.value.expected


def test_operations_of_a_trace_that_torch_recorded_enclose_what_they_launched(tmp_path):
    """A trace of torch itself, to which kernels are added as if its matrix products had launched them."""
    torch = pytest.importorskip("torch")
    import json

    path = tmp_path / "trace.json"
    profiler = torch.profiler
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    ) as recording:
        for _ in range(3):
            weights = torch.ones(8, 8, requires_grad=True)
            with profiler.record_function("GroupedLinear"):
                product = weights @ weights
            product.sum().backward()
            recording.step()
    data = json.loads(path.read_text())
    products = [each for each in data["traceEvents"] if each.get("name") == "aten::mm"]
    assert len(products) == 2 * 3
    end = max(each["ts"] + each["dur"] for each in products)
    for number, each in enumerate(products):
        place = {"pid": each["pid"], "tid": each["tid"], "args": {"correlation": number}}
        middle = each["ts"] + each["dur"] / 2
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": middle, "dur": 0.01, **place}
        start = end + 100 * number
        kernel = {"ph": "X", "cat": "kernel", "name": "nvjet", "ts": start, "dur": 50, "pid": 0, "args": place["args"]}
        data["traceEvents"] += [launch, kernel]
    path.write_text(json.dumps(data))
    trace = read_trace(path)
    assert trace.marked
    assert len(trace.steps) == 2
    chains = [trace.kernels[kind].within for kind in trace.kind]
    assert all("aten::mm" in chain for chain in chains)
    assert sum("GroupedLinear" in chain for chain in chains) == 2
    assert sum(any(name.endswith("MmBackward0") for name in chain) for chain in chains) == 4
