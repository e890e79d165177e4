"""Megatron-LM arguments become model, layout, workload and training; the rest is named or known to cost nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hyscale_model.errors import InputError
from hyscale_model.importers.complete import complete
from hyscale_model.importers.imported import Imported
from hyscale_model.importers.megatron import megatron_arguments, read_megatron
from hyscale_model.importers.write import scenario_text
from hyscale_model.scenario import read_scenario

GPT = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --vocab-size 50257 "
    "--seq-length 2048 --global-batch-size 32"
)
LLAMA = f"{GPT} --swiglu --group-query-attention --num-query-groups 4 --untie-embeddings-and-output-weights"
MOE = f"{LLAMA} --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 512"
MLA = (
    f"{MOE} --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --ffn-hidden-size 2048 "
    "--moe-layer-freq ([0]*3+[1]*21) --moe-shared-expert-intermediate-size 1024"
)
DSA = (
    f"{MLA} --experimental-attention-variant dsa --dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128 "
    "--dsa-indexer-topk 512 --dsa-indexer-topk-freq 4 --dsa-indexer-skip-topk-offset 3"
)
FAMILIES = {"gpt": GPT, "llama": LLAMA, "qwen3_moe": MOE, "deepseek_v3": MLA, "deepseek_v32": DSA}


def read(text: str) -> Imported:
    return megatron_arguments(text.split())


@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip(family: str) -> None:
    full = complete(read(f"{FAMILIES[family]} --bf16 --use-distributed-optimizer --recompute-granularity full"))
    scenario = read_scenario("x.yaml", text=scenario_text(full)).scenario
    assert scenario.model.model_type == family
    for section in ("model", "layout", "workload", "training"):
        for name, value in full.values(section).items():
            assert getattr(getattr(scenario, section), name) == value, name
    assert not full.not_expressed


@pytest.mark.parametrize(
    ("text", "section", "field", "value"),
    [
        (GPT, "model", "vocab_size", 50304),
        (f"{GPT} --tensor-model-parallel-size 8", "model", "vocab_size", 51200),
        (f"{GPT} --padded-vocab-size 60000", "model", "vocab_size", 60000),
        (f"{GPT} --tokenizer-type GPT2BPETokenizer", "model", "vocab_size", 50304),
        (GPT, "model", "intermediate_size", 4096),
        (GPT, "model", "tie_word_embeddings", True),
        (GPT, "model", "max_position_embeddings", 2048),
        (LLAMA, "model", "intermediate_size", 2688),
        (LLAMA, "model", "num_key_value_heads", 4),
        (LLAMA, "model", "head_dim", 64),
        (f"{LLAMA} --kv-channels 128", "model", "head_dim", 128),
        (GPT + " --swiglu", "model", "num_key_value_heads", 16),
        (MLA, "model", "first_k_dense_replace", 3),
        (MLA, "model", "n_shared_experts", 2),
        (DSA, "model", "index_topk_freq", 4),
        (GPT, "layout", "zero", 0),
        (f"{GPT} --use-distributed-optimizer", "layout", "zero", 1),
        (f"{GPT} --optimizer dist_muon --muon-num-ns-steps 6", "training", "optimizer", "muon"),
        (f"{GPT} --muon-num-ns-steps 6", "training", "muon_num_ns_steps", 6),
        (f"{GPT} --cuda-graph-impl transformer_engine", "training", "cuda_graph_impl", "transformer_engine"),
        (
            f"{GPT} --cuda-graph-impl transformer_engine --cuda-graph-modules attn mlp",
            "training",
            "cuda_graph_modules",
            ["attn", "mlp"],
        ),
        (
            f"{GPT} --cuda-graph-impl local --cuda-graph-scope full_iteration",
            "training",
            "cuda_graph_impl",
            "full_iteration",
        ),
        (f"{GPT} --enable-cuda-graph", "training", "cuda_graph_impl", "local"),
        (
            f"{GPT} --use-distributed-optimizer --num-distributed-optimizer-instances 2",
            "layout",
            "num_distributed_optimizer_instances",
            2,
        ),
        (
            f"{GPT} --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
            "training",
            "optimizer_state_precision",
            "bf16",
        ),
        (f"{GPT} --muon-tp-mode duplicated", "training", "muon_tp_mode", "duplicated"),
        (f"{GPT} --optimizer-cpu-offload", "training", "optimizer_cpu_offload", True),
        (
            f"{GPT} --optimizer-cpu-offload --optimizer-offload-fraction 0.5",
            "training",
            "optimizer_offload_fraction",
            0.5,
        ),
        (f"{GPT} --cpu-offloading --cpu-offloading-num-layers 4", "training", "cpu_offloading_num_layers", 4),
        (f"{GPT} --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3", "layout", "vpp", 2),
        (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3", "layout", "vpp", 3),
        (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3", "layout", "schedule",
         "interleaved"),
        (f"{GPT} --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3", "layout", "stage_layers",
         [3, 7, 7, 7]),
        (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*5|(tttttt|)*3tL", "layout",
         "stage_layers", [5, 6, 6, 6, 1]),
        (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*5|t*6|t*6|t*7L", "layout",
         "stage_layers", [5, 6, 6, 7]),
        (f"{MOE} --tensor-model-parallel-size 4 --sequence-parallel", "layout", "etp", 4),
        (f"{MOE} --expert-model-parallel-size=8 --expert_tensor_parallel_size 1", "layout", "ep", 8),
        (f"{DSA} --context-parallel-size 2 --cp-comm-type allgather", "layout", "cp_kind", "allgather"),
        (f"{GPT} --fp8-format hybrid", "training", "precision", "fp8"),
        (GPT, "training", "recompute", "none"),
        (f"{GPT} --recompute-granularity selective", "training", "recompute_modules", ["core_attn"]),
        (f"{GPT} --overlap-grad-reduce", "layout", "overlap_grad_reduce", True),
        (f"{GPT} --tensor-model-parallel-size 2", "layout", "sequence_parallel", False),
        (f"{GPT} --context-parallel-size 2 --cp-comm-type a2a", "layout", "cp_kind", "alltoall"),
        (f"{GPT} --context-parallel-size 2", "layout", "cp_kind", "ring"),
        (f"{GPT} --use-torch-fsdp2", "layout", "zero", 3),
        (f"{GPT} --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "layout", "zero", 2),
        (f"{GPT} --cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "training", "cross_entropy_fusion", "te"),
        (f"{GPT} --mtp-num-layers 1", "model", "num_nextn_predict_layers", 1),
        (f"{GPT} --grad-reduce-in-bf16", "training", "gradient_precision", "bf16"),
        (DSA, "training", "index_loss", "none"),
        (f"{DSA} --dsa-indexer-loss-coeff 0.1 --dsa-indexer-use-sparse-loss", "training", "index_loss", "sparse"),
        (f"{MOE} --moe-router-force-load-balancing", "training", "moe_imbalance", 1.0),
        (f"{GPT} --micro-batch-size 4", "workload", "micro_batch_size", 4),
    ],
)  # fmt: skip
def test_arguments_have_their_place(text: str, section: str, field: str, value: Any) -> None:
    found = read(text).sections[section]
    if value == [5, 6, 6, 6, 1]:
        # Five stages are no multiple of two ranks.
        assert field not in found
    else:
        assert found[field].value == value


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--lr 1e-4 --save /x --tensorboard-dir /y --no-masked-softmax-fusion --rotary-base 10000 --data-path a b", []),
        ("--overlap-grad-reduce --mtp-num-layers 1 --tp-comm-overlap", []),
        ("--delay-wgrad-compute", ["delay-wgrad-compute"]),
        ("--something-new 3", ["something-new"]),
        ("--window-size 1024,0", ["window-size"]),
        ("--recompute-granularity selective --recompute-modules core_attn", []),
        ("--recompute-granularity selective --recompute-modules mhc layernorm", ["recompute-modules"]),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 4",
            ["recompute-method", "recompute-num-layers"],
        ),
        ("--optimizer muon --muon-momentum 0.95", []),
        ("--optimizer sgd", ["optimizer"]),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", []),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8",
            ["exp-avg-dtype", "exp-avg-sq-dtype"],
        ),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn mamba", ["cuda-graph-scope"]),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.5", []),
        ("--context-parallel-size 2 --cp-comm-type a2a+p2p", ["cp-comm-type"]),
        ("--tensor-model-parallel-size 2", []),
        ("--kv-channels 128", ["kv-channels"]),
        ("--moe-token-dispatcher-type allgather", ["moe-token-dispatcher-type"]),
        ("--fp16", ["fp16"]),
        ("--swiglu --max-position-embeddings 4096", []),
    ],
)
def test_what_is_left_out_is_named(arguments: str, names: list[str]) -> None:
    assert sorted(note.name for note in read(f"{GPT} {arguments}").not_expressed) == sorted(f"--{n}" for n in names)


@pytest.mark.parametrize(("size", "padded"), [(50257, True), (50304, False)])
def test_a_vocabulary_is_said_to_be_padded_where_it_is(size: int, padded: bool) -> None:
    found = read(GPT.replace("50257", str(size))).sections["model"]["vocab_size"]
    assert found.value == 50304
    assert (f"padded from {size} to a multiple of 128" in found.origin) == padded


def test_systems_take_over_dispatcher_and_backend() -> None:
    full = complete(read(f"{DSA} --moe-token-dispatcher-type flex --moe-enable-deepep --dsa-kernel-backend cudnn"))
    systems = read_scenario("x.yaml", text=scenario_text(full)).scenario.systems
    assert [system.name for system in systems] == ["megatron", "megatron-best", "hyscale"]
    assert {(system.dispatcher, system.backend) for system in systems} == {("deepep", "cudnn")}
    assert systems[2].selection == "hytopk"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--num-layers 2", "--hidden-size is missing"),
        (GPT.replace("24", "many"), "--num-layers is 'many'"),
        (f"{GPT} --multi-latent-attention", "without experts"),
        (f"{GPT} --experimental-attention-variant dsa", "without latent attention"),
        (f"{MLA} --experimental-attention-variant gdn", "gdn is no family"),
        (MLA.replace("--q-lora-rank 1536", ""), "--q-lora-rank is missing"),
        ("hello", "no arguments"),
    ],
)
def test_what_is_no_model_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert words in str(caught.value)


def test_values_nothing_sets_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc_per_node 8 --nnodes $NODES t.py {GPT} --tensor-model-parallel-size $TP\n")
    full = complete(read_megatron(path))
    assert {note.name for note in full.not_expressed} == {"--nnodes", "--tensor-model-parallel-size"}
    assert all("which nothing here sets" in note.reason and note.line == 1 for note in full.not_expressed)
    path.write_text(f"torchrun t.py {GPT} --num-layers $N\n")
    with pytest.raises(InputError, match="depends on N"):
        read_megatron(path)


def test_gpus_come_from_the_launcher_or_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc_per_node 8 --nnodes 4 t.py {GPT}\n")
    assert complete(read_megatron(path)).values("cluster") == {
        "gpu": "h100", "nodes": 4, "gpus_per_node": 8, "nic_gbit_per_gpu": 400,
    }  # fmt: skip
    layout = "--pipeline-model-parallel-size 4 --context-parallel-size 2 --expert-model-parallel-size 16"
    cluster = complete(read(f"{DSA} {layout}")).values("cluster")
    assert cluster["nodes"] * cluster["gpus_per_node"] == 64


def script(path: Path, text: str) -> Imported:
    path.mkdir(exist_ok=True)
    (path / "run.sh").write_text(text)
    return complete(read_megatron(path / "run.sh"))


@pytest.mark.parametrize(
    "launcher",
    [
        "torchrun --nproc_per_node=4 --nnodes=4",
        "torchrun --nproc-per-node 4 --nnodes 4",
        "N=4; python -m torch.distributed.run --nproc-per-node=$N --nnodes=$N",
        "srun --ntasks-per-node=4 --nodes=4 python",
    ],
)
def test_the_node_is_that_of_the_launcher(launcher: str, tmp_path: Path) -> None:
    full = script(tmp_path, f"{launcher} t.py {GPT}\n")
    cluster = full.sections["cluster"]
    assert (cluster["nodes"].value, cluster["gpus_per_node"].value) == (4, 4)
    assert cluster["gpus_per_node"].stated
    assert "-per-node, line 1" in cluster["gpus_per_node"].origin
    assert not full.not_expressed


@pytest.mark.parametrize(
    ("options", "name"),
    [("--nproc_per_node=gpu --nnodes=2", "--nproc-per-node"), ("--nproc_per_node auto", "--nproc-per-node"),
     ("--nproc_per_node 8 --nnodes 1:4", "--nnodes")],
)  # fmt: skip
def test_numbers_known_only_at_the_start_are_named(options: str, name: str, tmp_path: Path) -> None:
    (note,) = script(tmp_path, f"torchrun {options} t.py {GPT}\n").not_expressed
    assert note.name == name
    assert "not read: a number is expected" in note.reason


def test_a_node_that_the_gpus_do_not_fill_is_said(tmp_path: Path) -> None:
    full = script(tmp_path, f"torchrun --nproc_per_node 3 --nnodes $N t.py {GPT} --tensor-model-parallel-size 4\n")
    assert "no whole nodes of 3" in full.sections["cluster"]["gpus_per_node"].origin


@pytest.mark.parametrize("word", ["$(cat extra.args)", "`cat extra.args`", "$EXTRA", "${EXTRA}"])
def test_unknown_words_leave_the_value_before_them(word: str, tmp_path: Path) -> None:
    text = f"torchrun --nproc_per_node 8 t.py --bf16 {word} {GPT} --recompute-granularity full {word} --lr 1\n"
    full = script(tmp_path, text)
    assert full.sections["training"]["recompute"].value == "full"
    (note,) = full.not_expressed
    assert note.name in ("$(...)", "$EXTRA")
    assert "not read" in note.reason


def test_what_stands_for_nothing_is_not_named(tmp_path: Path) -> None:
    text = 'if false; then X="--fp8-format hybrid"; fi\n' + f'torchrun t.py {GPT} --bf16 `# note` $X "$@"\n'
    full = script(tmp_path, text)
    assert full.sections["training"]["precision"].value == "bf16"
    assert not full.not_expressed


def test_an_unknown_batch_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--global-batch-size depends on GB.*every argument the cost depends on"):
        script(tmp_path, f"torchrun t.py {GPT} --global-batch-size $GB\n")
    full = script(tmp_path, f"torchrun t.py {GPT} --global-batch-size $((2 * 8 * 2**2))\n")
    assert full.values("workload")["global_batch_size"] == 64


def test_recomputation_of_some_layers_is_named() -> None:
    full = "--recompute-granularity full --recompute-num-layers"
    for method, words in (("block", "3 of the layers of a stage are"), ("uniform", "3 of the layers of a stage at a")):
        found = read(f"{GPT} {full} 3 --recompute-method {method}")
        assert found.sections["training"]["recompute"].value == "full"
        assert [note.name for note in found.not_expressed] == ["--recompute-method", "--recompute-num-layers"]
        assert all(words in note.reason and "assumes all" in note.reason for note in found.not_expressed)
    assert not read(f"{GPT} {full} 1 --recompute-method uniform").not_expressed


@pytest.mark.parametrize("name", ["virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"])
def test_virtual_stages_by_either_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    lines = [f"{key}: {value}" for key, value in zip(*[iter(GPT.replace("--", "").split())] * 2, strict=True)]
    path.write_text("\n".join([*lines, "pipeline-model-parallel-size: 4", f"{name}: 3"]))
    found = read_megatron(path)
    assert (found.values("layout")["vpp"], found.values("layout")["schedule"]) == (3, "interleaved")
    assert name.replace("_", "-") in found.sections["layout"]["vpp"].origin
    assert not found.not_expressed


def test_a_second_launch_is_named(tmp_path: Path) -> None:
    first, same = f"torchrun --nproc_per_node 8 t.py {GPT} --bf16\n", "torchrun --nproc_per_node 8 t.py"
    (note,) = script(tmp_path, f"{first}\n{same} {GPT}\n").not_expressed
    assert (note.name, note.line) == ("t.py", 3)
    assert "another launch, not read: the scenario is that of line 1" in note.reason
    assert not script(tmp_path, first + first).not_expressed
    assert not script(tmp_path, f"python prepare.py --input x\n{first}").not_expressed
    assert not script(tmp_path, f'C="{first.strip()}"\neval $C --lr 1\n').not_expressed


def test_undecided_conditions_are_named(tmp_path: Path) -> None:
    full = script(tmp_path, f"if [ -f x ]; then TP=2; else TP=1; fi\ntorchrun t.py {GPT} --micro-batch-size $TP\n")
    (note,) = full.not_expressed
    assert (note.name, note.line) == ("if [ -f x ]", 1)
    assert "its branches were read in order; what was read last holds for TP" in note.reason
