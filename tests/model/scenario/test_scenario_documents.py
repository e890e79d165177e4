"""Lengths of packed documents in each of their forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyscale_model.errors import InputError
from hyscale_model.scenario import Resolved, read_scenario
from hyscale_model.scenario.documents import LIMIT_LENGTHS
from hyscale_model.scenario.schema import DocumentLengths

NONE = "document_lengths: none"


def read(base_text: str, value: str, *overrides: str) -> Resolved:
    return read_scenario("x.yaml", text=base_text.replace(NONE, f"document_lengths: {value}"), overrides=overrides)


def from_file(folder: Path, base_text: str, content: str) -> Resolved:
    (folder / "lengths.csv").write_text(content)
    path = folder / "scenario.yaml"
    path.write_text(base_text.replace(NONE, "document_lengths: {file: lengths.csv}"))
    return read_scenario(path)


@pytest.mark.parametrize(
    ("value", "lengths", "weights"),
    [
        ("{lengths: [4096, 1024], weights: [0.25, 0.75]}", (4096, 1024), (0.25, 0.75)),
        ("{lengths: [4096, 1024]}", (4096, 1024), (1.0, 1.0)),
        ("{histogram: {32768: 1, 1024: 5}}", (1024, 32768), (5.0, 1.0)),
        ("{histogram: {'1024': 0.5}}", (1024,), (0.5,)),
    ],
)
def test_lists_and_histograms(base_text: str, value: str, lengths: tuple, weights: tuple) -> None:
    resolved = read(base_text, value)
    assert resolved.scenario.workload.document_lengths == DocumentLengths(lengths=lengths, weights=weights)
    assert resolved.origins["workload.document_lengths.lengths.0"].detail == "x.yaml:7"


def test_none_and_a_number(base_text: str) -> None:
    assert read(base_text, "none").scenario.workload.document_lengths == "none"
    assert read(base_text, "4096").scenario.workload.document_lengths == 4096
    assert read(base_text, "none", "workload.document_lengths=8192").scenario.workload.document_lengths == 8192
    set_ = read(base_text, "none", "workload.document_lengths.histogram={1024: 1}").scenario.workload
    assert set_.document_lengths == DocumentLengths(lengths=(1024,), weights=(1.0,))
    swept = read(f"{base_text}\nsweep: {{workload.document_lengths: [none, 4096]}}\n", "none").scenario
    assert dict(swept.sweep) == {"workload.document_lengths": ("none", 4096)}


def test_files(tmp_path: Path, base_text: str) -> None:
    plain = from_file(tmp_path, base_text, "# lengths\n1024\n\n2048  # two\n1024\n")
    assert plain.scenario.workload.document_lengths == DocumentLengths(lengths=(1024, 2048), weights=(2.0, 1.0))
    assert plain.origins["workload.document_lengths.lengths.0"].detail == str(tmp_path / "lengths.csv")
    table = from_file(tmp_path, base_text, "\ufefflength,count\r\n4096,3\r\n1024, 7\r\n")
    assert table.scenario.workload.document_lengths == DocumentLengths(lengths=(1024, 4096), weights=(7.0, 3.0))


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("1024\nmany\n", 2, "'many' is not a length"),
        ("1024\n\n-3\n", 3, "not a length"),
        ("0\n", 1, "not a length"),
        ("1024,2,3\n", 1, "not a length"),
        ("1024\nlength\n", 2, "not a length"),
        ("1024,\n", 1, "not a length"),
        ("1.5\n", 1, "not a length"),
        ("\n# nothing\n", None, "no documents"),
        ("1024,5\n2097152,2\n", 2, "2 of 7 documents are longer than the 1048576"),
        ("10\x0024\n", 1, "binary"),
    ],
)
def test_bad_files_name_their_line(tmp_path: Path, base_text: str, content: str, line: int | None, words: str) -> None:
    with pytest.raises(InputError) as caught:
        from_file(tmp_path, base_text, content)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "lengths.csv"), line)
    assert words in caught.value.problem


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        ("{file: nowhere.txt}", ".file", "given as text"),
        ("{file: 3}", ".file", "3"),
        ("{histogram: 3}", ".histogram", "this is 3"),
        ("{histogram: {}}", ".histogram", "empty"),
        ("{histogram: {many: 3}}", ".histogram", "'many'"),
        ("{histogram: {1024: many}}", ".histogram.1024", "number of documents"),
        ("{histogram: {1024: 0}}", ".histogram.1024", "number of documents"),
        ("{histogram: {2097152: 3, 1024: 4}}", ".histogram", "3 of 7 documents"),
        ("{histogram: {1024: 3}, file: x}", "", "given together"),
        ("{lengths: [1024], weights: [1, 2]}", ".weights", "1 lengths and 2 weights"),
        ("{lengths: [0], weights: [1]}", ".lengths.0", "0 is not accepted"),
        ("{weights: [1]}", ".lengths", "lengths is missing"),
        ("{lenghts: [1], weights: [1]}", ".lenghts", "unknown key"),
        ("{lengths: [2097152, 8]}", "", "1 of 2 documents are longer"),
        ("2097152", "", "longer than the 1048576 positions"),
        ("many", "", "text 'many'"),
        ("[1024]", "", "a list"),
    ],
)
def test_bad_values_speak_of_the_field(base_text: str, value: str, field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(base_text, value)
    assert (caught.value.field, caught.value.line) == (f"workload.document_lengths{field}", 7)
    assert words in caught.value.problem
    assert "more)" not in caught.value.problem
    assert "literal" not in str(caught.value)


def test_a_missing_file_is_reported_where_it_is_named(tmp_path: Path, base_text: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(base_text.replace(NONE, "document_lengths: {file: nowhere.txt}"))
    with pytest.raises(InputError, match="no file") as caught:
        read_scenario(path)
    assert (caught.value.file, caught.value.line) == (str(path), 7)


def test_many_lengths_are_grouped(tmp_path: Path, base_text: str) -> None:
    lengths = range(1000, 11000)
    found = from_file(tmp_path, base_text, "\n".join(map(str, lengths))).scenario.workload.document_lengths
    assert isinstance(found, DocumentLengths)
    assert len(found.lengths) == len(found.weights) <= LIMIT_LENGTHS
    assert found.lengths[-1] == 10999
    assert sum(found.weights) == len(lengths)
    tokens = sum(length * weight for length, weight in zip(found.lengths, found.weights, strict=True))
    squares = sum(length**2 * weight for length, weight in zip(found.lengths, found.weights, strict=True))
    assert tokens == pytest.approx(sum(lengths), rel=1e-3)
    assert squares == pytest.approx(sum(length**2 for length in lengths), rel=1e-3)


def test_documents_must_fit_each_drawn_sequence(base_text: str) -> None:
    item = "{path: workload.sequence_length, choices: [1048576, 524288], reason: r}"
    with pytest.raises(InputError, match="the choice 524288"):
        read(f"{base_text}\nassumptions: [{item}]\n", "1000000")
