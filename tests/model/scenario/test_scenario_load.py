from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.scenario import load, loads

# The package's function of the same name hides the module from a plain import.
load_module = importlib.import_module("hyscale_model.scenario.load")

SCALARS = [
    ("1e9", 1e9),
    ("744.0e9", 744e9),
    (".5", 0.5),
    ("5.", 5.0),
    ("-1.5E+3", -1500.0),
    ("17", 17),
    ("017", 17),
    ("0o17", 15),
    ("0x1F", 31),
    ("+12", 12),
    ("no", "no"),
    ("yes", "yes"),
    ("on", "on"),
    ("y", "y"),
    ("1:30", "1:30"),
    ("1_000", "1_000"),
    ("0b11", "0b11"),
    ("2026-08-22", "2026-08-22"),
    ("true", True),
    ("TRUE", True),
    ("False", False),
    ("~", None),
    ("null", None),
    ("", None),
    ("'17'", "17"),
    ('"true"', "true"),
    ("!!str 17", "17"),
    ("!!float 17", 17.0),
    ("! 17", "17"),
]


@pytest.fixture(params=["libyaml", "python"])
def either_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(load_module, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    loaded = loads(f"key: {text}\n", "f").data["key"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_lines_are_those_of_the_keys() -> None:
    document = loads("# comment\na: 1\nb:\n  c: [x,\n    y]\n  d:\n    - e: 1\n", "f")
    assert document.line(()) == 2
    assert document.line(("a",)) == 2
    assert document.line(("b",)) == 3
    assert document.line(("b", "c", 1)) == 5
    assert document.line(("b", "d", 0, "e")) == 7
    assert document.line(("b", "missing")) is None
    assert document.line(("b", "c", 9)) is None


def test_aliases_are_values_at_their_own_line() -> None:
    document = loads("a: &x {b: 1}\nc: *x\n", "f")
    assert document.data["c"] == {"b": 1}
    assert document.line(("c",)) == 2
    assert document.line(("c", "b")) == 1


def test_keys_keep_their_type_only_below_choices() -> None:
    data = loads("choices: {bf16: 1, 2: 1, true: 1, 0.5: 1}", "f").data["choices"]
    assert [(type(key), key) for key in data] == [(str, "bf16"), (int, 2), (bool, True), (float, 0.5)]


def test_byte_order_mark_of_utf8_and_crlf_are_fine() -> None:
    assert loads("\ufeffa: 1\r\nb: 2\r\n".encode(), "f").data == {"a": 1, "b": 2}


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)
)

REFUSED = [
    ("duplicate key", "a: 1\nb: 2\na: 3\n", 3, "lines 1 and 3", "once"),
    ("duplicate nested key", "x:\n  a: 1\n  a: 2\n", 3, "lines 2 and 3", "once"),
    ("equal typed keys", "choices: {1: 1, 1.0: 2}", 1, "twice", "once"),
    ("python tag", "a: 1\nb: !!python/object:os.system x\n", 2, "python/object", "without a tag"),
    ("local tag", "a: !mine x\n", 1, "!mine", "without a tag"),
    ("tag on mapping", "a: !!set {x}\n", 1, "!!set", "without a tag"),
    ("tag that does not fit", "a: !!int x\n", 1, "!!int", "no tag"),
    ("merge key", "a: &a {x: 1}\nb: {<<: *a}\n", 2, "merge", "extends"),
    ("cyclic alias", "a: &a\n  - *a\n", 2, "contains itself", "complete"),
    ("unknown alias", "a: *b\n", 1, "refers to nothing", "&b"),
    ("alias bomb", BOMB, 5, "too many values", "50000"),
    ("deep flow", "[" * 100_000, 1, "nested too deeply", "50 levels"),
    ("deep flow mapping", "{a: " * 100_000, 1, "nested too deeply", "50 levels"),
    ("deep block", "- " * 100_000, 1, "nested too deeply", "50 levels"),
    ("not a number", "a: 1\nb: .nan\n", 2, "not a finite number", "finite"),
    ("infinite", "a: -.inf\n", 1, "not a finite number", "finite"),
    ("overflow", "a: 1e999\n", 1, "too large", "finite"),
    ("many digits", "a: " + "9" * 5000, 1, "too large", "finite"),
    ("number as key", "a:\n  1: x\n", 2, "the key is 1", "text"),
    ("null as key", "~: x\n", 1, "null", "text"),
    ("list as key", "? [a]\n: x\n", 1, "list or a mapping", "text"),
    ("mapping as key", "{a: 1}: x\n", 1, "list or a mapping", "text"),
    ("second document", "a: 1\n---\nb: 2\n", 2, "second document", "one document"),
    ("list", "- a\n", 1, "a list", "mapping"),
    ("scalar", "\nhello\n", 2, "single value", "mapping"),
    ("empty", "", None, "empty", "mapping"),
    ("only a comment", "# nothing\n", None, "empty", "mapping"),
    ("only a document mark", "---\n", None, "empty", "mapping"),
    ("UTF-16", "a: 1\n".encode("utf-16"), None, "UTF-16", "UTF-8"),
    ("UTF-32", "a: 1\n".encode("utf-32"), None, "UTF-32", "UTF-8"),
    ("not UTF-8", b"a: 1\nb: \xff\n", 2, "0xff", "UTF-8"),
    ("binary", b"\x7fELF\x00\x01\n", 1, "binary", "UTF-8"),
    ("control character", "a: 1\nb: \x07\n", 2, "U+0007", "plain text"),
    ("escaped control character", 'a: "\\e[2J"\n', 1, "control character", "plain text"),
    ("lone surrogate", "a: \ud800\n", 1, "U+D800", "plain text"),
    ("unclosed list", "a: [1, 2\nb: 3\n", 2, "not YAML", "bracket"),
    ("unclosed quote", "a: 'x\n", 2, "not YAML", "closing"),
    ("colon in text", "a: x: y\n", 1, "not YAML", "quotes"),
    ("tab as indentation", "a:\n\tb: 1\n", 2, "not YAML", "spaces"),
    ("too large", "a: " + "x" * (1 << 20), None, "larger", "1 MiB"),
]


@pytest.mark.parametrize(
    ("text", "line", "problem", "expected"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_unusual_text_is_refused(text: str | bytes, line: int | None, problem: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(text, "f.yaml")
    error = caught.value
    assert error.file == "f.yaml"
    # libyaml and PyYAML's own parser may notice an unclosed bracket a line apart.
    assert (
        error.line is None
        if line is None
        else error.line is not None
        and abs(error.line - line) <= (1 if "closing" in expected or "bracket" in expected else 0)
    )
    assert problem in error.problem
    assert expected in (error.expected or "")
    assert len(str(error)) < 500


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize("text", [case[1] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_both_parsers_refuse(text: str | bytes) -> None:
    with pytest.raises(InputError):
        loads(text, "f")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, problem in ((tmp_path / "missing.yaml", "no such file"), (tmp_path, "directory")):
        with pytest.raises(InputError) as caught:
            load(path)
        assert problem in caught.value.problem
        assert caught.value.file == str(path)
    with pytest.raises(InputError):
        load("a\0b")
    with pytest.raises(InputError):
        load("x" * 5000)
    (tmp_path / "large.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match="larger"):
        load(tmp_path / "large.yaml")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdefgh", min_size=1), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1), plain, max_size=5).filter(bool))
def test_what_is_written_as_json_is_read_back(data: dict[str, object]) -> None:
    assert loads(json.dumps(data), "f").data == data
