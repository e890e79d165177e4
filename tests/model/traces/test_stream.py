"""Traces of any size are read piece by piece, and what is wrong with one is said."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyscale_model.errors import InputError
from hyscale_model.traces import stream
from hyscale_model.traces.stream import read_events

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=6)


def read(path, keep=()):
    events = []
    return read_events(path, keep, events.append), events


@settings(max_examples=60)
@given(
    events=EVENTS,
    before=VALUES,
    behind=VALUES,
    indent=st.sampled_from([None, 2]),
    piece=st.integers(1, 40),
    escaped=st.booleans(),
)
def test_pieces_of_any_size_give_what_the_whole_gives(tmp_path_factory, events, before, behind, indent, piece, escaped):
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    whole = {"before": before, "traceEvents": events, "behind": behind}
    text = json.dumps(whole, indent=indent, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    path.write_bytes(text)
    wanted = json.loads(text.decode("utf-8", "replace"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK", piece)
        kept, found = read(path, ("before", "behind"))
    assert found == wanted["traceEvents"]
    assert kept == {"before": wanted["before"], "behind": wanted["behind"]}


def test_no_more_than_a_piece_is_held(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{"name": "x" * 100}] * 2000}))
    monkeypatch.setattr(stream, "CHUNK", 1000)
    longest = 0
    more = stream._Reader._more

    def watched(reader, size):
        nonlocal longest
        found = more(reader, size)
        longest = max(longest, len(reader._text))
        return found

    monkeypatch.setattr(stream._Reader, "_more", watched)
    assert len(read(path)[1]) == 2000
    assert longest < 4000


def test_a_list_of_events_alone_is_a_trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('[{"name": "a"}, {"name": "b"}]')
    assert read(path)[1] == [{"name": "a"}, {"name": "b"}]


WHOLE = json.dumps({"schemaVersion": 1, "traceEvents": [{"name": f"event {index}"} for index in range(20)], "last": 2})


@pytest.mark.parametrize("length", range(0, len(WHOLE), 7))
def test_a_trace_that_is_cut_off_is_refused(tmp_path, length):
    path = tmp_path / "trace.json"
    path.write_text(WHOLE[:length])
    with pytest.raises(InputError, match=r"trace.json.*ends in the middle"):
        read(path)


@pytest.mark.parametrize("length", [0, 1, 5, 30, 60])
def test_a_compressed_trace_that_is_cut_off_is_refused(tmp_path, length):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(WHOLE.encode())[:length])
    with pytest.raises(InputError, match=r"trace.json.gz.*(cut off or damaged|ends in the middle|no Chrome JSON)"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents": [{"name": "a"}, {"name": "b", "ts": }]}', "after 1 events not JSON"),
        ('{"traceEvents": [{"name": "a"} {"name": "b"}]}', "after 1 events .* where ','"),
        ('{"traceEvents": [{"name": "a"}, 3]}', "after 1 events this is no event: 3"),
        ('{"traceEvents": {}}', "is no list"),
        ('{"measured": {"step_time_s": 1}}', "no 'traceEvents'"),
        ('{"a" 1}', "no JSON object"),
        ("system: megatron", "no Chrome JSON"),
        ("[" * 100_000, "no event|values in values|ends in the middle"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, text, message):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        read(path)
    assert refused.value.file == str(path)


def test_a_value_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * 100_000)
    monkeypatch.setattr(stream, "CHUNK", 100)
    monkeypatch.setattr(stream, "LONGEST", 10_000)
    with pytest.raises(InputError, match="not JSON"):
        read(path)


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path)
