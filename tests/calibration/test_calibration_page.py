"""The figures of the page on calibration are those of the shipped profile, of the plans and of the check."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from hyscale_calibration import profile_file
from hyscale_calibration.fits import COVERAGE_BAR, ERROR_BARS
from hyscale_calibration.plan import plan

from hyscale_model.checks import check

DOCS = Path(__file__).parents[2]
PAGE = (DOCS / "docs" / "calibration.md").read_text(encoding="utf-8")
README = (DOCS / "README.md").read_text(encoding="utf-8")
FAMILIES = {
    "scoring into a table": "index_scoring.table",
    "scoring alone": "index_scoring.only",
    "HyTopK's filter": "index_scoring.filter",
    "HyTopK's thresholds": "index_sampling",
    "its marked keys, collected": "compaction",
    "its candidates, sorted": "candidate_sorting",
    "all three that follow the filter": "candidate_select",
    "torch.topk": "topk_torch",
    "top-k of ours": "topk_radix",
    "products, BF16 and FP8": "gemm",
    "grouped products": "grouped_gemm",
    "dense attention, backward": "dense_attention_backward",
    "replay": "replay_scoring",
    "its gradients": "index_backward",
    "index loss": "index_loss",
    "sparse attention": "sparse_attention_forward.hyscale_kernels",
    "with probabilities": "sparse_attention_probabilities",
    "its backward": "sparse_attention_backward.hyscale_kernels",
    "backward of query pairs": "sparse_attention_backward_pairs",
    "norm": "norm",
    "its gradient": "norm_backward",
    "gather": "gather",
    "scatter": "scatter_add",
}
# Of what is predicted anew: the digits that the page tells, as a share, and what draws elsewhere differ.
ABOUT = {"abs": 0.006}


@pytest.fixture(scope="module")
def fits():
    return profile_file.read(files("hyscale_calibration") / "profiles" / "h200-sxm.json")["fits"]


def table(*columns):
    """Rows of the table with these columns: first cell -> the others."""
    lines = PAGE.split("| " + " | ".join(columns) + " |\n")[1].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]
    return {row[0]: row[1:] for row in rows}


def share(text):
    return float(re.match(r"[-+]?[\d.]+", text)[0]) / 100


def rounded(text):
    """What rounds to the digits that are told: 6.2 % may be 6.15 to 6.25 %."""
    whole, decimals = re.match(r"[-+]?(\d+)(?:\.(\d+))?", text).groups()
    return pytest.approx(float(f"{whole}.{decimals or 0}") / 100, abs=0.51 * 10.0 ** -(2 + len(decimals or "")))


def test_held_out_errors(fits):
    told, held = table("over all", "held out", "bar"), fits["held_out"]
    bars = {"median": held["median"] > ERROR_BARS["median"], "p95": held["p95"] > ERROR_BARS["p95"]}
    bars["coverage"] = not COVERAGE_BAR[0] <= held["coverage"] <= COVERAGE_BAR[1]
    for name, key in (("median error", "median"), ("95th percentile", "p95"), ("the 80 % interval holds", "coverage")):
        assert held[key] == rounded(told[name][0])
        assert ("missed" in told[name][1]) == bars[key]
    assert f"{held['n']} held out" in PAGE
    assert f"{fits['fit']['n']} fitted" in PAGE


def test_errors_by_family(fits):
    told = table("family", "points", "held out", "median", "95th", "inside")
    assert set(told) == set(FAMILIES)
    for name, (points, count, median, worst, inside) in told.items():
        entry = fits["families"][FAMILIES[name]]
        assert (int(points), int(count)) == (entry["fit"]["n"], entry["held_out"]["n"]), name
        for text, key in ((median, "median"), (worst, "p95"), (inside, "coverage")):
            assert entry["held_out"][key] == rounded(text), name


def test_parts_of_the_sms(fits):
    median, count, inside = re.search(r"median error\s+([\d.]+) % over (\d+) points, (\d+) % inside", PAGE).groups()
    moved = fits["transfer"]
    assert int(count) == moved["n"]
    assert moved["median"] == rounded(median)
    assert moved["coverage"] == rounded(inside)


def test_published_kernels():
    summary = check(["kernels"])["summary"]["kernels"]
    told = re.findall(r"^\| (H\d+\S*) \| (.+?) \| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert len(told) == len(summary["by_family"])
    families = {
        (name.split(":")[0].upper(), entry["n"], "other library" in name): entry
        for name, entry in summary["by_family"].items()
    }
    for gpu, kernel, count, median, bias, _, worst in told:
        entry = families[gpu, int(count), "another library" in kernel]
        for text, value in ((median, entry["median"]), (bias, entry["bias"]), (worst, entry["worst"]["error"])):
            assert share(text) == pytest.approx(value, **ABOUT), (gpu, kernel)
    median, coverage = re.search(r"(\d+\.\d) % and (\d+) %, met", PAGE).groups()
    assert float(median) / 100 == pytest.approx(summary["transferred"]["median"], **ABOUT)
    assert float(coverage) / 100 == pytest.approx(summary["transferred"]["coverage"], **ABOUT)
    assert all(bar["passed"] for bar in summary["bars"])


def test_sizes_of_plans():
    told = table("plan", "points", "one H200")
    assert {name.strip("`"): int(row[0]) for name, row in told.items()} == {
        level: len(plan(level)) for level in ("quick", "full")
    }


def test_the_readme_tells_the_same(fits):
    held = fits["held_out"]
    median, worst = re.search(r"median error of ([\d.]+) %\s+\((\d+) % at the 95th", README).groups()
    assert held["median"] == rounded(median)
    assert held["p95"] == rounded(worst)
    assert f"{held['n']} were held out" in README
