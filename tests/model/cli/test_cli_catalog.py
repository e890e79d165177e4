import json

import pytest


def test_gpus_are_a_table(run):
    text = run("catalog", "gpus").out
    (row,) = [line for line in text.splitlines() if line.startswith("h20-96 ")]
    assert row.split() == ["h20-96", "hopper", "78", "148.0", "296.0", "4.000", "97,871", "450.0"]
    rows = json.loads(run("catalog", "gpus", "--json").out)["gpus"]
    (h200,) = [row for row in rows if row["name"] == "h200"]
    assert (h200["sms"], h200["hbm_bytes_per_s"], h200["memory_bytes"]) == (132, 4.8e12, 143771 * 2**20)
    (a100,) = [row for row in rows if row["name"] == "a100"]
    assert a100["fp8_flops"] is None


def test_models_are_a_table(run):
    result = run("catalog", "models")
    assert result.code == 0
    (row,) = [line for line in result.out.splitlines() if line.startswith("deepseek-v3.2 ")]
    assert row.split()[1:] == ["671.9", "38.40", "64.0", "0.125", "1,158", "61", "dsa"]
    rows = {row["name"]: row for row in json.loads(run("catalog", "models", "--json").out)["models"]}
    shared, own = rows["glm-5.2"], rows["glm-5.1"]
    # Index sharing: the FLOP of the last token fall 2.73 times.
    assert sum(own["token_flops"].values()) / sum(shared["token_flops"].values()) == pytest.approx(2.73, abs=0.01)
    assert shared["layers"]["attention"] == {"dsa": 21, "dsa_shared": 57}
    assert shared["keys_scored"] == 21 * 1048576
    # Its learned positions end at 2,048.
    assert rows["gpt-22b"]["token_flops"] is None
