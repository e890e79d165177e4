"""Which Megatron-LM arguments cost nothing, and why others are left out.

Names are those of megatron/training/arguments.py and the configuration classes it builds arguments from
(NVIDIA/Megatron-LM, snapshot of 2026-08-22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Arguments that change neither the operations of a step nor its memory enough to be modelled: paths, data, logging,
# checkpoints, the optimizer's constants, initialisation, rotary embeddings, routing scores, fused small kernels.
_QUIET = """
adam-.* adlr-autoresume.* adaptive-muon-.* allow-ambiguous-pad-tokens app-tag-.* apply-rope-fusion
apply-wd-to-qk-layernorm async-.* attention-backend attention-dropout attention-softmax-in-fp32 auto-detect-ckpt-format
barrier-with-L1-time calculate-per-token-loss calc-ft-timeouts check-.* ckpt-.* clip-grad config-logger-dir
create-attention-mask-in-dataloader cross-entropy-fusion-impl cross-entropy-loss-fusion data-args-path data-cache-path
data-path dataloader-.* decoupled-.* deterministic-mode disable-bias-linear disable-msc dist-ckpt-.* dist-signal.*
distributed-backend distributed-timeout-minutes dsa-indexer-k-norm-.* dsa-indexer-rope-interleaved
dsa-indexer-rotate-activation dsa-indexer-scoring-relu empty-unused-memory-level enable-experimental enable-ft-package
end-weight-decay eod-mask-loss eval-.* exit-.* finetune
flash-attention-version fp8-amax-.* fp8-interval fp8-margin full-validation fully-parallel-.*
head-lr-mult hidden-dropout hysteresis
inference-.* init-method-.* initial-loss-scale inprocess-.* iterations-to-skip layernorm-epsilon
layernorm-zero-centered-gamma lazy-mpu-init load local-rank log-.* logging-level loss-scale.* lr lr-.* make-.*
manual-gc.* masked-softmax-fusion merge-file metadata-path mid-level-dataset-surplus min-loss-scale min-lr mock-data
moe-aux-loss-coeff moe-input-jitter-eps moe-per-layer-logging moe-permute-fusion moe-router-bias-update-rate
moe-router-dtype moe-router-enable-expert-bias moe-router-fusion moe-router-group-topk
moe-router-load-balancing-type moe-router-num-groups moe-router-pre-softmax moe-router-score-function
moe-router-topk-scaling-factor moe-routing-trace-.* moe-z-loss-coeff mscale.* mtp-loss-scaling-factor muon-.*
no-bias-.*-fusion no-check-for-nan-in-loss-and-grad no-create-attention-mask-in-dataloader
no-gradient-accumulation-fusion no-gradient-reduce-div-fusion no-initialization no-load-.* no-masked-softmax-fusion
no-mmap-bin-files no-one-logger no-persist-layer-norm no-position-embedding no-rope-fusion no-save-.*
non-persistent-.* norm-epsilon normalization null-tokenizer-.* num-dataset-builder-threads num-workers
object-storage-cache-path one-logger-.* openai-gelu optim-normalization override-opt-param-scheduler
override-opt_param-scheduler per-split-data-args-path perform-initialization persist-layer-norm
position-embedding-type pretrained-checkpoint profile.* qk-clip.* qk-l2-norm qk-layernorm query-key-layer-scaling
record-memory-history.* reset-attention-mask reset-position-ids result-rejected-tracker-filename rope-.* rotary-.*
save save-.* seed sgd-momentum softmax-scale softmax-type split start-weight-decay straggler-.* tensorboard-.*
test-data-path test-mode tiktoken-.* timing-log-.* tokenizer-.* train-data-path train-iters train-samples
train-sync-interval transformer-impl trust-remote-code use-checkpoint-.* use-cpu-initialization use-dist-ckpt
use-flash-attn use-fused-weighted-squared-relu use-mcore-models use-mp-args-from-checkpoint-args
use-persistent-ckpt-worker use-pytorch-profiler use-rope-scaling use-rotary-position-embeddings use-te-rng-tracker
use-tokenizer-model-from-checkpoint-args valid-data-path vocab-extra-ids vocab-file wandb-.* weight-decay.*
yaml-cfg yarn-.* attention-softmax-in-fp32 init-method-std moe-grouped-gemm moe-router-padding-for-.*
"""

_QUIET_PATTERN = re.compile("|".join(_QUIET.split()))

# Arguments that do matter, with what stands in their place.
REASONS: Mapping[str, str] = {
    "fp16": "not expressed: bf16 is assumed, at the same speed",
    "add-qkv-bias": "biases of the projections are not expressed",
    "delay-wgrad-compute": "not expressed: the exchange of tokens is not hidden here",
    "fine-grained-activation-offloading": "not expressed: activations stay on the device here",
    "window-size": "not expressed: every layer attends to the whole sequence here",
    "linear-attention-freq": "not expressed: every layer is of one kind here",
    "rampup-batch-size": "not expressed: the final batch size is taken",
    "dataloader-inter-document-masking": "say the lengths in workload.document_lengths",
}


def is_quiet(name: str) -> bool:
    """Whether an argument is known to cost nothing."""
    return _QUIET_PATTERN.fullmatch(name) is not None
