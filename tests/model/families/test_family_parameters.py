"""Parameter counts as published, or as derived from the published shapes."""

from dataclasses import asdict, replace

import pytest

from hyscale_model.families import anatomy, count_parameters
from hyscale_model.scenario import read_scenario

NAMED = """
schema_version: 1
name: a model of the catalogue
model: {model}
cluster: {{gpu: h100, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 400}}
layout: {{}}
workload: {{sequence_length: 65536, global_batch_size: 8}}
training: {{}}
systems: [megatron]
"""

# name -> (parameters, tolerance): from configurations and model cards; GPT sizes are names, rounded.
TOTALS = {
    "glm-5.1": (743.910e9, 5e-4),
    "glm-5.2": (743.377000704e9, 5e-4),
    "deepseek-v3": (671e9, 2e-3),
    "deepseek-v3.2": (671e9, 2e-3),
    "deepseek-v4-flash": (284.30e9, 5e-4),
    "deepseek-v4-pro": (1572.9e9, 5e-4),
    "qwen3.8-flash-next": (125.07e9, 5e-4),
    "qwen3-235b-a22b": (235.09e9, 5e-4),
    "qwen3-30b-a3b": (30.53e9, 5e-4),
    "llama-3-8b": (8.03e9, 5e-4),
    "llama-3-70b": (70.55e9, 5e-4),
    "llama-3-405b": (405.85e9, 5e-4),
    "gpt-22b": (22e9, 2e-2),
    "gpt-175b": (175e9, 2e-2),
    "gpt-530b": (530e9, 2e-2),
    "gpt-1t": (1e12, 2e-2),
}

# name -> (what a token meets with embedding and head, without the embedding); None: not derived.
ACTIVE = {
    "glm-5.1": (41.78e9, 40.83e9),
    "glm-5.2": (41.25e9, 40.30e9),
    "deepseek-v4-flash": (13.76e9, 13.23e9),
    "deepseek-v4-pro": (49.69e9, 48.77e9),
    "qwen3.8-flash-next": (None, 5.998e9),
}

# name -> the active figure of its model card, rounded.
CARDS = {
    "glm-5.1": 40e9,
    "deepseek-v3": 37e9,
    "deepseek-v3.2": 37e9,
    "deepseek-v4-flash": 13e9,
    "deepseek-v4-pro": 49e9,
    "qwen3.8-flash-next": 6e9,
    "qwen3-235b-a22b": 22e9,
    "qwen3-30b-a3b": 3.3e9,
}


def test_every_model_has_a_published_size(models):
    assert set(TOTALS) == set(models)


def test_the_catalogue_has_the_same_models(model):
    """Both were written down from the published configurations."""
    listed = read_scenario("x", text=NAMED.format(model=model.name)).scenario.model
    assert asdict(anatomy(listed)) == asdict(anatomy(model))


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_the_published_ones(bodies, name):
    published, tolerance = TOTALS[name]
    assert count_parameters(bodies[name]).total == pytest.approx(published, rel=tolerance)


def test_the_checkpoint_of_glm_5_2_has_twenty_one_indexers(bodies):
    """743,377,000,704 without multi-token prediction, of which it counts no biases of the router."""
    assert count_parameters(bodies["glm-5.2"]).total == pytest.approx(743377000704, rel=1e-6)
    gone = count_parameters(bodies["glm-5.1"]).total - count_parameters(bodies["glm-5.2"]).total
    assert gone == 57 * bodies["glm-5.1"].attention("dsa").index_parameters


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_the_derived_ones(bodies, name):
    with_embedding, without = ACTIVE[name]
    counted = count_parameters(bodies[name])
    assert counted.active - counted.embedding == pytest.approx(without, rel=5e-4)
    if with_embedding is not None:
        assert counted.active == pytest.approx(with_embedding, rel=5e-4)


@pytest.mark.parametrize("name", CARDS)
def test_active_parameters_are_those_of_the_model_card(bodies, name):
    """Cards round, and count the embedding or not."""
    counted = count_parameters(bodies[name])
    nearest = min((counted.active, counted.active - counted.embedding), key=lambda each: abs(each - CARDS[name]))
    assert nearest == pytest.approx(CARDS[name], rel=2.1e-2)


def test_all_parameters_of_a_dense_model_are_active(bodies):
    for name in ("llama-3-8b", "llama-3-70b", "llama-3-405b", "gpt-22b", "gpt-175b", "gpt-530b", "gpt-1t"):
        counted = count_parameters(bodies[name])
        assert counted.active == counted.total


def test_the_n_gram_table_counts_apart(models, bodies):
    counted = count_parameters(bodies["qwen3.8-flash-next"])
    assert counted.table == pytest.approx(51.2e9, rel=5e-4)
    assert counted.table == 320001536 * 160
    bare = count_parameters(anatomy(replace(models["qwen3.8-flash-next"], ple=None)))
    assert bare == replace(counted, table=0)
    assert all(count_parameters(body).table == 0 for name, body in bodies.items() if name != "qwen3.8-flash-next")


# (model, attention kind) -> parameters of one layer without its indexer and compressor, of its indexer.
LAYERS = {
    ("glm-5.1", "dsa"): (165.02e6, 9.372e6),
    ("glm-5.2", "dsa"): (165.02e6, 9.372e6),
    ("glm-5.2", "dsa_shared"): (165.02e6, 0),
    ("deepseek-v4-flash", "swa"): (106.95e6, 0),
    ("deepseek-v4-flash", "csa"): (106.95e6, 10.748e6),
    ("deepseek-v4-flash", "hca"): (106.95e6, 0),
    ("deepseek-v4-pro", "csa"): (299.89e6, 16.712e6),
    ("deepseek-v4-pro", "hca"): (299.89e6, 0),
    ("qwen3.8-flash-next", "gdn"): (57.96e6, 0),
}

COMPRESSORS = {
    ("deepseek-v4-flash", "csa"): 8.389e6,
    ("deepseek-v4-flash", "hca"): 4.194e6,
    ("deepseek-v4-pro", "csa"): 14.680e6,
    ("deepseek-v4-pro", "hca"): 7.340e6,
}


@pytest.mark.parametrize(("name", "kind"), LAYERS)
def test_layers_have_the_derived_parameters(bodies, name, kind):
    attention = bodies[name].attention(kind)
    compressor = [each for each in attention.before if each.name == "compressor"]
    # With a bias of the gates for each of an entry's positions.
    compression = sum(each.parameters + attention.core.ratio * each.outputs // 2 for each in compressor)
    layer, index = LAYERS[name, kind]
    assert attention.parameters - compression == pytest.approx(layer, rel=5e-4)
    assert attention.index_parameters == pytest.approx(index, rel=5e-4)
    assert (attention.index is None) == (index == 0)
    assert sum(each.parameters for each in compressor) == pytest.approx(COMPRESSORS.get((name, kind), 0), rel=5e-4)


def test_a_qsa_layer_has_the_derived_parameters_with_its_indexer(bodies):
    attention = bodies["qwen3.8-flash-next"].attention("qsa")
    assert attention.parameters + attention.index_parameters == pytest.approx(51.45e6, rel=5e-4)


def test_the_indexers_of_v4_flash_together(bodies):
    assert count_parameters(bodies["deepseek-v4-flash"]).indexers == pytest.approx(226e6, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "expert"),
    [
        ("glm-5.1", 37.749e6),
        ("deepseek-v4-flash", 25.166e6),
        ("deepseek-v4-pro", 66.060e6),
        ("qwen3.8-flash-next", 4.915e6),
    ],
)
def test_experts_have_the_derived_parameters(bodies, name, expert):
    body = bodies[name]
    moe = body.feed_forward("moe")
    assert moe.expert_parameters(body.hidden) == pytest.approx(expert, rel=5e-4)
    # One shared expert, as wide as a routed one.
    assert moe.shared_parameters(body.hidden) == moe.expert_parameters(body.hidden)


def test_absorbed_and_dense_latent_attention_have_the_same_weights(bodies):
    """The up-projection of keys and values is cut into what queries and what outputs absorb."""
    dense, sparse = bodies["deepseek-v3"].attention("mla"), bodies["deepseek-v3.2"].attention("dsa")
    assert dense.parameters == sparse.parameters


def test_a_qwen_layer_by_its_tensors(bodies):
    attention = bodies["qwen3-30b-a3b"].attention("gqa")
    tensors = {
        "q_proj": 2048 * 32 * 128,
        "k_proj": 2048 * 4 * 128,
        "v_proj": 2048 * 4 * 128,
        "o_proj": 32 * 128 * 2048,
        "q_norm": 128,
        "k_norm": 128,
    }
    assert attention.parameters == sum(tensors.values())


def test_a_gpt_layer_by_its_tensors(bodies):
    """12 h^2 weights, 9 h biases and 4 h of two LayerNorms."""
    body, hidden = bodies["gpt-22b"], 6144
    layer = body.attention("mha").parameters + body.feed_forward("dense_ffn").shared_parameters(hidden)
    assert layer + body.norm_parameters == 12 * hidden**2 + 13 * hidden


def test_the_model_is_the_sum_of_its_layers(model):
    """Whatever the family: embedding, head, and each layer's attention, indexer, feed-forward and norms."""
    body = anatomy(model)
    assert len(body.layers) == model.num_hidden_layers
    total = body.embedding + body.head
    for kind, ffn_kind in body.layers:
        attention, ffn = body.attention(kind), body.feed_forward(ffn_kind)
        total += attention.parameters + attention.index_parameters + body.norm_parameters
        total += ffn.experts * ffn.expert_parameters(body.hidden) + ffn.router_parameters
        total += ffn.shared_parameters(body.hidden)
    assert count_parameters(body).total == total
    assert {kind for kind, _ in body.layers} == {each.kind for each in body.attentions}
    assert {kind for _, kind in body.layers} <= {each.kind for each in body.feed_forwards}


def test_a_tied_head_is_not_counted_twice(models):
    tied = count_parameters(anatomy(models["gpt-22b"]))
    untied = count_parameters(anatomy(replace(models["gpt-22b"], tie_word_embeddings=False)))
    assert untied.total - tied.total == 51200 * 6144
