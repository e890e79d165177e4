"""Files of profiles: what is damaged is refused with its place, and merging depends on contents alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hyscale_calibration import profile_file
from hyscale_calibration.profile_file import ProfileError, catalogue_name, dumps, merged, read, write
from simulated import IDENTITY

KEY = profile_file.machine_key(IDENTITY)


def entry(name, ms=1.0, samples=5):
    point = {"id": name, "operation": "gemm", "row": "gemm", "dtype": "bf16", "shape": {"m": 1}, "sms": 0}
    return {**point, "part": "fit", "machine": KEY, "median_ms": ms, "samples": samples}


def profile(*entries, failed=(), **changes):
    made = profile_file.empty("mine", "h200")
    made["machines"] = {KEY: IDENTITY}
    made["kernels"] = {"gemm": None}
    made["measurements"] = list(entries)
    made["failed"] = [{"id": name, "message": "no memory"} for name in failed]
    return {**made, **changes}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "p.json"


def test_what_is_written_is_read(path):
    write(path, profile(entry("b"), entry("a"), failed=["c"]))
    found = read(path)
    assert [each["id"] for each in found["measurements"]] == ["a", "b"]
    assert found["failed"] == [{"id": "c", "message": "no memory"}]
    assert dumps(found) == path.read_text()


def test_one_measurement_is_one_line(path):
    write(path, profile(*(entry(str(number)) for number in range(5))))
    assert sum('"id"' in line for line in path.read_text().splitlines()) == 5


def test_a_failure_to_write_leaves_the_file_as_it_was(path):
    write(path, profile(entry("a")))
    before = path.read_text()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(path, profile(entry("a", float("nan"))))
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_file_that_is_cut_short_is_refused_and_left(path, share):
    write(path, profile(entry("a"), entry("b")))
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(ProfileError, match=r"p\.json:\d+: not JSON .*damaged or cut short"):
        read(path)
    assert path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 2}, "schema version 2, this program reads and writes 1"),
        ({"kind": "published"}, "no measured profile"),
        ({"collectives": {"measured": True, "rows": [{"kind": "send"}]}}, "have no groups"),
        ({"measurements": [{"id": "a"}]}, r"measurements\[0\] lacks row, dtype"),
        ({"measurements": [entry("a", -1.0)]}, "a took -1.0 ms, which no kernel does"),
    ],
)
def test_what_is_no_profile_of_this_version_is_refused(path, changes, message):
    path.write_text(json.dumps(profile(**changes)))
    with pytest.raises(ProfileError, match=message):
        read(path)


def test_what_is_missing_is_named(path):
    data = profile()
    del data["machines"]
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match="lacks machines"):
        read(path)
    with pytest.raises(ProfileError, match="cannot be read: No such file"):
        read(path.with_name("other.json"))


def contents(found):
    return json.dumps({**found, "name": ""}, sort_keys=True), sorted(each["id"] for each in found["measurements"])


entries = st.lists(
    st.builds(entry, st.sampled_from("abcdef"), st.sampled_from([1.0, 2.0]), st.sampled_from([5, 9])),
    max_size=6,
    unique_by=lambda each: each["id"],
)


@given(entries, entries, entries)
def test_merging_depends_on_contents_not_on_order(one, two, three):
    parts = [("1", profile(*one)), ("2", profile(*two)), ("3", profile(*three))]
    whole = merged(parts)
    assert dumps(merged(parts[::-1])) == dumps(whole)
    assert dumps(merged([("1 and 2", merged(parts[:2])), parts[2]])) == dumps(whole)
    assert dumps(merged([("all", whole), ("all", whole)])) == dumps(whole)


def test_more_samples_win_then_the_shorter_time():
    found = merged([("a", profile(entry("x", 1.0, 5))), ("b", profile(entry("x", 3.0, 9)))])
    assert found["measurements"][0]["median_ms"] == 3.0
    found = merged([("a", profile(entry("x", 2.0))), ("b", profile(entry("x", 1.0)))])
    assert found["measurements"][0]["median_ms"] == 1.0


def test_what_failed_in_one_and_was_measured_in_another_is_measured():
    found = merged([("a", profile(failed=["x", "y"])), ("b", profile(entry("x")))])
    assert [each["id"] for each in found["failed"]] == ["y"]


def ranks(count, seconds):
    return {"ranks": count, "ranks_per_node": 8, "backend": "nccl", "rows": [{"median_s": seconds}]}


def test_collectives_of_each_number_of_ranks_are_kept_and_of_the_same_the_faster():
    given = [
        profile(collectives={"measured": True, "groups": [each]}) for each in (ranks(8, 2), ranks(2, 1), ranks(8, 1))
    ]
    wanted = {"measured": True, "groups": [ranks(2, 1), ranks(8, 1)]}
    for order in ((0, 1, 2), (2, 1, 0)):
        assert merged([("none", profile()), *((str(at), given[at]) for at in order)])["collectives"] == wanted


def test_profiles_of_other_gpus_or_kernels_are_not_merged():
    other = {**IDENTITY, "name": "NVIDIA H20", "sms": 78}
    with pytest.raises(ProfileError, match=r"NVIDIA H200 with 132 SMs \(a\) and NVIDIA H20 with 78 SMs \(b\)"):
        merged([("a", profile()), ("b", profile(machines={"k": other}))])
    with pytest.raises(ProfileError, match="b: gemm was measured with other kernels than in a"):
        merged([("a", profile()), ("b", profile(kernels={"gemm": "1" * 64}))])


@pytest.mark.parametrize(
    ("name", "gibibytes", "expected"),
    [
        ("NVIDIA H200", 140, "h200"),
        ("NVIDIA H20", 95, "h20-96"),
        ("NVIDIA H20", 139, "h20-141"),
        ("NVIDIA H100 80GB HBM3", 79, "h100"),
        ("NVIDIA H20-like", 95, None),
        ("a card", 10, None),
    ],
)
def test_a_gpu_is_known_by_its_whole_name(name, gibibytes, expected):
    assert catalogue_name({"name": name, "memory_bytes": gibibytes * 2**30}) == expected
