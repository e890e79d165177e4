import json

import numpy as np
import pytest

from hyscale_model.catalog import measured
from hyscale_model.dashboard.profiles import KnownProfiles, of_text
from hyscale_model.errors import InputError
from hyscale_model.rates.load import load_profile

SHIPPED = "h200-sxm"


@pytest.fixture(scope="module")
def text():
    return measured.paths()[SHIPPED].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found():
    return KnownProfiles().compared(SHIPPED)


def test_errors_of_points_are_those_that_the_profile_states(found):
    stated = measured.read(measured.paths()[SHIPPED])["fits"]["families"]
    for family, entry in stated.items():
        for part in ("fit", "held_out"):
            mine = [each for each in found["points"] if (each["family"], each["part"]) == (family, part)]
            assert len(mine) == entry[part]["n"], family
            if mine:
                errors = [abs(each["predicted_s"] / each["measured_s"] - 1) for each in mine]
                # Stated with four digits, of coefficients with more.
                assert np.median(errors) == pytest.approx(entry[part]["median"], rel=0.02, abs=2e-4), family


def test_curves_cover_what_was_measured_and_never_pass_a_peak(found):
    for family, curves in found["curves"].items():
        sizes = [each["flops"] or each["bytes"] for each in found["points"] if each["family"] == family]
        assert min(curve["inside"][0] for curve in curves) == pytest.approx(min(sizes)), family
        assert max(curve["inside"][1] for curve in curves) == pytest.approx(max(sizes)), family
        for curve in curves:
            assert np.all(np.diff(curve["seconds"]) > 0), family
            for flops, moved, seconds in zip(curve["flops"], curve["bytes"], curve["seconds"], strict=True):
                assert flops / seconds <= found["peaks"][curve["precision"]] * 1.001
                assert moved / seconds <= found["peaks"]["hbm"] * 1.001


def test_an_uploaded_profile_is_compared_like_its_file(text, found):
    known = KnownProfiles({"key": {"name": "mine.json", "text": text, "kind": "profile"}})
    assert known.names()["upload:key"] == "mine.json (uploaded)"
    assert known.compared("upload:key")["points"] == found["points"]


def test_uploaded_scenarios_are_no_profiles(text):
    known = KnownProfiles({"key": {"name": "mine.yaml", "text": text}})
    assert "upload:key" not in known.names()
    with pytest.raises(InputError, match="uploaded in another browser"):
        known.compared("upload:key")


def damaged(text):
    data = json.loads(text)
    yield text[: len(text) // 2]
    yield "[]"
    yield json.dumps(data | {"kind": "other"})
    yield json.dumps(data | {"schema_version": 7})
    yield json.dumps(data | {"gpu": None})
    yield json.dumps(data | {"fits": {}})
    law = {"families": {"gemm": {"coefficients": {"hbm": -1}}}}
    yield json.dumps(data | {"fits": data["fits"] | law})


def test_a_broken_profile_gets_the_message_of_the_command_line(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for broken in damaged(text):
        (tmp_path / "mine.json").write_text(broken, encoding="utf-8")
        with pytest.raises(InputError) as on_page:
            of_text(broken, "mine.json")
        with pytest.raises(InputError) as on_command_line:
            load_profile("mine.json")
        assert str(on_page.value) == str(on_command_line.value)


@pytest.mark.parametrize(
    "change",
    [
        {"measurements": None},
        {"measurements": [{"id": 1}]},
        {"measurements": [{"id": "x", "row": "gemm", "dtype": "bf16", "shape": {}, "sms": 0, "part": "fit"}]},
        {"machines": []},
        {"gpu": "no such GPU"},
    ],
    ids=str,
)
def test_measurements_that_cannot_be_read_are_told(text, change):
    with pytest.raises(InputError):
        of_text(json.dumps(json.loads(text) | change), "mine.json")


def test_a_file_of_another_name_is_not_opened():
    for name in ("/etc/passwd", "../h200-sxm", "mine.json"):
        with pytest.raises(InputError, match="there is no profile"):
            KnownProfiles().compared(name)
