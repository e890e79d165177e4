"""Measured profiles: found by name, by path and for a GPU, and refused where they cannot be used."""

import json

import pytest

from hyscale_model.catalog import measured
from hyscale_model.errors import InputError
from hyscale_model.rates.load import load_profile
from hyscale_model.scenario import read_scenario

LAW = {
    "tensor.bf16": 0.7,
    "clocks.values": 0.3,
    "hbm": 0.9,
    "launch_s": 4e-6,
    "lag_s": 1e-5,
    "serial": 0.2,
    "sustained": 0.05,
}
FIT = {"coefficients": LAW, "spread": 0.05, "measured_s": [1e-4, 1e-2], "fit": {"n": 12}}
PROFILE = {"schema_version": 1, "kind": "measured", "name": "mine", "gpu": "h200", "fits": {"families": {"gemm": FIT}}}
SMALL = """
schema_version: 1
name: one node
model: glm-5.1
cluster: {{gpu: {gpu}, nodes: 16, gpus_per_node: 8, nic_gbit_per_gpu: 400}}
layout: {{cp: 128, ep: 128}}
workload: {{sequence_length: 131072, global_batch_size: 4}}
training: {{}}
systems: [megatron]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The user's folder of profiles, with nothing shipped beside it."""
    monkeypatch.setattr(measured, "folders", lambda: [tmp_path])
    return tmp_path


def put(folder, name="mine", **changes):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**PROFILE, **changes}))
    return path


def test_a_profile_is_found_by_name_and_by_path(own):
    path = put(own)
    for name in ("mine", str(path)):
        family = load_profile(name).families["gemm"]
        assert family.fitted.law.hbm == 0.9
        assert family.fitted.gpu == "h200"


def test_what_was_not_measured_has_published_rates(own):
    put(own)
    base = load_profile("published")
    found = load_profile("mine")
    assert found.families["topk_torch"] == base.families["topk_torch"]
    assert found.factors == base.factors


def test_a_profile_that_was_written_again_is_read_again(own):
    path = put(own)
    assert load_profile("mine").families["gemm"].fitted.law.hbm == 0.9
    changed = {"families": {"gemm": {**FIT, "coefficients": {**LAW, "hbm": 0.5}}}}
    path.write_text(json.dumps({**PROFILE, "fits": changed, "note": "longer"}))
    import os

    os.utime(path, ns=(1, 1))
    assert load_profile("mine").families["gemm"].fitted.law.hbm == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 7}, "schema version 7"),
        ({"gpu": None}, "which GPU of the catalogue"),
        ({"fits": {}}, "measurements but no fits"),
        ({"fits": {"families": {"gemm": {"coefficients": LAW}}}}, "fits.families.gemm: the fit lacks"),
        ({"fits": {"families": {"gemm": {**FIT, "coefficients": {**LAW, "hbm": -1}}}}}, "no law: hbm is -1"),
        ({"fits": {"families": {"gemm": {**FIT, "measured_s": [2.0, 1.0]}}}}, "makes no interval"),
        ({"kind": "other"}, "no measured profile"),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(own, changes, message):
    path = put(own, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_profile("mine")
    assert str(path) in str(caught.value)


def test_a_damaged_profile_is_told_with_its_line(own):
    path = put(own)
    path.write_text(path.read_text()[:50])
    with pytest.raises(InputError, match=r"mine\.json:1: profile: not JSON .*damaged or cut short"):
        load_profile("mine")
    assert measured.for_gpu("h200") is None


def test_names_that_do_not_exist_get_the_nearest(own):
    put(own)
    with pytest.raises(InputError, match="mine"):
        load_profile("mime")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_profile(str(own / "other.json"))


def chosen(gpu, *overrides):
    return read_scenario("s.yaml", text=SMALL.format(gpu=gpu), overrides=overrides)


def test_a_gpu_that_was_measured_is_predicted_by_its_own_profile(own):
    assert chosen("h200").scenario.profile == "published"
    put(own)
    resolved = chosen("h200")
    assert resolved.scenario.profile == "mine"
    assert "measured on h200" in resolved.origins["profile"].detail
    assert chosen("h100").scenario.profile == "published"
    assert chosen("h200", "profile=published").scenario.profile == "published"


def test_a_profile_without_fits_is_not_chosen(own):
    put(own, fits={})
    assert chosen("h200").scenario.profile == "published"


def test_the_users_profile_goes_before_a_shipped_one(tmp_path, monkeypatch):
    first, second = tmp_path / "user", tmp_path / "shipped"
    for folder, hbm in ((first, 0.5), (second, 0.6)):
        folder.mkdir()
        put(folder, "same", fits={"families": {"gemm": {**FIT, "coefficients": {**LAW, "hbm": hbm}}}})
    monkeypatch.setattr(measured, "folders", lambda: [first, second])
    assert load_profile("same").families["gemm"].fitted.law.hbm == 0.5
