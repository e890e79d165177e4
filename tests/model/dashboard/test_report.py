import json
import re

import pytest

from hyscale_model.cli.main import main
from hyscale_model.views import VIEWS


@pytest.mark.slow
def test_a_report_holds_every_figure_and_needs_nothing_else(tmp_path, offer):
    source = offer.source("glm-5.1-1m-512xh20", {}).path
    path = tmp_path / "report.html"
    assert main(["predict", str(source), "--html", str(path), "--draws", "8"]) == 0
    text = path.read_text(encoding="utf-8")
    figures = json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)[1])
    assert set(figures) == {"light", "dark"}
    assert set(figures["light"]) == set(figures["dark"])
    for name in figures["light"]:
        assert f'id="{name}"' in text
    for key, view in VIEWS.items():
        assert f'<h2 class="view-title" id="{key}">{view.title}</h2>' in text
    markup = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*\b(?:src|href)=", markup)


@pytest.mark.slow
def test_a_trace_is_written(tmp_path, offer):
    path = tmp_path / "trace.json"
    source = offer.source("glm-5.1-1m-512xh20", {}).path
    assert main(["predict", str(source), "--trace", str(path), "--system", "hyscale", "--draws", "8"]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def test_a_folder_that_is_not_there_is_named(tmp_path, offer, capsys):
    source = offer.source("glm-5.1-1m-512xh20", {}).path
    assert main(["predict", str(source), "--html", str(tmp_path / "no" / "report.html")]) == 2
    assert "--html: the folder does not exist" in capsys.readouterr().err
