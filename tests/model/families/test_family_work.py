"""Work of single tasks of a family by hand: 16,384 queries on one of four context ranks, 65,536 tokens."""

from dataclasses import replace

import numpy as np
import pytest

from hyscale_model.batch import case_of
from hyscale_model.families import anatomy
from hyscale_model.layers.kept import attention_kept
from hyscale_model.layers.sizes import Sizes

QUERIES, LENGTH = 16384, 65536
# Rows of a key that share its tile: 12 heads fill one warp tile of 16 rows at 0.6 of the rate.
PADDED_12 = 16 / 0.6


def selected(topk, ratio):
    return np.minimum(np.arange(1, LENGTH + 1) // ratio, topk).mean()


def window(tokens):
    return np.minimum(np.arange(1, LENGTH + 1), tokens).mean()


def task(found, block, name, phase="forward"):
    (match,) = {id(w): w for (b, p, _, n), w in found.items() if (b, p, n) == (block, phase, name)}.values()
    return match


@pytest.mark.parametrize(
    ("name", "block", "heads", "widths", "keys", "padding"),
    [
        ("glm-5.1", "dsa.core", 64, 1088, selected(2048, 1), 1),
        ("glm-5.2", "dsa_shared.core", 64, 1088, selected(2048, 1), 1),
        ("deepseek-v4-flash", "csa.core", 64, 1024, selected(512, 4) + window(128), 1),
        ("deepseek-v4-pro", "csa.core", 128, 1024, selected(1024, 4) + window(128), 1),
        ("qwen3.8-flash-next", "qsa.core", 24, 512, 4 * selected(512, 4) + window(3), PADDED_12 / 12),
    ],
)
def test_sparse_cores_multiply_selected_keys_in_padded_rows(work, models, name, block, heads, widths, keys, padding):
    found = work(models[name])
    forward = task(found, block, "sparse_attention.forward")
    useful = 2 * QUERIES * heads * widths * keys
    assert forward.flops == pytest.approx(useful * padding, rel=1e-3)
    backward = task(found, block, "sparse_attention.backward", "backward")
    assert backward.flops == pytest.approx(2.5 * useful * padding, rel=1e-3)


def test_the_teacher_of_qsa_meets_every_token_of_a_block(work, models):
    teacher = task(work(models["qwen3.8-flash-next"]), "qsa.core", "index_loss.teacher", "recompute")
    products = 2 * 2 * QUERIES * 24 * 4 * selected(512, 4) * 256
    assert teacher.flops == pytest.approx(products * PADDED_12 / 12, rel=1e-3)


def test_the_teacher_of_csa_meets_compressed_entries(work, models):
    teacher = task(work(models["deepseek-v4-flash"]), "csa.core", "index_loss.teacher", "recompute")
    assert teacher.flops == pytest.approx(2 * 2 * QUERIES * 64 * selected(512, 4) * 512, rel=1e-3)


def test_hytopk_keeps_three_times_k_of_the_compressed_keys(work, models):
    """16,384 entries at most: 4,096 samples, a threshold for 1,536 candidates; 4 bytes of score each."""
    select = task(work(models["deepseek-v4-flash"], system="hyscale"), "csa.core", "selection.select")
    assert select.sm_work == pytest.approx(4 * QUERIES * selected(1536, 4), rel=1e-3)


# Values of a whole sequence that context ranks gather, keys and values, and index keys; BF16.
GATHERED = {
    ("glm-5.1", "dsa"): (LENGTH * 576, LENGTH * 128),
    ("glm-5.2", "dsa_shared"): (LENGTH * 576, None),
    # Dense latent attention exchanges what its kernel reads: 128 heads of 192 and 128.
    ("deepseek-v3", "mla"): (LENGTH * 128 * (192 + 128), None),
    ("deepseek-v4-flash", "csa"): (LENGTH / 4 * 512, LENGTH / 4 * 128),
    ("deepseek-v4-flash", "hca"): (LENGTH / 128 * 512, None),
    ("llama-3-8b", "gqa"): (LENGTH * 2 * 8 * 128, None),
    ("gpt-22b", "mha"): (LENGTH * 2 * 6144, None),
}


@pytest.mark.parametrize(("name", "kind"), GATHERED)
def test_context_ranks_gather_what_attention_reads(work, models, name, kind):
    found = work(models[name])
    keys, index = GATHERED[name, kind]
    assert task(found, f"{kind}.core", "cp.keys").payload_bytes == 2 * keys
    assert task(found, f"{kind}.core", "cp.keys_gradient", "backward").payload_bytes == 2 * keys
    names = {each for block, _, _, each in found if block == f"{kind}.core"}
    assert ("cp.index_keys" in names) == (index is not None)
    if index is not None:
        assert task(found, f"{kind}.core", "cp.index_keys").payload_bytes == 2 * index


def test_qsa_gathers_index_keys_of_blocks(work, models):
    assert task(work(models["qwen3.8-flash-next"]), "qsa.core", "cp.index_keys").payload_bytes == 2 * LENGTH / 4 * 128


def test_qsa_gathers_keys_and_values_of_tokens(work, models):
    """2 key-value heads of 256, key and value: 1,024 values a token."""
    assert task(work(models["qwen3.8-flash-next"]), "qsa.core", "cp.keys").payload_bytes == 2 * LENGTH * 1024


@pytest.mark.parametrize(("name", "kind"), [("deepseek-v4-flash", "swa"), ("qwen3.8-flash-next", "gdn")])
def test_windows_and_recurrences_gather_no_sequence(work, models, name, kind):
    assert not {task for block, _, _, task in work(models[name]) if block == f"{kind}.core" and task.startswith("cp.")}


def test_a_gated_delta_rule_reads_and_writes_every_head_once(work, models):
    """Queries, keys, values and outputs of 48 value heads, or of 16 key heads where kernels share them; BF16."""
    found = work(models["qwen3.8-flash-next"])
    forward = task(found, "gdn.core", "linear_attention.forward")
    assert 2 * QUERIES * 128 * (2 * 48 + 2 * 16) <= forward.hbm_bytes <= 2 * QUERIES * 128 * 4 * 48
    assert forward.sm_work == 6 * QUERIES * 48 * 128 * 128
    assert task(found, "gdn.core", "linear_attention.backward", "backward").sm_work == 2.5 * forward.sm_work


def test_streams_of_hyper_connections_are_all_sent_between_stages(predicted_model, models):
    """Four residual streams of 16,384 tokens; latency is little beside 0.5 GB."""
    sent = [
        predicted_model(replace(models["deepseek-v4-flash"], hc_mult=streams))["systems"]["megatron"]["time_s"][
            "pp_communication_exposed"
        ]
        for streams in (1, 2, 4)
    ]
    assert sent[2] - sent[0] == pytest.approx(3 * (sent[1] - sent[0]), rel=1e-6)
    assert sent[2] == pytest.approx(4 * sent[0], rel=0.02)


def test_the_widest_attention_is_there_in_the_backward_pass_of_experts(evaluate, resolve_model, models):
    """Activations of a layer's attention beside those of its experts: of the widest kind, CSA."""
    resolved = resolve_model(models["deepseek-v4-flash"], pp=1)
    found = evaluate(resolved.scenario).memory[0]
    body = anatomy(resolved.scenario.model)

    def nominal(moment):
        return float(np.ravel(found.at[moment, "activations"])[0])

    case = case_of(resolved.scenario, resolved.scenario.systems[0])
    wholes = [attention_kept(case, Sizes.of(case), each, body).whole for each in body.attentions]
    assert max(wholes) == wholes[[each.kind for each in body.attentions].index("csa")]
    widest = (nominal("backward, experts") - nominal("forward, experts")) / float(np.ravel(found.allocator)[0])
    assert widest == pytest.approx(max(wholes), rel=1e-9)
