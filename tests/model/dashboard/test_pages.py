import re
from html.parser import HTMLParser

import pytest

from hyscale_model.checks import offered
from hyscale_model.dashboard import sidebar
from hyscale_model.dashboard.answer import resolve
from hyscale_model.dashboard.app import create_app, view
from hyscale_model.dashboard.controls import sections, spreads, switches
from hyscale_model.dashboard.question import Question
from hyscale_model.errors import InputError
from hyscale_model.scenario.fields import field_type
from hyscale_model.views import VIEWS

VOID = {"input", "br", "meta"}


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    parser = Balanced()
    parser.feed(text)
    assert not parser.open
    return parser.tags


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VIEWS))
def test_every_view_shows_every_scenario(offer, page, name):
    for scenario in offer.names:
        cards, texts, problem = view(page(view=name) | {"scenario": scenario}, "dark", {}, offer)
        assert cards
        assert not problem
        assert len({card.name for card in cards}) == len(cards)
        for text in texts.values():
            parsed(text)


@pytest.mark.slow
@pytest.mark.parametrize("group", offered())
def test_every_group_of_checks_is_drawn(offer, page, group):
    cards, texts, _ = view(page(view="evidence", options={"group": group}), "light", {}, offer)
    (card,) = [card for card in cards if card.name == "check"]
    assert card.title == f"Check: {group}"
    assert sum(len(trace["y"]) for trace in card.figure["data"]) > 5
    parsed(texts["body-check"])


def test_a_pinned_prediction_is_compared(offer, page):
    _, texts, _ = view(page({"workload.sequence_length": "524288"}, pinned=page()), "light", {}, offer)
    _, own, _ = view(page(), "light", {}, offer)
    before = re.search(r'class="big"><span[^>]*>([^<]+)<', own["body-systems"])[1]
    assert f"pinned {before}" in texts["body-systems"]


def test_a_pinned_prediction_that_fails_takes_nothing_away(offer, page):
    cards, _, problem = view(page(pinned=page() | {"scenario": "upload:0"}), "light", {}, offer)
    assert cards
    assert "uploaded in another browser" in problem


def test_every_number_of_the_tiles_tells_its_origin(offer, page):
    _, texts, _ = view(page(), "light", {}, offer)
    tips = [attributes["data-tip"] for _, attributes in parsed(texts["body-systems"]) if "data-tip" in attributes]
    assert len(tips) >= 8
    assert all("origin: " in tip and "80 % of the draws" in tip for tip in tips)


def test_the_evidence_lists_every_input_with_its_origin(offer, page):
    _, texts, _ = view(page(view="evidence"), "light", {}, offer)
    resolved = resolve(Question("glm-5.1-1m-512xh20"), offer.source("glm-5.1-1m-512xh20", {}))
    rows = [tag for tag, _ in parsed(texts["body-origins"]) if tag == "tr"]
    assert len(rows) == len(resolved.origins) + 1


def test_a_broken_question_is_an_input_error(offer, page):
    with pytest.raises(InputError, match="does not divide"):
        view(page({"layout.cp": "96"}), "light", {}, offer)


def test_every_control_sets_a_field_to_its_own_value(offer):
    for name in offer.names:
        resolved = resolve(Question(name), offer.source(name, {}))
        systems = [system.name for system in resolved.scenario.systems]
        controls = [each for group in sections(resolved).values() for each in group]
        controls += [each for system in resolved.scenario.systems for each in switches(resolved, system)]
        for control in controls:
            if control.path not in ("model", "cluster", "cluster.gpu"):
                field_type(control.path, systems, resolved.scenario.model.model_type)
            assert not control.options or control.value in control.options
            assert control.hint
        own = {each.path: each.value for each in controls if each.value and each.path not in ("model", "cluster")}
        own.pop("cluster.gpu")
        question = Question.from_page({"scenario": name, "set": {}, "systems": systems})
        again = resolve(Question(name, tuple(own.items()), (), question.systems), offer.source(name, {})).scenario
        assert again.layout == resolved.scenario.layout
        assert again.systems == resolved.scenario.systems


def test_assumptions_are_controls_once_for_all_systems(offer):
    resolved = resolve(Question("glm-5.1-1m-512xh20"), offer.source("glm-5.1-1m-512xh20", {}))
    paths = [each.path for each in spreads(resolved.scenario)]
    assert len(set(paths)) == len(paths)
    assert "systems.*.dispatcher" in paths
    for each in spreads(resolved.scenario):
        assert (each.ends is None) == bool(each.choices)
        assert each.limits is None or each.limits[0] <= each.ends[0] < each.ends[1] <= each.limits[1]


def test_the_sidebar_says_what_was_changed(offer):
    resolved = resolve(Question("glm-5.1-1m-512xh20"), offer.source("glm-5.1-1m-512xh20", {}))
    tags = parsed(sidebar.build(resolved, {"layout.cp": "64"}, {"cluster.nic_efficiency": "0.75,0.8"}))
    (context,) = [each for _, each in tags if each.get("data-set") == "layout.cp"]
    assert (context["value"], context["data-own"]) == ("64", "128")
    assert [each for tag, each in tags if tag == "input" and each.get("value") == "0.75"]


def test_nothing_is_loaded_from_elsewhere():
    client = create_app().server.test_client()
    index = client.get("/").get_data(as_text=True)
    assert '<html lang="en">' in index
    addresses = re.findall(r'(?:src|href)="([^"]+)"', index)
    assert addresses
    assert not [each for each in addresses if each.startswith(("http", "//"))]
    assert {client.get(each.partition("?")[0]).status_code for each in addresses} == {200}


def test_too_large_a_request_is_refused():
    client = create_app().server.test_client()
    sent = client.post("/_dash-update-component", data=b"x" * (9 << 20), content_type="application/json")
    assert sent.status_code == 413
