"""What a scenario says, fully resolved: the one definition of every input of the model.

Names follow Hugging Face configurations (model) and Megatron-LM arguments (layout, training).
Units are SI and part of the name. In a sweep, or where an assumption is drawn, a field holds an
array in place of its number (see ``hyscale_model.arrays``); the annotations describe one value.

A field's default is an assumption of this tool, so each one states its reason; the reason reaches
the user as the origin of the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hyscale_model.scenario.base import (
    STRICT,
    Count,
    CountOrZero,
    Flag,
    Fraction,
    NotNegative,
    Positive,
    Text,
    assumed,
    number,
    whole,
)
from hyscale_model.scenario.models import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator. Rates are dense peaks; bandwidths are per direction."""

    __pydantic_config__ = STRICT

    name: Text
    architecture: Literal["hopper", "ampere", "blackwell"]
    sms: Count
    boost_hz: Positive
    bf16_flops: Positive
    fp8_flops: Positive | None = assumed(None, "no FP8 tensor rate stated for this GPU")
    fp32_flops: Positive
    hbm_bytes_per_s: Positive
    memory_bytes: Positive
    l2_bytes: Positive
    nvlink_bytes_per_s: Positive
    pcie_bytes_per_s: Positive
    c2c_bytes_per_s: Positive | None = assumed(None, "no NVLink-C2C: the host is reached over PCIe")
    deepep_bytes_per_s: Positive | None = assumed(None, "DeepEP copies as fast as NVLink takes it")
    host_slowdown: Positive = assumed(1.0, "an x86 host, whose launches the profile states")
    power_watts: Positive | None = assumed(None, "no power limit of the board stated for this GPU")

    @property
    def host_bytes_per_s(self) -> float:
        """Bytes a second of the link to the host, per direction: NVLink-C2C where there is one, else PCIe."""
        return self.pcie_bytes_per_s if self.c2c_bytes_per_s is None else self.c2c_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Identical nodes of GPUs on NVLink, one network adapter (rail) per GPU."""

    __pydantic_config__ = STRICT

    name: Text = assumed("unnamed", "the cluster has no catalogue name")
    gpu: Gpu
    nodes: Count
    gpus_per_node: Count
    nic_gbit_per_gpu: Positive
    nic_efficiency: Fraction = assumed(
        0.8, "bus bandwidth of 16 to 32 H100 GPUs on 8 x 400 Gbit/s is 320-330 of 400 GB/s (NVIDIA/nccl issue #1221)"
    )
    alltoall_efficiency: Fraction = assumed(
        0.7,
        "of an adapter's rate in all-to-all: DeepEP moves 43 of 50 GB/s over 16 H800 ranks; NCCL over 128 ranks less",
    )
    pcie_efficiency: Fraction = assumed(0.8, "pinned copies keep about 50 of the 64 GB/s of PCIe 5.0 x16")
    host_bytes_per_s_per_gpu: Positive = assumed(
        50e9,
        "of a host's memory, a GPU's share in updating optimizer states: two CPUs of eight channels of DDR5-4800, "
        "614 GB/s, serve eight GPUs, and threads that stream keep about two thirds",
    )
    nvlink_efficiency: Fraction = assumed(
        0.75, "all-gather over 8 H100 or H200 GPUs reaches 336 of 450 GB/s at 512 MiB (AIConfigurator NCCL tables)"
    )
    nvlink_latency_s: Positive = assumed(2e-6, "a 1 MiB all-gather over 8 H100 GPUs takes about 17 us: 2 us a step")
    nvlink_ramp_s_per_root_byte: NotNegative = assumed(
        0.0, "time to fill a collective's pipeline over NVLink, by the root of its bytes; nobody publishes it"
    )
    nic_latency_s: Positive = assumed(5e-6, "InfiniBand or RoCE hop with NCCL proxy, a few microseconds a step")
    usd_per_gpu_hour: Positive | None = assumed(None, "no price given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the model is spread over GPUs; data parallelism is what remains of the cluster."""

    __pydantic_config__ = STRICT

    tp: Count = assumed(1, "Megatron-LM default tensor-model-parallel-size")
    pp: Count = assumed(1, "Megatron-LM default pipeline-model-parallel-size")
    vpp: Count = assumed(1, "Megatron-LM default: no interleaving")
    cp: Count = assumed(1, "Megatron-LM default context-parallel-size")
    ep: Count = assumed(1, "Megatron-LM default expert-model-parallel-size")
    etp: Count = assumed(1, "experts are not split over tensor ranks")
    zero: Annotated[int, BeforeValidator(whole), Field(ge=0, le=3)] = assumed(
        1, "Megatron-LM distributed optimizer, the usual choice for mixture-of-experts models"
    )
    num_distributed_optimizer_instances: Count = assumed(
        1, "Megatron-LM default: states are spread over all data and context ranks"
    )
    sequence_parallel: Flag = assumed(True, "Megatron-LM users set it with tensor parallelism, experts need it")
    schedule: Literal["1f1b", "interleaved", "zero_bubble", "dualpipe"] = assumed(
        "1f1b", "Megatron-LM default without virtual stages"
    )
    cp_kind: Literal["allgather", "ring", "alltoall"] = assumed(
        "allgather", "the only context parallelism Megatron-Core has for DSA"
    )
    cp_order: Literal["zigzag", "contiguous"] = assumed("zigzag", "Megatron-LM cuts sequences in zigzag order")
    overlap_grad_reduce: Flag = assumed(False, "Megatron-LM default: gradients are reduced after the last backward")
    overlap_param_gather: Flag = assumed(False, "Megatron-LM default: parameters are gathered before the first forward")
    overlap_p2p_comm: Flag = assumed(False, "sends of a pipeline block their sender")
    tp_comm_overlap: Flag = assumed(False, "Megatron-LM default: tensor-parallel collectives are not cut into pieces")
    overlap_moe_expert_parallel_comm: Flag = assumed(False, "Megatron-LM default: token exchange blocks its layer")
    moe_shared_expert_overlap: Flag = assumed(False, "Megatron-LM default: shared experts run after the routed ones")
    index_balance: Flag = assumed(True, "complementary head and tail chunks for the indexer; worth 4-7 % of a step")
    stage_layers: tuple[CountOrZero, ...] | None = assumed(
        None,
        "layers are spread evenly over virtual stages, the remainder goes to the middle of the pipeline; where layers "
        "share an index, each stage begins on one that computes it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLengths:
    """Lengths of packed documents, each with its share of the documents (not of the tokens)."""

    __pydantic_config__ = STRICT

    lengths: Annotated[tuple[Count, ...], Field(min_length=1)]
    weights: Annotated[tuple[Positive, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one optimizer step trains on."""

    __pydantic_config__ = STRICT

    sequence_length: Count
    global_batch_size: Count
    micro_batch_size: Count = assumed(1, "long sequences leave no room for more")
    document_lengths: Literal["none"] | Count | DocumentLengths = assumed("none", "each sequence is one document")


# Names of Megatron-LM's --cuda-graph-modules.
GraphModule = Literal["attn", "mlp", "moe", "moe_router", "moe_preprocess"]
# Names of Megatron-LM's --recompute-modules.
RecomputeModule = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Precisions, recomputation and losses."""

    __pydantic_config__ = STRICT

    precision: Literal["bf16", "fp8"] = assumed("bf16", "precision of published GLM-5 long-context recipes on Hopper")
    index_precision: Literal["bf16", "fp8"] = assumed("bf16", "Megatron-Core scores in BF16 unless told otherwise")
    recompute: Literal["full", "selective", "none"] = assumed(
        "full", "published long-context GLM-5 recipes recompute every layer"
    )
    recompute_modules: tuple[RecomputeModule, ...] = assumed(
        ("core_attn",), "Megatron-LM default of selective recomputation; not used by the others"
    )
    attention_backend: Literal["fused", "unfused"] = assumed("fused", "cuDNN or FlashAttention store no scores")
    cross_entropy_fusion: Literal["none", "native", "te"] = assumed("none", "Megatron-LM default")
    optimizer: Literal["adam", "muon"] = assumed("adam", "Megatron-LM default")
    muon_num_ns_steps: Count = assumed(5, "Megatron-LM default; adam does not use it")
    muon_tp_mode: Literal["blockwise", "duplicated", "distributed"] = assumed(
        "blockwise", "Megatron-LM default; adam does not use it"
    )
    optimizer_state_precision: Literal["fp32", "bf16"] = assumed("fp32", "Megatron-LM keeps the moments in FP32")
    optimizer_cpu_offload: Flag = assumed(False, "Megatron-LM default: optimizer states stay on the device")
    optimizer_offload_fraction: Fraction = assumed(1.0, "Megatron-LM default where the optimizer is offloaded")
    overlap_cpu_optimizer_d2h_h2d: Flag = assumed(False, "Megatron-LM default: copies and update in turn")
    cpu_offloading_num_layers: CountOrZero = assumed(0, "Megatron-LM default: activations stay on the device")
    cuda_graph_impl: Literal["none", "local", "transformer_engine", "full_iteration"] = assumed(
        "none", "Megatron-LM default: the host launches every kernel"
    )
    cuda_graph_modules: tuple[GraphModule, ...] = assumed((), "whole layers; not used without graphs")
    gradient_precision: Literal["fp32", "bf16"] = assumed("fp32", "Megatron-LM accumulates gradients in FP32")
    index_loss: Literal["sparse", "none"] = assumed("sparse", "the indexer is trained on the selected set")
    index_teacher: Literal["fused", "chunked"] = assumed(
        "fused", "Megatron-Core's fused teacher, whatever the shape of the heads"
    )
    moe_imbalance: Annotated[float, BeforeValidator(number), Field(ge=1, le=1000, allow_inf_nan=False)] = assumed(
        1.0, "balanced routing: the busiest rank has the mean load"
    )
    moe_load_variation: NotNegative = assumed(0.0, "experts share the tokens of a micro-batch evenly")
    moe_expert_capacity_factor: Positive | None = assumed(None, "Megatron-LM default: no token is dropped")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How a training system selects, recomputes and communicates: the switches of a comparison."""

    __pydantic_config__ = STRICT

    name: Text
    selection: Literal["score_table", "hytopk"] = assumed("score_table", "Megatron-Core stores FP32 scores, then top-k")
    table_rows: Count | Literal["all"] = assumed(8192, "Megatron-Core's TileLang path scores 8,192 rows at a time")
    table_topk: Literal["torch", "radix"] = assumed("torch", "Megatron-Core calls torch.topk")
    causal_skip: Flag = assumed(True, "tiles of keys later than every query of the tile are not scored")
    recompute_selection: Literal["rerun", "keep_scores", "keep_indices", "skip", "replay"] = assumed(
        "rerun", "full recomputation reruns the whole layer"
    )
    cp_overlap: Literal["none", "behind_selection"] = assumed("none", "gathers run before the kernels that need them")
    sparse_attention: Literal["per_query", "query_pairs"] = assumed("per_query", "one query a program")
    index_storage: Literal["device", "host"] = assumed("device", "64 MiB a layer fit on the device")
    backend: Literal["tilelang", "cudnn", "unfused", "hyscale_kernels"] = assumed(
        "tilelang", "Megatron-Core's DSA backend on Hopper"
    )
    dispatcher: Literal["alltoall", "deepep"] = assumed("alltoall", "Megatron-LM's default token dispatcher")
    layout: Mapping[str, Any] = assumed({}, "the scenario's layout")
    training: Mapping[str, Any] = assumed({}, "the scenario's training")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """An input that is not known: drawn from ``choices`` (optionally weighted) or uniformly from ``range``."""

    __pydantic_config__ = STRICT

    path: Text
    reason: Text
    choices: tuple[Any, ...] | None = None
    weights: tuple[Positive, ...] | None = None
    range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A result somebody else states, to compare with; it never enters a prediction."""

    __pydantic_config__ = STRICT

    metric: Text
    value: Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)]
    source: Text
    relation: Literal["equal", "at_most", "at_least"] = "equal"
    id: str | None = None
    note: str | None = None


Part = Literal["attention", "hyper_connections", "ffn", "communication"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerScope:
    """One layer of a kind instead of a step: forward, recomputation and backward of one micro-batch."""

    __pydantic_config__ = STRICT

    layer: Text
    include: Annotated[tuple[Part, ...], Field(min_length=1)] = assumed(
        ("attention", "communication"), "what a kernel paper would call the layer: its attention, gathers included"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A question to the model. ``systems`` are compared in order; the first is the baseline."""

    __pydantic_config__ = STRICT

    schema_version: Annotated[Literal[1], BeforeValidator(whole)]
    name: Text
    description: str | None = None
    model: Model
    cluster: Cluster
    layout: Layout
    workload: Workload
    training: Training
    systems: Annotated[tuple[System, ...], Field(min_length=1)]
    profile: Text = assumed("published", "no profile measured on this GPU was found")
    assumptions: tuple[Assumption, ...] = ()
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    zip: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    reported: tuple[Reported, ...] = ()
    scope: Literal["step"] | LayerScope = assumed("step", "the whole optimizer step")
