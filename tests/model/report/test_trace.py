import json
from collections import defaultdict

import pytest

from hyscale_model.moments import memory_moments
from hyscale_model.report.trace import trace
from hyscale_model.timeline import timeline

# A hundredth of a nanosecond, in the microseconds of a trace.
CLOSE = 1e-5


@pytest.fixture(scope="module")
def steps(resolve):
    resolved = resolve(systems=("megatron", "hyscale"))
    return {name: (timeline(resolved, name), memory_moments(resolved, name)) for name in ("megatron", "hyscale")}


@pytest.fixture(scope="module")
def events(steps):
    return json.loads(json.dumps(trace(steps), allow_nan=False))["traceEvents"]


def tracks(events):
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return found


def test_slices_of_a_track_nest_strictly(events):
    for slices in tracks(events).values():
        around = []
        for start, end, name in sorted(slices, key=lambda each: (each[0], -each[1])):
            while around and around[-1] <= start + CLOSE:
                around.pop()
            assert not around or end <= around[-1] + CLOSE, name
            around.append(end)


def test_every_event_is_complete(events):
    for event in events:
        assert event["ph"] in "XMCsf"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] > 0


def test_there_is_a_process_a_stage_and_a_track_a_stream(events, steps):
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len(set(names.values())) == len(names) == 2 * 4
    streams = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"compute", "CP transfers", "EP transfers"} <= streams
    assert {event["pid"] for event in events} == set(names)


def test_the_trace_ends_with_the_step(events, steps):
    ends = defaultdict(float)
    for (process, _), slices in tracks(events).items():
        ends[process // 1000] = max(ends[process // 1000], *(end for _, end, _ in slices))
    for number, (found, _) in enumerate(steps.values()):
        assert ends[number] == pytest.approx(found.step_s * 1e6)


def test_arrows_come_in_pairs_and_lead_forward_in_time(events):
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    ended = {event["id"]: event for event in events if event["ph"] == "f"}
    assert set(begun) == set(ended)
    assert begun
    for key, event in begun.items():
        assert event["pid"] != ended[key]["pid"]
        assert event["ts"] < ended[key]["ts"] + CLOSE


def test_counters_return_to_nothing(events):
    held = defaultdict(list)
    for event in events:
        if event["ph"] == "C" and event["name"] == "micro-batches held":
            held[event["pid"]].append(event["args"]["micro-batches"])
    assert all(min(counts) >= 0 and counts[-1] == 0 and max(counts) > 0 for counts in held.values())


def test_memory_counters_reach_the_peak(events, steps):
    most = defaultdict(float)
    for event in events:
        if event["ph"] == "C" and event["name"].startswith("memory"):
            most[event["pid"]] = max(most[event["pid"]], sum(event["args"].values()))
    for number, (_, moments) in enumerate(steps.values()):
        for rank, rows in enumerate(moments["stages"]):
            assert most[number * 1000 + rank] == pytest.approx(max(sum(row.values()) for row in rows))
