"""Whatever comes in, only InputError comes out."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.scenario import loads, read_scenario


def _survives(text: str | bytes, **options: object) -> None:
    with contextlib.suppress(InputError):
        read_scenario("noise", text=text, **options)  # type: ignore[arg-type]


@given(st.text())
def test_any_text(text: str) -> None:
    _survives(text)


@given(st.binary())
def test_any_bytes(content: bytes) -> None:
    _survives(content)


@given(st.text(alphabet="ab:-[]{}&*!?|>'\"%@#,~<\n \t019.e"))
@settings(max_examples=300)
def test_text_of_yaml_signs(text: str) -> None:
    _survives(text)


@pytest.mark.parametrize("seed", range(4))
def test_much_noise(seed: int) -> None:
    source = random.Random(seed)
    _survives(source.randbytes(200_000))
    _survives("".join(chr(source.randrange(32, 127)) for _ in range(200_000)))
    _survives("".join(source.choice("ab:-[]{}&*!'\"\n ,#") for _ in range(200_000)))


def test_damaged_scenarios(base_text: str) -> None:
    source = random.Random(0)
    pieces = [
        "[",
        "]",
        "{",
        "}",
        ": ",
        "\n",
        "- ",
        "null",
        "-1",
        "1e400",
        "x",
        "true",
        "&a ",
        "*a",
        "extends: ",
        ",",
        "1e15",
    ]
    for _ in range(400):
        start = source.randrange(len(base_text))
        end = start + source.choice([0, 0, 1, 5, 20, 100])
        _survives(base_text[:start] + source.choice(pieces) + base_text[end:])


EXTRAS = {
    "unknown keys": lambda count: "\n".join(f"key{index}: 1" for index in range(count)),
    "unknown paths": lambda count: "sweep:\n" + "\n".join(f"  layout.key{index}: [1]" for index in range(count)),
    "assumptions": lambda count: "assumptions:\n" + "  - {path: layout.p, choices: [x], reason: r}\n" * (count // 4),
    "choices": lambda count: "assumptions:\n  - {path: layout.pp, choices: [" + "x, " * count + "], reason: r}",
}


def _calls(text: str) -> int:
    """Python calls that refusing a scenario takes: what it costs, whatever else the machine does."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        with pytest.raises(InputError, match="Expected"):
            read_scenario("noise", text=text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
def test_many_mistakes_take_little_more_than_reading_them(base_text: str, extra: Callable[[int], str]) -> None:
    none, some, more = (_calls(f"{base_text}\n{extra(count)}\n") for count in (400, 4_000, 8_000))
    # Each costs what its text does; only the first hundred cost the search for the nearest name.
    assert more - some < 1.5 * (some - none)


def test_the_number_of_systems_is_bounded(base_text: str) -> None:
    with pytest.raises(InputError, match="at most 64"):
        read_scenario("noise", text=base_text.replace("[megatron", "[" + "megatron, " * 10_000 + "megatron"))


FIELDS = [
    "layout",
    "layout.pp",
    "model",
    "model.name",
    "cluster.gpu",
    "systems",
    "systems.hyscale.layout",
    "sweep",
    "zip.layout.pp",
    "assumptions",
    "reported",
    "schema_version",
    "scope",
    "workload.sequence_length",
]
VALUES = [
    "",
    "[",
    "[1]",
    "[[]]",
    "{}",
    "{a: 1}",
    "null",
    "-1",
    "1e15",
    "x",
    "true",
    "[null]",
    "[{path: 1}]",
    "[{path: layout.pp, choices: {[]: 1}}]",
    "[{path: layout.stage_layers, choices: [[20, 20, 20, 18]], reason: r}]",
    "[{path: layout.pp, range: [a, b], reason: r}]",
    "{choices: {1: 2}}",
    "[{name: a, choices: {1: 2}}]",
    "{extends: [1]}",
    "{extends: glm-5.1, 1: 2}",
    "{hf_config: 1}",
    "",
]


@pytest.mark.parametrize("field", FIELDS)
def test_damaged_fields(base_text: str, field: str) -> None:
    for value in VALUES:
        _survives(base_text, overrides=[f"{field}={value}"])


@given(st.text())
def test_any_override(text: str) -> None:
    with contextlib.suppress(InputError):
        read_scenario("noise", text="a: 1", overrides=[text], systems=[text])


def test_errors_of_the_loader_name_the_file() -> None:
    with pytest.raises(InputError) as caught:
        loads("[", "some file")
    assert caught.value.file == "some file"
