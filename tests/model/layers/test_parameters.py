import pytest

from hyscale_model.batch import case_of
from hyscale_model.families import anatomy, count_parameters, token_flops
from hyscale_model.layers.sizes import Sizes
from hyscale_model.layers.training_flops import training_flops_per_token

HIDDEN, HEADS, Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 6144, 64, 2048, 512, 192, 64, 256
VOCABULARY, LAYERS, DENSE_LAYERS, EXPERTS, EXPERTS_A_TOKEN = 154880, 78, 3, 256, 8
INDEX_HEADS, INDEX_WIDTH, TOPK = 32, 128, 2048
LENGTH = 1048576


@pytest.fixture(scope="module")
def glm(resolve):
    return resolve().scenario.model


@pytest.fixture(scope="module")
def body(glm):
    return anatomy(glm)


def parts_of(body):
    attention = body.attention("dsa")
    return {
        "attention": attention.parameters,
        "indexer": attention.index_parameters,
        "expert": body.feed_forward("moe").expert_parameters(body.hidden),
    }


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


def test_parts_of_a_layer_are_the_sums_of_their_weight_tensors(body):
    attention, indexer, expert = (sum(part.values()) for part in weights())
    assert parts_of(body) == {"attention": attention, "indexer": indexer, "expert": expert}
    # The shared expert is as wide as a routed one.
    assert body.feed_forward("moe").shared_parameters(body.hidden) == expert


@pytest.mark.parametrize(("part", "published"), [("attention", 165.02e6), ("indexer", 9.372e6), ("expert", 37.749e6)])
def test_parts_of_a_layer_are_the_published_ones(body, part, published):
    assert parts_of(body)[part] == pytest.approx(published, rel=1e-4)


def test_the_model_is_the_sum_of_its_layers(body):
    attention, indexer, expert = (sum(part.values()) for part in weights())
    router = HIDDEN * EXPERTS + EXPERTS
    moe = router + (EXPERTS + 1) * expert
    dense = 3 * HIDDEN * 12288
    layers = LAYERS * (attention + indexer + 2 * HIDDEN) + DENSE_LAYERS * dense + (LAYERS - DENSE_LAYERS) * moe
    total = layers + 2 * VOCABULARY * HIDDEN + HIDDEN
    counted = count_parameters(body)
    assert counted.total == total
    assert counted.indexers == LAYERS * indexer
    assert counted.embedding == VOCABULARY * HIDDEN
    assert counted.table == 0
    idle = (LAYERS - DENSE_LAYERS) * (EXPERTS - EXPERTS_A_TOKEN) * expert
    assert counted.active == total - idle


def test_totals_are_the_published_ones(glm, body):
    counted = count_parameters(body)
    assert counted.total == pytest.approx(743.91e9, rel=2e-4)
    assert counted.total == pytest.approx(glm.published_parameters, rel=1e-3)
    assert counted.active == pytest.approx(41.78e9, rel=3e-4)
    assert counted.active - counted.embedding == pytest.approx(40.83e9, rel=3e-4)


def test_flops_of_the_last_token_of_a_million(body):
    flops = token_flops(body, LENGTH, 40e9)
    assert flops.weights == pytest.approx(80e9, rel=1e-12)
    assert flops.scores == LAYERS * 2 * INDEX_HEADS * INDEX_WIDTH * LENGTH
    assert flops.attention == LAYERS * 2 * HEADS * (2 * KV_RANK + ROPE) * TOPK
    assert [round(part / 1e9) for part in (flops.scores, flops.attention, flops.total)] == [670, 22, 772]


def test_a_query_that_sees_k_keys_scores_512_times_less_than_one_that_sees_all(body):
    assert token_flops(body, LENGTH).scores / token_flops(body, TOPK).scores == 512


def test_attention_of_a_short_context_reads_only_what_is_there(body):
    full, short = token_flops(body, LENGTH), token_flops(body, 100)
    assert short.attention * TOPK == full.attention * 100


def test_training_flops_count_what_is_trained_once_forward_and_twice_backward(resolve):
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
    scenario = resolve().scenario
    case = case_of(scenario, scenario.systems[0])
    assert training_flops_per_token(case, Sizes.of(case)) == pytest.approx(expected, rel=1e-12)
