"""A record of a training as ``hyscale_calibration.training`` writes it, made up."""

from types import SimpleNamespace

from hyscale_calibration.training.record import Record

MODEL = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 2,
    "num_attention_heads": 64,
    "q_lora_rank": 512,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 512,
    "vocab_size": 256,
}
GIB = 2**30


def step(loss, milliseconds=100.0, weights="w", selected=("s", "s"), reselected=None):
    return SimpleNamespace(
        loss=loss,
        index_loss=0.5,
        selected=selected,
        reselected=selected if reselected is None else reselected,
        weights=weights,
        time_ms=milliseconds,
        peak_bytes=11 * GIB,
    )


def training_record():
    """Two stages of 2 and 4 steps; the last systems to run are 1.5 times as fast, and pairs differ from step 3 on."""
    record = Record(
        {
            "gpu": "h200",
            "device": {"name": "NVIDIA H200"},
            "model": MODEL,
            "task": {"tokens": 32768},
            "stages": [{"steps": 2, "document": 512}, {"steps": 4, "document": 32768}],
        }
    )
    for name in ("megatron", "hyscale", "hyscale/pairs"):
        record.begin(name, system=name.partition("/")[0], deterministic=True)
        for number in range(6):
            off = 2**-20 if name == "hyscale/pairs" and number >= 3 else 0.0
            record.add(name, step(4.0 - number / 2 + off, weights=f"{number}{off}"))
    for name in ("megatron", "megatron/again", "hyscale-one-query", "hyscale"):
        system, _, again = name.partition("/")
        run = f"{system}/atomic" + ("/again" if again else "")
        record.begin(run, system=system, deterministic=False, first_step=2)
        for number in range(3):
            record.add(run, step(3.0 - number, 300.0 if system == "megatron" else 200.0, weights=run))
    record.add_selection(0, "megatron", shared_keys=[0.0, 0.0])
    record.add_selection(2, "megatron", shared_keys=[0.9, 0.7])
    return record
