import io

from hyscale_model.report.canvas import make_console
from hyscale_model.report.catalog import render_gpus, render_models

MODEL = {
    "name": "small [red]",
    "parameters": 743910000000,
    "active_parameters": 41780000000,
    "position": 1048576,
    "keys_scored": 81788928,
    "keys_attended": 159744,
    "token_flops": {"weights": 80e9, "scores": 670e9, "attention": 23.9e9},
    "layers": {"attention": {"dsa": 21, "dsa_shared": 57}, "feed_forward": {"moe": 78}},
}
GPU = {
    "name": "h20-96",
    "architecture": "hopper",
    "sms": 78,
    "bf16_flops": 148e12,
    "fp8_flops": None,
    "hbm_bytes_per_s": 4e12,
    "memory_bytes": 97871 * 2**20,
    "nvlink_bytes_per_s": 450e9,
}


def shown(render, rows, width=80):
    file = io.StringIO()
    render(rows, make_console(file, width=width))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def test_models():
    lines = shown(render_models, [MODEL], width=100)
    (row,) = [line for line in lines if "small [red]" in line]
    figures = ["743.9", "41.78", "81.8", "0.160", "773.9"]
    assert row.split() == ["small", "[red]", *figures, "21", "dsa,", "57", "dsa_shared"]
    assert "1,048,576" in "".join(lines)
    assert "the same with the selection of an earlier layer" in " ".join(lines)


def test_what_a_model_does_not_have_is_a_dash():
    nothing = {"keys_scored": None, "keys_attended": None, "token_flops": None}
    lines = shown(render_models, [{**MODEL, "name": "short", **nothing}])
    (row,) = [line for line in lines if "short" in line]
    assert row.split()[3:6] == ["-", "-", "-"]


def test_gpus():
    lines = shown(render_gpus, [GPU])
    (row,) = [line for line in lines if "h20-96" in line]
    assert row.split() == ["h20-96", "hopper", "78", "148.0", "-", "4.000", "97,871", "450.0"]
