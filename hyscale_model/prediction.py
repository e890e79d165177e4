"""What a prediction is: the contract between the engine and everything that shows its results.

``Prediction.data`` is the JSON of ``hyscale predict --json``: plain dictionaries, lists, numbers and
text. Tables, HTML and figures are drawn from it alone, so that what a person sees and what a program
reads cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Every term of a step's time, in the order in which it is shown; JSON key -> what it is.
TERMS: Mapping[str, str] = {
    "index_projections": "index queries, keys and head weights, and their gradients",
    "selection_forward": "scoring and top-k of the forward pass",
    "selection_recompute": "scoring, top-k or replay in recomputation",
    "index_loss": "teacher, KL and backward of the indexer",
    "sparse_attention_forward": "attention over the selected keys",
    "sparse_attention_recompute": "the same, in recomputation",
    "sparse_attention_backward": "its backward",
    "dense_attention": "dense attention",
    "linear_attention": "linear attention",
    "projections": "attention projections",
    "moe": "routed and shared experts",
    "dense_ffn": "dense feed-forward",
    "hyper_connections": "hyper-connections",
    "head_and_loss": "embedding, output head, cross-entropy",
    "other_compute": "norms, residuals, copies",
    "cp_communication_exposed": "context-parallel communication not hidden",
    "ep_communication_exposed": "expert all-to-all not hidden",
    "tp_communication_exposed": "tensor-parallel communication not hidden",
    "pp_communication_exposed": "pipeline sends not hidden",
    "dp_communication_exposed": "gradient and parameter exchange not hidden",
    "waiting": "waiting for the slowest rank of a group",
    "host_bound": "waiting for the host to launch kernels",
    "pp_bubble": "pipeline bubble",
    "offload": "copies to and from host memory not hidden",
    "optimizer": "optimizer step",
}

SELECTION_TERMS = ("selection_forward", "selection_recompute")

# Every kind of memory; JSON key -> what it is.
MEMORY_KINDS: Mapping[str, str] = {
    "parameters": "weights",
    "gradients": "gradient accumulation",
    "optimizer": "master weights and moments",
    "activations": "kept and transient activations",
    "selection_indices": "kept selection indices",
    "score_table": "FP32 score table",
    "candidates": "HyTopK candidates and bits",
    "gathered_kv": "keys and latents gathered over context ranks",
    "expert_buffers": "tokens at experts",
    "logits": "output logits",
    "workspaces": "placeholders of weight gradients, cuBLAS, gathered tokens",
    "framework": "CUDA context, NCCL, allocator",
}

# From the most to the least certain; a sum is as certain as its least certain part.
ORIGINS = ("given", "measured", "transferred", "published", "assumed")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a number comes from: one of ``ORIGINS`` and the source or reason behind it."""

    origin: str
    detail: str

    def as_json(self) -> dict[str, str]:
        """``{"origin": ..., "source" | "reason": ...}``."""
        return {"origin": self.origin, "reason" if self.origin == "assumed" else "source": self.detail}


@dataclass(frozen=True, slots=True)
class Prediction:
    """The result of ``predict``; see ``data`` for its contents."""

    data: dict[str, Any]
