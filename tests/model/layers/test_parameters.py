import pytest

from hyscale_model.layers.parameters import Parameters, TokenFlops, training_flops_per_token

HIDDEN, HEADS, Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 6144, 64, 2048, 512, 192, 64, 256
VOCABULARY, LAYERS, DENSE_LAYERS, EXPERTS, EXPERTS_A_TOKEN = 154880, 78, 3, 256, 8
INDEX_HEADS, INDEX_WIDTH, TOPK = 32, 128, 2048
LENGTH = 1048576


@pytest.fixture(scope="module")
def glm(resolve):
    return resolve().scenario.model


def weights():
    """Every weight tensor of a DSA layer by its checkpoint shape."""
    attention = {
        "q_a_proj": Q_RANK * HIDDEN,
        "q_a_layernorm": Q_RANK,
        "q_b_proj": HEADS * (NOPE + ROPE) * Q_RANK,
        "kv_a_proj_with_mqa": (KV_RANK + ROPE) * HIDDEN,
        "kv_a_layernorm": KV_RANK,
        "kv_b_proj": HEADS * (NOPE + VALUE) * KV_RANK,
        "o_proj": HIDDEN * HEADS * VALUE,
    }
    indexer = {
        "wq_b": INDEX_HEADS * INDEX_WIDTH * Q_RANK,
        "wk": INDEX_WIDTH * HIDDEN,
        "k_norm.weight": INDEX_WIDTH,
        "k_norm.bias": INDEX_WIDTH,
        "weights_proj": INDEX_HEADS * HIDDEN,
    }
    expert = {"gate_proj": 2048 * HIDDEN, "up_proj": 2048 * HIDDEN, "down_proj": HIDDEN * 2048}
    return attention, indexer, expert


def test_parts_of_a_layer_are_the_sums_of_their_weight_tensors(glm):
    counted = Parameters.of(glm)
    attention, indexer, expert = weights()
    assert counted.attention == sum(attention.values())
    assert counted.indexer == sum(indexer.values())
    assert counted.expert == sum(expert.values())


@pytest.mark.parametrize(("part", "published"), [("attention", 165.02e6), ("indexer", 9.372e6), ("expert", 37.749e6)])
def test_parts_of_a_layer_are_the_published_ones(glm, part, published):
    assert getattr(Parameters.of(glm), part) == pytest.approx(published, rel=1e-4)


def test_the_model_is_the_sum_of_its_layers(glm):
    attention, indexer, expert = (sum(part.values()) for part in weights())
    router = HIDDEN * EXPERTS + EXPERTS
    moe = router + (EXPERTS + 1) * expert
    dense = 3 * HIDDEN * 12288
    layers = LAYERS * (attention + indexer + 2 * HIDDEN) + DENSE_LAYERS * dense + (LAYERS - DENSE_LAYERS) * moe
    total = layers + 2 * VOCABULARY * HIDDEN + HIDDEN
    assert Parameters.of(glm).total == total
    idle = (LAYERS - DENSE_LAYERS) * (EXPERTS - EXPERTS_A_TOKEN) * expert
    assert Parameters.of(glm).active == total - idle


def test_totals_are_the_published_ones(glm):
    counted = Parameters.of(glm)
    assert counted.total == pytest.approx(743.91e9, rel=2e-4)
    assert counted.total == pytest.approx(glm.published_parameters, rel=1e-3)
    assert counted.active == pytest.approx(41.78e9, rel=3e-4)
    assert counted.active - counted.embedding == pytest.approx(40.83e9, rel=3e-4)


def test_flops_of_the_last_token_of_a_million(glm):
    flops = TokenFlops.of(glm, LENGTH, 40e9)
    assert flops.weights == pytest.approx(80e9, rel=1e-12)
    assert flops.scores == LAYERS * 2 * INDEX_HEADS * INDEX_WIDTH * LENGTH
    assert flops.sparse_attention == LAYERS * 2 * HEADS * (2 * KV_RANK + ROPE) * TOPK
    assert [round(part / 1e9) for part in (flops.scores, flops.sparse_attention, flops.total)] == [670, 22, 772]


def test_a_query_that_sees_k_keys_scores_512_times_less_than_one_that_sees_all(glm):
    assert TokenFlops.of(glm, LENGTH).scores / TokenFlops.of(glm, TOPK).scores == 512


def test_attention_of_a_short_context_reads_only_what_is_there(glm):
    full, short = TokenFlops.of(glm, LENGTH), TokenFlops.of(glm, 100)
    assert short.sparse_attention * TOPK == full.sparse_attention * 100


def test_training_flops_count_what_is_trained_once_forward_and_twice_backward(glm):
    """Megatron-Bridge's accounting, re-derived from the shapes."""
    attention, indexer, expert = (sum(part.values()) for part in weights())
    router = HIDDEN * EXPERTS + EXPERTS
    outside_indexer = (
        LAYERS * (attention + 2 * HIDDEN)
        + DENSE_LAYERS * 3 * HIDDEN * 12288
        + (LAYERS - DENSE_LAYERS) * (router + (EXPERTS_A_TOKEN + 1) * expert)
        + VOCABULARY * HIDDEN
        + HIDDEN
    )
    selected = TOPK - TOPK * (TOPK - 1) / (2 * LENGTH)
    pair = 2 * LAYERS * INDEX_HEADS * INDEX_WIDTH
    expected = (
        6 * outside_indexer
        + 4 * LAYERS * indexer
        + pair * (LENGTH + 1) / 2
        + 2 * pair * selected
        + 3 * 2 * LAYERS * HEADS * (2 * KV_RANK + ROPE) * selected
    )
    assert training_flops_per_token(glm, LENGTH, selected) == pytest.approx(expected, rel=1e-12)
