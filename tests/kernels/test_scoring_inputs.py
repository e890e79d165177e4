"""What scoring kernels refuse."""

import pytest
import torch
from hyscale_kernels.score_table import select
from hyscale_kernels.scoring.inputs import FP8
from inputs import DEVICE, exact, whole


def wrong(**changed):
    q, keys, weights = exact(3, 4, 32, 20)
    given = {"q": q, "keys": keys, "weights": weights, "spans": whole(3, 20), "topk": 2}
    return given | {name: change(given.get(name)) for name, change in changed.items()}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"topk": lambda _: 0}, "at least 1"),
        ({"block_rows": lambda _: 0}, "at least 1"),
        ({"q": lambda q: q[0]}, r"q must be \[n, heads, dim\]"),
        ({"keys": lambda keys: keys[:, :16]}, r"keys \[L, dim\]"),
        ({"q": lambda q: q.float()}, "both be bfloat16 or float8_e4m3fn"),
        ({"keys": lambda keys: keys.to(FP8)}, "both be bfloat16 or float8_e4m3fn"),
        ({"weights": lambda weights: weights[:, :2]}, r"weights must be \(3, 4\), is \(3, 2\)"),
        ({"spans": lambda spans: spans[:2]}, r"spans must be \(3, 2\)"),
        ({"spans": lambda spans: spans.float()}, "integer"),
        ({"spans": lambda spans: spans + 1}, "within 0 and 20"),
        ({"spans": lambda spans: spans - 1}, "within 0 and 20"),
        ({"q_scale": lambda _: torch.ones(3, device=DEVICE)}, r"q_scale must be \(3, 4\)"),
        ({"q_scale": lambda _: -torch.ones(3, 4, device=DEVICE)}, "q_scale must be positive"),
        ({"key_scale": lambda _: torch.ones(3, device=DEVICE)}, r"key_scale must be \(20,\)"),
        ({"key_scale": lambda _: torch.zeros(20, device=DEVICE)}, "key_scale must be positive"),
        ({"q": lambda q: q.new_ones(3, 129, 32), "weights": lambda _: None}, "1 to 128 heads"),
        ({"q": lambda q: q.new_ones(3, 0, 32), "weights": lambda _: None}, "1 to 128 heads"),
        (
            {"q": lambda q: q.new_ones(3, 65, 600), "keys": lambda k: k.new_ones(20, 600), "weights": lambda _: None},
            "heads . dim must be at most 16384",
        ),
    ],
)
def test_wrong_inputs_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        select(**wrong(**changed))
