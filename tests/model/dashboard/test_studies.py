import inspect
import re

import pytest

from hyscale_model.checks import GROUPS
from hyscale_model.dashboard.app import view
from hyscale_model.dashboard.jobs import Jobs
from hyscale_model.errors import InputError
from hyscale_model.figures.sweeps import METRICS
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.axes import Axes
from hyscale_model.studies.measurements import first_measurements
from hyscale_model.traffic import traffic
from hyscale_model.views import evidence
from hyscale_model.views.sweep import FIELDS, MOST_POINTS, usual_values


@pytest.fixture
def shown(offer, page):
    """The cards and texts of a view with some choices."""

    def _shown(name, options=None, changes=None, jobs=None, **more):
        cards, texts, problem = view(page(changes, view=name, options=options or {}, **more), "light", {}, offer, jobs)
        assert not problem
        return {card.name: card for card in cards}, texts

    return _shown


@pytest.mark.parametrize("metric", list(METRICS))
def test_a_sweep_shows_each_metric(shown, metric):
    cards, _ = shown("sweep", {"metric": metric, "along-values": "131072, 1048576", "across-values": "64, 128"})
    assert cards["along"].figure["layout"]["yaxis"]["title"]["text"] == METRICS[metric].title
    assert len(cards["over"].figure["data"][0]["x"]) == 2


def test_every_offered_field_has_usual_values(resolve):
    scenario = resolve().scenario
    for path in FIELDS:
        values = usual_values(scenario, path)
        assert len(values) == len(set(values)) > 1, path


def test_a_field_that_was_set_can_be_swept(shown):
    cards, texts = shown("sweep", {"along-values": "131072, 262144"}, {"workload.sequence_length": "524288"})
    assert list(cards["along"].figure["data"][1]["x"]) == [131072, 262144]
    assert "524,288 tokens" in texts["headline"]


def test_swept_numbers_are_those_of_the_prediction(shown, predicted):
    cards, _ = shown("sweep", {"along": "layout.cp", "along-values": "128", "metric": "step_time_s"})
    for trace in cards["along"].figure["data"][1::2]:
        assert trace["y"][0] == pytest.approx(predicted()["systems"][trace["name"]]["step_time_s"]["nominal"])


def test_an_explosion_is_refused_with_the_message_of_the_command_line(shown, resolve):
    values = ", ".join(str(1024 * number) for number in range(1, 101))
    many = ", ".join(str(number) for number in range(1, 101))
    _, texts = shown("sweep", {"along-values": values, "across": "layout.vpp", "across-values": many})
    asked = resolve(f"sweep={{workload.sequence_length: [{values}], layout.vpp: [{many}]}}").scenario
    with pytest.raises(InputError) as on_command_line:
        Axes.of(asked, most=MOST_POINTS)
    said = re.search(r"error: (.*?)</p>", texts["body-over"])[1]
    assert said.endswith(str(on_command_line.value))
    assert "100 x 100 values are 10,000 points" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"along": "layout.nothing"}, "there is no field"),
        ({"along": "profile"}, "profile"),
        ({"along": "extends", "along-values": "/etc/hostname"}, "extends"),
        ({"along": "model", "along-values": "/etc/hostname"}, "there is no model"),
        ({"along": "workload.document_lengths.file", "along-values": "/etc/hostname"}, "document_lengths"),
        ({"along-values": "[1, 2]"}, "sequence_length"),
        ({"along-values": "1e999"}, "too large"),
        ({"along": "<img src=x>"}, "&lt;img"),
    ],
    ids=str,
)
def test_a_bad_axis_is_told_on_its_card(shown, options, said):
    cards, texts = shown("sweep", options)
    assert said in texts["body-along"]
    # The choices stay, so that they can be mended.
    assert cards["along"].choices


def test_the_sweep_of_a_scenario_is_where_its_view_begins(offer, page):
    state = page(view="sweep") | {"scenario": "glm-5.1-lengths-512xh20"}
    cards, _, _ = view(state, "light", {}, offer)
    (along,) = [card for card in cards if card.name == "along"]
    own = offer.source("glm-5.1-lengths-512xh20", {})
    first, values = next(iter(read_scenario(own.name).scenario.sweep.items()))
    assert along.choices[0].value == first
    assert along.choices[1].usual == ", ".join(str(value) for value in values)


def test_without_background_work_there_is_no_search(shown):
    cards, _ = shown("sweep", {"search": "on"})
    assert cards["front"].figure is None
    assert "hyscale search" in cards["front"].about


def test_a_search_that_is_at_work_shows_how_far(shown, monkeypatch):
    jobs = Jobs()
    monkeypatch.setattr("hyscale_model.dashboard.jobs.PATIENCE_S", 0.0)
    cards, texts = shown("sweep", {"search": "on"}, jobs=jobs)
    assert cards["front"].figure is None
    (job,) = re.findall(r'data-job="(\w+)"', texts["body-front"])
    assert f'data-cancel="{job}"' in texts["body-front"]
    jobs.close()


def test_the_network_shows_what_crosses_the_links(shown, resolve):
    found = traffic(resolve(), "hyscale")
    cards, texts = shown("network")
    link = found["groups"]["cp"]["bottleneck"]
    assert f"{link['from']} to {link['to']}" in texts["body-network"]
    assert len(re.findall("<tr>", texts["body-network-groups"])) == 1 + len(found["groups"])
    mine = [row for row in found["collectives"] if row["group"] == "cp"]
    assert len(re.findall("<tr>", texts["body-collectives"])) == 1 + len(mine)
    every, _ = shown("network", {"network-group": "all"})
    assert every["network"].figure != cards["network"].figure


def test_the_calibration_view_shows_a_profile(shown):
    cards, texts = shown("calibration", {"profile": "h200-sxm", "family": "gemm"})
    assert "points were held out" in texts["body-calibrated"]
    assert "gemm" in cards["rates"].title
    assert {trace["name"] for trace in cards["calibrated"].figure["data"]} == {"fitted to", "held out"}


def test_a_profile_that_is_not_there_is_told(shown):
    _, texts = shown("calibration", {"profile": "upload:0123"})
    assert "uploaded in another browser" in texts["body-calibrated"]


def test_every_check_group_is_shown_without_being_named():
    source = inspect.getsource(evidence)
    assert not [group for group in GROUPS if f'"{group}"' in source]


def test_what_to_measure_first_is_what_the_command_line_says(shown, resolve):
    wanted = first_measurements(resolve().scenario, minutes=2)
    _, texts = shown("sensitivity", {"minutes": "2"})
    body = texts["body-measure-first"]
    for number, command in enumerate(wanted["commands"], start=1):
        assert f'<code id="measure-{number}">{command}</code>' in body
    chosen = re.findall(r"<td[^>]*>([^<]*)</td>(?:<td[^>]*>[^<]*</td>){2}<td[^>]*>yes</td>", body)
    assert chosen == [row["name"] for row in wanted["measurements"] if row["chosen"]]
    assert chosen
    assert "the interval is expected to narrow from" in body
    # A report has all of it; a page shows the rest first.
    jobs = Jobs()
    try:
        assert "data-job" in shown("sensitivity", jobs=jobs)[1]["body-measure-first"]
    finally:
        jobs.close()


def test_without_calibration_there_is_nothing_to_measure(shown, monkeypatch):
    monkeypatch.setattr("hyscale_model.studies.measurements.measurements", lambda gpu: [])
    cards, _ = shown("sensitivity")
    assert "measure-first" not in cards
    assert "tornado" in cards
