"""Models of every family as their configurations state them, and scenarios that run them on 32 H100."""

import json
from dataclasses import asdict, replace

import pytest

from hyscale_model.batch import case_of
from hyscale_model.families import anatomy
from hyscale_model.layers.memo import Memo
from hyscale_model.layers.model_blocks import model_blocks
from hyscale_model.layers.sizes import Sizes
from hyscale_model.predict import predict
from hyscale_model.rates.load import load_profile
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.models import DeepseekV3, DeepseekV4, Gpt, Llama, NgramTable, Qwen3Moe, Qwen4
from hyscale_model.scenario.models import SparseLatentModel as Sparse

GLM_5_1 = Sparse(
    name="glm-5.1",
    model_type="glm_moe_dsa",
    vocab_size=154880,
    hidden_size=6144,
    intermediate_size=12288,
    moe_intermediate_size=2048,
    num_hidden_layers=78,
    first_k_dense_replace=3,
    num_attention_heads=64,
    q_lora_rank=2048,
    kv_lora_rank=512,
    qk_nope_head_dim=192,
    qk_rope_head_dim=64,
    v_head_dim=256,
    n_routed_experts=256,
    num_experts_per_tok=8,
    n_shared_experts=1,
    index_n_heads=32,
    index_head_dim=128,
    index_topk=2048,
)

# Fields of DeepSeek-V3 and V3.2.
DEEPSEEK = {
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
}

V4_FLASH = DeepseekV4(
    name="deepseek-v4-flash",
    model_type="deepseek_v4",
    vocab_size=129280,
    hidden_size=4096,
    num_hidden_layers=43,
    num_attention_heads=64,
    head_dim=512,
    q_lora_rank=1024,
    o_groups=8,
    o_lora_rank=1024,
    sliding_window=128,
    # The last entry is that of the multi-token prediction layer.
    compress_ratios=(0, 0, *(4 if layer % 2 == 0 else 128 for layer in range(2, 43)), 0),
    index_n_heads=64,
    index_head_dim=128,
    index_topk=512,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    num_experts_per_tok=6,
    n_shared_experts=1,
    hc_mult=4,
)

QWEN_3_8 = Qwen4(
    name="qwen3.8-flash-next",
    model_type="qwen4_exp",
    vocab_size=248320,
    hidden_size=2560,
    num_hidden_layers=48,
    num_attention_heads=24,
    full_attention_interval=4,
    num_key_value_heads=2,
    head_dim=256,
    attn_output_gate=True,
    linear_num_key_heads=16,
    linear_num_value_heads=48,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
    num_experts=512,
    num_experts_per_tok=10,
    moe_intermediate_size=640,
    shared_expert_intermediate_size=640,
    indexer_n_heads=4,
    indexer_head_dim=128,
    indexer_budget=2048,
    indexer_compress_ratio=4,
    hc_count=4,
    hc_lowrank=320,
    ple=NgramTable(layer_ids=(2,), ngram_size=3, heads_per_ngram=8, embed_dim=2560, rows=320001536, row_width=160),
)

QWEN_3_235B = Qwen3Moe(
    name="qwen3-235b-a22b",
    model_type="qwen3_moe",
    vocab_size=151936,
    hidden_size=4096,
    num_hidden_layers=94,
    num_attention_heads=64,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=1536,
)

LLAMA_3_8B = Llama(
    name="llama-3-8b",
    model_type="llama",
    vocab_size=128256,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
)


def gpt(name, layers, hidden, heads):
    """A GPT of the Megatron-LM papers."""
    return Gpt(
        name=name,
        model_type="gpt",
        vocab_size=51200,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )


MODELS = {
    model.name: model
    for model in (
        GLM_5_1,
        replace(GLM_5_1, name="glm-5.2", index_topk_freq=4, index_skip_topk_offset=3),
        DeepseekV3(name="deepseek-v3", model_type="deepseek_v3", **DEEPSEEK),
        Sparse(
            name="deepseek-v3.2",
            model_type="deepseek_v32",
            index_n_heads=64,
            index_head_dim=128,
            index_topk=2048,
            **DEEPSEEK,
        ),
        V4_FLASH,
        replace(
            V4_FLASH,
            name="deepseek-v4-pro",
            hidden_size=7168,
            num_hidden_layers=61,
            num_attention_heads=128,
            q_lora_rank=1536,
            o_groups=16,
            compress_ratios=(128, 128, *(4 if layer % 2 == 0 else 128 for layer in range(2, 61)), 0),
            index_topk=1024,
            moe_intermediate_size=3072,
            n_routed_experts=384,
        ),
        QWEN_3_8,
        QWEN_3_235B,
        replace(
            QWEN_3_235B,
            name="qwen3-30b-a3b",
            hidden_size=2048,
            num_hidden_layers=48,
            num_attention_heads=32,
            moe_intermediate_size=768,
        ),
        LLAMA_3_8B,
        replace(
            LLAMA_3_8B,
            name="llama-3-70b",
            hidden_size=8192,
            num_hidden_layers=80,
            num_attention_heads=64,
            intermediate_size=28672,
        ),
        replace(
            LLAMA_3_8B,
            name="llama-3-405b",
            hidden_size=16384,
            num_hidden_layers=126,
            num_attention_heads=128,
            intermediate_size=53248,
        ),
        gpt("gpt-22b", 48, 6144, 64),
        gpt("gpt-175b", 96, 12288, 96),
        gpt("gpt-530b", 105, 20480, 128),
        gpt("gpt-1t", 128, 25600, 160),
    )
}
DENSE = ("llama", "gpt")
FACTORS = {name: rate.value for name, rate in load_profile("published").factors.items()}
# Nothing is selected in these: every attention layer meets all visible keys.
WITHOUT_INDEX = sorted(name for name, model in MODELS.items() if not hasattr(model, "index_topk") and model != QWEN_3_8)

TEXT = """
schema_version: 1
name: a model on 32 H100
model: {model}
cluster: {{gpu: h100, nodes: 4, gpus_per_node: 8, nic_gbit_per_gpu: 400}}
layout: {{pp: {pp}, cp: 4, ep: {ep}{stages}}}
workload: {{sequence_length: 65536, global_batch_size: 8}}
training: {{}}
systems: [megatron, megatron-best, hyscale]
"""


def given(values):
    """A configuration as a scenario file would state it."""
    if isinstance(values, dict):
        return {key: given(value) for key, value in values.items() if value is not None}
    return values


def scenario_text(model, pp=2, stage_layers=None):
    """A scenario with its model in line."""
    return TEXT.format(
        model=json.dumps(given(asdict(model))),
        pp=pp,
        ep=1 if model.model_type in DENSE else 4,
        stages=f", stage_layers: {list(stage_layers)}" if stage_layers else "",
    )


@pytest.fixture(scope="session")
def models():
    return MODELS


@pytest.fixture(scope="session", params=sorted(MODELS))
def model(request):
    return MODELS[request.param]


@pytest.fixture(scope="session", params=WITHOUT_INDEX)
def model_without_index(request):
    return MODELS[request.param]


@pytest.fixture(scope="session")
def bodies():
    """What each model consists of."""
    return {name: anatomy(model) for name, model in MODELS.items()}


@pytest.fixture(scope="session")
def stages_of():
    """Layers of two pipeline stages; GLM-5.2 shares indices, so its second stage begins on layer 39."""
    return lambda model: (38, 40) if model.name == "glm-5.2" else None


@pytest.fixture(scope="session")
def resolve_model(stages_of):
    """Read the scenario of a model with overrides."""

    def _resolve(model, *overrides, pp=2):
        stages = stages_of(model) if pp == 2 else None
        return read_scenario("scenario.yaml", text=scenario_text(model, pp, stages), overrides=overrides)

    return _resolve


@pytest.fixture(scope="session")
def predicted_model(resolve_model):
    """The JSON of a model's prediction, computed once for equal arguments. Tests must not change it."""
    known = {}

    def _predicted(model, *overrides, pp=2, draws=0):
        key = (model, overrides, pp, draws)
        if key not in known:
            known[key] = predict(resolve_model(model, *overrides, pp=pp), draws=draws).data
        return known[key]

    return _predicted


@pytest.fixture(scope="session")
def work(resolve_model):
    """Work of every task of a system by (block, phase, place, name)."""

    def _work(model, *overrides, system="megatron"):
        scenario = resolve_model(model, *overrides).scenario
        case = case_of(scenario, next(each for each in scenario.systems if each.name == system))
        blocks = model_blocks(case, Sizes.of(case), FACTORS.__getitem__, Memo())
        return {
            (block.name, phase, place, task.name): task.work
            for block in blocks
            for phase, tasks in block.phases()
            for place, task in enumerate(tasks)
        }

    return _work
