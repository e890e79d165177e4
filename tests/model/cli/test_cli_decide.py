import json

from hyscale_model import catalog

SCENARIO = catalog.path("published", "glm-5.1-1m-512xh20")


def test_people_get_the_answer_first(run):
    result = run("decide", SCENARIO, "--draws", 8, "--tokens", "2e10")
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "20.00 billion tokens on 512 GPUs" in text
    assert "hyscale over megatron-best is" in text
    assert "Not told, since not known: cost (--set cluster.usd_per_gpu_hour=2.5)" in text


def test_json_html_and_options(run, tmp_path):
    page, file = tmp_path / "sheet.html", tmp_path / "sheet.json"
    options = ("--failures", 10, "--restart-minutes", 5, "--checkpoint-minutes", 20)
    result = run("decide", SCENARIO, "--draws", 2, *options, "--json", "--output", file, "--html", page)
    data = json.loads(result.out)
    assert data == json.loads(file.read_text())
    assert data["operation"]["failures_per_gpu_hour"] == 1e-5
    assert data["operation"]["restart_s"] == 300
    assert data["operation"]["checkpoint_s"] == 1200
    html = page.read_text()
    assert "What each change brings" in html
    # Nothing is loaded from elsewhere.
    assert "src=" not in html
    assert "http" not in html.replace("http-equiv", "")
