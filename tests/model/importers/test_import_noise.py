"""Whatever is imported, only InputError comes out, and what is accepted can be read as a scenario."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hyscale_model.errors import InputError
from hyscale_model.importers import read_config
from hyscale_model.importers.complete import complete
from hyscale_model.importers.imported import Imported
from hyscale_model.importers.megatron import megatron_arguments, read_megatron
from hyscale_model.importers.write import mapping, scenario_text
from hyscale_model.scenario import read_scenario

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.json"))
VALUES = [None, True, -1, 0, 1, 7, 10**18, 1.5, "x", "", [], [0], ["full_attention"] * 3, {}, {"a": 1}, "a: b # c"]

DSA = """
--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --vocab-size 5000 --seq-length 2048 --swiglu
--num-experts 64 --moe-ffn-hidden-size 512 --multi-latent-attention --q-lora-rank 1536 --moe-layer-freq 1
--experimental-attention-variant dsa --dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128 --dsa-indexer-topk 512
--context-parallel-size 2 --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout E|t*24|L
--recompute-num-layers 1 --dsa-indexer-loss-coeff 0.1 --expert-tensor-parallel-size 1 --global-batch-size 4
--moe-shared-expert-intermediate-size 512 --num-layers-per-virtual-pipeline-stage 3 --bf16 --fp8-format e4m3
--decoder-first-pipeline-num-layers 3
"""
WORDS = ["", "-1", "0", "x", "1e9", "9" * 30, "[1]*24", "--a", "=", "\x00A\x00", "5 5", "#", "'", "a: b"]


def _survives(read: Callable[[], Imported]) -> None:
    message = ""
    try:
        imported = complete(read())
        json.dumps(mapping(imported))
        read_scenario("imported", text=scenario_text(imported))
    except InputError as error:
        message = str(error)
    assert len(message) < 1200


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_damaged_configurations(path: Path, tmp_path: Path) -> None:
    source = random.Random(path.stem)
    base = json.loads(path.read_text())
    for _ in range(120):
        config = json.loads(json.dumps(base))
        target = config.get("text_config", config)
        for key in source.sample(sorted(target), 2):
            target[key] = source.choice(VALUES)
        target[source.choice(["layer_types", "mlp_layer_types", "indexer_types", "new"])] = source.choice(VALUES)
        (tmp_path / "config.json").write_text(json.dumps(config))
        _survives(lambda: read_config(tmp_path / "config.json"))


def test_damaged_arguments() -> None:
    source = random.Random(0)
    for _ in range(300):
        words = DSA.split()
        for _ in range(2):
            words[source.randrange(len(words))] = source.choice(WORDS)
        _survives(partial(megatron_arguments, words))


@pytest.mark.parametrize("suffix", ["sh", "yaml"])
def test_noise_in_files(tmp_path: Path, suffix: str) -> None:
    source = random.Random(1)
    path = tmp_path / f"train.{suffix}"
    for _ in range(150):
        start = source.randrange(200)
        script = f"torchrun a.py {' '.join(DSA.split())}"
        text = script if suffix == "sh" else "num-layers: 2\nmodel: {hidden_size: 8}\n"
        noise = "".join(source.choice("ab=\"'$(){}[]\\\n #;&|-+`1:,") for _ in range(source.randrange(20)))
        path.write_text(text[:start] + noise + text[start:])
        _survives(lambda: read_megatron(path))
