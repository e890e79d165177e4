"""Launch scripts are read as a shell would cut them, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.importers.launch import parse_arguments, read_launch
from hyscale_model.importers.patterns import layer_pattern, pipeline_layout
from hyscale_model.importers.shell import UNKNOWN, commands, read_script


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


@pytest.mark.parametrize("text", ["(){", "(a){", "((){", "( a ){ b", "(){}{"])
def test_a_bracket_before_a_brace_is_passed(text: str) -> None:
    commands(text)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * 8 * 2**2", "64"),
        ("(1 + 2) * 3", "9"),
        ("2 ** 3 ** 2", "512"),
        ("-7 / 2", "-3"),
        ("7 % 4 + 1", "4"),
        ("3 > 2 ? 10 : 20", "10"),
        ("A == 4 && B != 1 || 0", "1"),
        ("${A} * B", "8"),
        ("$A * ($B + 1)", "12"),
    ],
)
def test_arithmetic(text: str, expected: str) -> None:
    assert words(f"A=4 B=2\nrun $(( {text} ))")[0] == ["run", expected]


@pytest.mark.parametrize(
    "text", ["1 / 0", "2 ** 999", "NOT_SET + 1", "() + 1", "1 2", "9**17", "(" * 30 + "1" + ")" * 30, "A = 3", ""]
)
def test_arithmetic_without_a_value_stays_unknown(text: str) -> None:
    (command, *_) = commands(f"run $(({text}))")
    assert command[1].unknown


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('[ "$SIZE" = 7B ]', True),
        ('[ "$SIZE" == "13B" ]', False),
        ("[ $SIZE != 13B ]", True),
        ("[[ $SIZE == 7* ]]", True),
        ('[[ $SIZE == "7*" ]]', False),
        ("test $N -eq 4", True),
        ("[ $N -ne 4 ]", False),
        ("[ $N -gt 3 ]", True),
        ("[ $N -ge 5 ]", False),
        ("[ $N -lt 5 ]", True),
        ("[ $N -le 3 ]", False),
        ('[ -z "$NOT_SET" ]', True),
        ('[ -n "$NOT_SET" ]', False),
        ('[ -n "$1" ]', False),
        ("[ $# -gt 0 ]", False),
        ('[ "${NOT_SET:-7}" = 7 ]', True),
        ('[ "$NOT_SET" = 1 ]', False),
        ("[[ $N -eq 4 && $SIZE == 7B ]]", True),
        ("[[ ( $N -eq 3 || $N -eq 4 ) && ! -z $SIZE ]]", True),
        ("[ $N -eq 3 -o $N -eq 4 ]", True),
        ("[ $N -eq 4 ] && [ $N -eq 3 ]", False),
        ("[ $N -eq 3 ] || [ $N -eq 4 ]", True),
        ("! [ $N -eq 4 ]", False),
        ("[ ! $N -eq 4 ]", False),
        ("$ON", True),
        ("$OFF", False),
        ("true", True),
        ("false", False),
        ("((N > 3))", True),
        ("(( N % 4 ))", False),
        ("[[ ${SIZE,,} == 7b ]]", True),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "if {}; then A=1; else A=0; fi",
        "if false; then A=9\nelif {}\nthen\n A=1\nelse\n A=0\nfi",
        "A=0; {} && A=1",
        "{} && {{ A=1; }} || {{ A=0; }}",
        "A=0; while {}; do A=1; done",
    ],
)
def test_conditions_that_the_text_decides(condition: str, holds: bool, form: str) -> None:
    script = read_script(f"SIZE=7B N=4 ON=true OFF=false\n{form.format(condition)}\nrun $A")
    assert [[word.text for word in each] for each in script.commands if each[0].text == "run"] == [
        ["run", f"{holds:d}"]
    ]
    assert not script.undecided


@pytest.mark.parametrize(
    ("word", "expected"),
    [("7B", "a"), ("13B", "b"), ("14B", "b"), ("x-large", "c"), ('"*"', "d"), ("${S:-7B}", "a"), ("$NOT_SET", "e")],
)
def test_the_pattern_that_matches(word: str, expected: str) -> None:
    text = (
        f'case {word} in\n 7B) A=a ;;\n (13B|"14B") A=b ;; *-large ) A=c;; "*") A=d;;\n # rest\n *) A=e\nesac; run $A'
    )
    assert words(text)[0] == ["run", expected]
    assert not read_script(text).undecided


@pytest.mark.parametrize(
    ("text", "shown", "names"),
    [
        ("A=1\nif [ -f x ]; then A=2; fi", "if [ -f x ]", ("A",)),
        ("if [ $(nproc) -gt 4 ]\nthen A=2; B=1; else A=3; fi", "if [ $(nproc) -gt 4 ]", ("A", "B")),
        (
            "N=$(nproc)\nif [ $N = 1 ]; then A=1; elif [ $N = 2 ]; then A=2; fi",
            "if [ $N = 1 ]; elif [ $N = 2 ]",
            ("A",),
        ),
        ("[ -d /data ] && A=1", "[ -d /data ]", ("A",)),
        ("grep -q x y || A=1", "grep -q x y", ("A",)),
        ("case $(hostname) in a*) A=1;; *) A=2;; esac", "case $(hostname)", ("A",)),
        ("read A; while [ $A = 1 ]; do B=1; done", "while [ $A = 1 ]", ("B",)),
        ("if [ -e x ]; then python t.py --a 1; fi", "if [ -e x ]", ()),
    ],
)
def test_conditions_that_nothing_decides_are_named(text: str, shown: str, names: tuple[str, ...]) -> None:
    (found,) = read_script(text).undecided
    assert (found.text, found.variables) == (shown, names)


def test_undecided_branches_are_read_in_order() -> None:
    assert words("if [ -f x ]; then A=2; else A=3; fi; run $A")[-1] == ["run", "3"]
    assert not read_script("if [ -f x ]; then echo hello; fi; mkdir -p y && cd y").undecided


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) shift;; esac; done\nrun ${TP:-8}",
            ["run", "8"],
        ),
        ('for a in "$@"; do case $a in --tp=*) TP=1;; esac; done; run ${TP:-8}', ["run", "8"]),
        ("for i in 3; do X=$i; done; run $X", ["run", "3"]),
        ("S=$1; S=${S:-7B}; run $S", ["run", "7B"]),
        ("run ${A:+x} ${B:+y}", ["run"]),
        ("B=1; run ${B:+y}", ["run", "y"]),
        ("A=(a b c); run ${#A[@]}", ["run", "3"]),
        ("run `# a comment` --a 1 `# more`", ["run", "--a", "1"]),
        ("f() { A=1; }\nrun $A", ["run", "1"]),
        ("function f {\n A=1\n}\nrun $A", ["run", "1"]),
        ("(cd x; run 1)", ["run", "1"]),
        ("declare -i N=3; unset N; run ${N:-1}", ["run", "1"]),
    ],
)
def test_what_surrounds_commands(text: str, expected: list[str]) -> None:
    assert expected in words(text)


def test_values_that_the_shell_would_change_are_unknown() -> None:
    assert commands("A=x/y; run ${A##*/}")[0][1].unknown == "A##*/"
    assert commands('A=$(date); B="$A"; run --a "$B"')[0][2].unknown == "$(...)"


def test_nesting_has_a_bound() -> None:
    with pytest.raises(InputError, match="nested too deep"):
        commands("if " * 200)
