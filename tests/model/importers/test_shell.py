"""Launch scripts are read as a shell would cut them, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.importers.launch import parse_arguments, read_launch
from hyscale_model.importers.patterns import layer_pattern, pipeline_layout
from hyscale_model.importers.shell import UNKNOWN, commands


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run --a 1 --b=2", ["run", "--a", "1", "--b=2"]),
        ("run \\\n  --a 1 \\\n  --b", ["run", "--a", "1", "--b"]),
        ("run 'a b' \"c d\" e\\ f", ["run", "a b", "c d", "e f"]),
        ("TP=4\nrun --a ${TP} --b $TP", ["run", "--a", "4", "--b", "4"]),
        ("run --a ${TP:-8}", ["run", "--a", "8"]),
        ("B=3; run --a ${A:-${B}}", ["run", "--a", "3"]),
        ("TP=4; EP=$((TP * 8 + 2)); run $EP", ["run", "34"]),
        ("N=2 W=$(($N*8)); run $W", ["run", "16"]),
        ("A=(--x 1 # one\n  --y '2 3'\n)\nrun ${A[@]}", ["run", "--x", "1", "--y", "2", "3"]),
        ("A=(--x 1\n  --y '2 3'\n)\nrun \"${A[@]}\"", ["run", "--x", "1", "--y", "2 3"]),
        ("A=(--x)\nA+=(--y)\nrun ${A[@]}", ["run", "--x", "--y"]),
        ('A="\n --x 1 \\\n --y"\nA+=" --z"\nrun $A', ["run", "--x", "1", "--y", "--z"]),
        ("export CUDA=1\nexport TP=2; run $TP # not $3", ["run", "2"]),
        ("run $'x' > log 2>&1 | tee out", ["run", "$x", ">", "log", "2>"]),
        ("run --a $MISSING", ["run", "--a", f"{UNKNOWN}MISSING{UNKNOWN}"]),
        ("run --a $(date)", ["run", "--a", f"{UNKNOWN}$(...){UNKNOWN}"]),
        ("run '$TP'", ["run", "$TP"]),
        ("run ${A:+x}", ["run"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text)[0] == expected


def test_lines_are_those_of_the_words() -> None:
    (command, *_) = commands("#!/bin/bash\nrun \\\n  --a 1 \\\n  --b")
    assert [(word.text, word.line) for word in command] == [("run", 2), ("--a", 3), ("1", 3), ("--b", 4)]


@given(st.text(alphabet="ab=\"'$(){}[]\\\n #;&|-+`1:@", max_size=60))
def test_any_text_is_read(text: str) -> None:
    commands(text)


@pytest.mark.parametrize(
    "text",
    [
        "A=aaaaaaaa\n" + 'A="$A$A"\n' * 40,
        "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40,
    ],
)
def test_what_grows_without_bound_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="too long"):
        commands(text)


SCRIPT = """
ARGS="--num-layers 12 --swiglu"
echo starting --with many --options to --see that --it is --not taken
torchrun --nproc_per_node=8 --nnodes 4 pretrain_gpt.py $ARGS --lr -1e-4 --cp-comm-type p2p a2a 2>&1 | tee log
"""


def test_arguments_of_program_and_launcher(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    launch = read_launch(path)
    assert {name: item.values for name, item in launch.program.items()} == {
        "num-layers": ("12",),
        "swiglu": (),
        "lr": ("-1e-4",),
        "cp-comm-type": ("p2p", "a2a"),
    }
    assert {name: item.values for name, item in launch.launcher.items()} == {"nproc-per-node": ("8",), "nnodes": ("4",)}
    path.write_text('CMD="python pretrain_gpt.py --num-layers 2"\nbash -c "${CMD}"\n')
    assert list(read_launch(path).program) == ["num-layers"]
    path.write_text("ARGS=(\n--num-layers 3\n)\n")
    assert read_launch(path).program["num-layers"].line == 2
    path.write_text("echo hello\n")
    with pytest.raises(InputError, match="no arguments"):
        read_launch(path)


def test_yaml_of_arguments(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text(
        "ENV_VARS: {CUDA: 1}\nMODEL_ARGS:\n  --num-layers: 2\n  --swiglu: true\nhidden_size: 8\nuse_x: false\n"
        "moe_layer_freq: [0, 1]\nexp: null\n"
    )
    found = {name: item.values for name, item in read_launch(path).program.items()}
    assert found == {"num-layers": ("2",), "swiglu": (), "hidden-size": ("8",), "moe-layer-freq": ("0", "1")}


def test_the_last_of_several_wins() -> None:
    assert parse_arguments(["--a", "1", "--a", "2"]).program["a"].values == ("2",)


def test_lists_of_layers() -> None:
    assert layer_pattern("([0]*3+[1]*2)") == [0, 0, 0, 1, 1]
    assert layer_pattern("[1, 0] * 2") == [1, 0, 1, 0]
    for text in ("", "[", "[1]*", "[0]*9999999", "__import__", "[[1]]", "(" * 50 + "[1]" + ")" * 50, "[1]*5000*5000"):
        assert layer_pattern(text) is None


def test_layouts_of_pipelines() -> None:
    assert pipeline_layout("Et*2|(tt|)*2,tmL") == ["Ett", "tt", "tt", "tmL"]
    for text in ("", "(", "t)", "*3", "t*9999999", "(" * 50, "1"):
        assert pipeline_layout(text) is None
