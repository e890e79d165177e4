"""Traces of an attention layer of GLM-5.1 that ran on an H200, against times of its phases taken without the profiler.

Each file in ``recorded`` says in its key ``origin`` how it was made.
"""

import gzip
import json
from pathlib import Path

import pytest

from hyscale_model.traces import attribute, read_trace, shipped_rules

FOLDER = Path(__file__).parent / "recorded"
# Parts of a step and the phases that they are; the rest are projections, norms and copies.
PHASES = {
    "selection_forward": ["forward.selection"],
    "selection_recompute": ["recompute.selection"],
    "sparse_attention_forward": ["forward.sparse_attention"],
    "sparse_attention_recompute": ["recompute.sparse_attention"],
    "sparse_attention_backward": ["backward.sparse_attention"],
    "index_loss": ["recompute.index_loss", "backward.index_loss"],
}
# Phases that kernels of ours or of a top-k fill; the others hold concatenations and sums of PyTorch too.
FILLED = ("selection_forward", "sparse_attention_backward")


@pytest.fixture(scope="module", params=["megatron", "hyscale"])
def recorded(request):
    path = FOLDER / f"glm-5.1-131072-{request.param}.json.gz"
    told = json.loads(gzip.decompress(path.read_bytes()))
    return attribute(read_trace(path), shipped_rules()), told


def test_nearly_all_of_the_gpu_time_is_attributed(recorded):
    found, _ = recorded
    assert found.attributed_share >= 0.95
    assert found.uncertain_s < 0.01 * found.busy_s


def test_the_step_under_the_profiler_is_that_without(recorded):
    found, told = recorded
    assert found.busy_s == pytest.approx(told["step_ms"] * 1e-3, rel=0.1)
    assert found.busy_s < found.step_s < 1.1 * told["step_ms"] * 1e-3


def test_parts_are_the_phases_that_were_measured(recorded):
    found, told = recorded
    parts = {part.terms[0]: part.seconds for part in found.parts if len(part.terms) == 1}
    for term, phases in PHASES.items():
        measured = sum(told["phases_ms"][phase] for phase in phases) * 1e-3
        # A phase holds its kernels, what PyTorch does between them, and waiting for the host.
        assert 0.55 * measured <= parts[term] <= 1.02 * measured, term
        if term in FILLED:
            assert parts[term] == pytest.approx(measured, rel=0.06), term


def test_products_are_told_together_and_are_what_is_left(recorded):
    found, told = recorded
    (rest,) = (part for part in found.parts if len(part.terms) > 1)
    assert {"projections", "index_projections", "other_compute"} <= set(rest.terms)
    known = {phase for phases in PHASES.values() for phase in phases}
    others = sum(value for phase, value in told["phases_ms"].items() if phase not in known) * 1e-3
    assert rest.seconds == pytest.approx(others, rel=0.1)


def test_replay_recomputes_a_selection_in_a_fraction_of_its_time(recorded):
    found, told = recorded
    parts = {part.terms[0]: part.seconds for part in found.parts}
    share = parts["selection_recompute"] / parts["selection_forward"]
    assert share < 0.15 if "hyscale" in told["origin"] else share == pytest.approx(1, rel=0.01)
