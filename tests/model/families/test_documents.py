"""Packed documents: attention and selection end at the borders of a document, everything else does not notice."""

import numpy as np
import pytest

from hyscale_model.layers.operation import Operation, Transfer

# Linear in the share of a document's tokens.
LINEAR = (
    "selection.score",
    "selection.filter",
    "selection.replay",
    "sparse_attention.forward",
    "sparse_attention.backward",
    "dense_attention.forward",
    "dense_attention.backward",
    "index_loss.teacher",
)
FAMILIES = ("glm-5.1", "glm-5.2", "deepseek-v3", "deepseek-v4-flash", "qwen3.8-flash-next", "llama-3-8b", "gpt-22b")


@pytest.fixture(params=FAMILIES)
def family(request, models):
    return models[request.param]


def histogram(**documents):
    lengths = ", ".join(name.removeprefix("of_") for name in documents)
    weights = ", ".join(str(count) for count in documents.values())
    return f"workload.document_lengths={{lengths: [{lengths}], weights: [{weights}]}}"


PACKED = ("workload.document_lengths=8192",)
SHORT = ("workload.sequence_length=8192", "workload.micro_batch_size=8", "workload.global_batch_size=64")


def amounts(operation):
    sm_work = operation.flops if operation.sm_work is None else operation.sm_work
    return operation.flops, sm_work, operation.launches


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
def test_equal_documents_do_the_work_of_as_many_short_sequences(work, family, system):
    packed, short = work(family, *PACKED, system=system), work(family, *SHORT, system=system)
    assert packed.keys() == short.keys()
    for key, operation in packed.items():
        if isinstance(operation, Operation):
            assert amounts(operation) == pytest.approx(amounts(short[key]), rel=1e-12), key
        else:
            assert isinstance(operation, Transfer)
            assert operation.payload_bytes == pytest.approx(short[key].payload_bytes, rel=1e-12), key


def test_equal_documents_move_the_bytes_of_as_many_short_sequences(work, family):
    packed, short = work(family, *PACKED), work(family, *SHORT)
    for key, operation in packed.items():
        if isinstance(operation, Operation):
            assert operation.hbm_bytes == pytest.approx(short[key].hbm_bytes, rel=1e-12), key


def test_scores_of_a_document_are_its_own(work, models):
    """8 documents of 8,192: an eighth of the scores, (8,192 + 1) / 2 keys a query over 16,384 queries."""
    whole, packed = (work(models["glm-5.1"], *each) for each in ((), PACKED))
    key = next(key for key in packed if key[-1] == "selection.score")
    assert packed[key].flops == 2 * 16384 * 8193 / 2 * 32 * 128
    assert whole[key].flops == 2 * 16384 * 65537 / 2 * 32 * 128


@pytest.mark.parametrize("system", ["megatron", "hyscale"])
def test_a_histogram_is_the_mix_of_its_lengths_by_tokens(work, family, system):
    """One document of 65,536 and six of 8,192 and 16 of 1,024: shares of tokens, not of documents."""
    counts = {65536: 1, 8192: 6, 1024: 16}
    mixed = work(family, histogram(of_65536=1, of_8192=6, of_1024=16), system=system)
    alone = {length: work(family, f"workload.document_lengths={length}", system=system) for length in counts}
    tokens = np.array([length * count for length, count in counts.items()], dtype=float)
    found = 0
    for key, operation in mixed.items():
        if key[-1] in LINEAR:
            parts = [alone[length][key].flops for length in counts]
            assert operation.flops == pytest.approx(np.dot(parts, tokens) / tokens.sum(), rel=1e-12), key
            found += 1
    assert found >= 3


def test_a_histogram_of_one_length_is_that_length(work, family):
    one, alone = work(family, histogram(of_8192=7)), work(family, *PACKED)
    assert {key: each.flops for key, each in one.items() if isinstance(each, Operation)} == {
        key: each.flops for key, each in alone.items() if isinstance(each, Operation)
    }


def test_one_document_as_long_as_the_sequence_is_none(predicted_model, family):
    whole, none = (predicted_model(family, f"workload.document_lengths={each}") for each in (65536, "none"))
    assert whole["systems"] == none["systems"]


@pytest.mark.parametrize("order", ["zigzag", "contiguous"])
def test_packed_documents_never_cost_more(predicted_model, family, order):
    documents = ("none", "32768", "8192", "2048")
    found = [
        predicted_model(family, f"workload.document_lengths={each}", f"layout.cp_order={order}")["systems"]
        for each in documents
    ]
    for system in found[0]:
        steps = [each[system]["step_time_s"]["nominal"] for each in found]
        assert steps == sorted(steps, reverse=True)
        assert steps[-1] < steps[0]
        peaks = [each[system]["memory"]["peak_bytes"] for each in found]
        assert peaks == sorted(peaks, reverse=True)


def test_what_stands_outside_attention_does_not_notice_documents(predicted_model, family):
    # One stage: with two, the one with the most work may be another.
    whole, packed = (predicted_model(family, *each, pp=1)["systems"]["megatron"]["time_s"] for each in ((), PACKED))
    same = ("projections", "moe", "dense_ffn", "head_and_loss", "linear_attention", "hyper_connections", "optimizer")
    assert {term: whole.get(term) for term in same} == {term: packed.get(term) for term in same}


def test_documents_of_two_tokens_select_nothing(work, models):
    found = work(models["deepseek-v4-flash"], "workload.document_lengths=2")
    assert [each.flops for (*_, name), each in found.items() if name == "selection.score"] == [0, 0]
