import json
import math

import pytest

from hyscale_model.prediction import MEMORY_KINDS, TERMS
from hyscale_model.report import dumps


def test_terms_and_kinds_come_in_their_order(prediction):
    system = prediction["systems"]["megatron"]
    system["time_s"] = dict(reversed(system["time_s"].items()))
    system["memory"]["at_peak_bytes"] = dict(reversed(system["memory"]["at_peak_bytes"].items()))
    read = json.loads(dumps(prediction))["systems"]["megatron"]
    assert list(read["time_s"]) == list(TERMS)
    assert list(read["memory"]["at_peak_bytes"]) == list(MEMORY_KINDS)


def test_nothing_is_lost(prediction):
    prediction["systems"]["megatron"]["time_s"]["of_a_later_version"] = 1.0
    assert json.loads(dumps(prediction)) == prediction


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_refused_with_its_place(prediction, value):
    prediction["systems"]["hyscale"]["time_s"]["moe"] = value
    with pytest.raises(ValueError, match=r"systems\.hyscale\.time_s\.moe"):
        dumps(prediction)
