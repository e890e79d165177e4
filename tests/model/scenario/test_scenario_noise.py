"""Whatever comes in, only InputError comes out."""

from __future__ import annotations

import contextlib
import random
import time

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


@pytest.mark.parametrize(
    "extra",
    [
        "\n".join(f"key{index}: 1" for index in range(20_000)),
        "sweep:\n" + "\n".join(f"  layout.key{index}: [1]" for index in range(15_000)),
        "assumptions:\n" + "  - {path: layout.p, choices: [x], reason: r}\n" * 5_000,
        "assumptions:\n  - {path: layout.pp, choices: [" + "x, " * 40_000 + "], reason: r}",
    ],
)
def test_many_mistakes_take_no_longer_to_report(base_text: str, extra: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError, match="Expected"):
        read_scenario("noise", text=f"{base_text}\n{extra}\n")
    assert time.perf_counter() - start < 5


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
