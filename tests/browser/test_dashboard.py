import csv
import json

import pytest
from harness import settled

from hyscale_model import catalog
from hyscale_model.catalog import measured
from hyscale_model.dashboard.offer import FIRST
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.measurements import first_measurements
from hyscale_model.views import VIEWS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HALF = '[data-scale="workload.sequence_length"][data-by="0.5"]'
LENGTH = '[data-set="workload.sequence_length"]'


def times(page):
    return page.locator(".tile .big").all_inner_texts()


def figures(page):
    """What the figures of the page show, by card."""
    return page.evaluate(
        """() => Object.fromEntries(Array.from(document.querySelectorAll('.figure')).map(each =>
            [each.id, JSON.stringify(each.querySelector('.js-plotly-plot').data.map(
                trace => [trace.y, trace.x, trace.customdata]))]))"""
    )


def drawn(page):
    page.wait_for_function(
        "Array.from(document.querySelectorAll('.figure')).every(each => each.querySelector('.main-svg'))"
    )


def changed(page, act, what=times):
    """Do something, and wait until the page shows something else."""
    before = what(page)
    act()
    for _ in range(100):
        page.wait_for_timeout(50)
        if what(page) != before and what(page):
            return what(page)
    raise AssertionError(f"nothing changed: {before}")


# A choice of each view that has one, and another value of it.
CHOICES = {
    "breakdown": ("term", "moe"),
    "memory": ("system", "megatron"),
    "network": ("network-group", "ep"),
    "timeline": ("stage", "0"),
    "sweep": ("metric", "step_time_s"),
    "sensitivity": ("minutes", "60"),
    "decision": ("tokens", "1e12"),
    "calibration": ("family", "gemm"),
    "evidence": ("group", "collectives"),
}


@pytest.mark.parametrize("name", list(VIEWS))
def test_a_view_loads_and_shows_its_figures(open_page, name):
    page = open_page(f"?scenario={FIRST}&view={name}")
    assert page.locator(".figure .main-svg").count() >= 1
    assert page.locator("nav [aria-current]").inner_text() == VIEWS[name].title
    assert page.locator("#view .card h2").count() >= 2
    fits(page)


@pytest.mark.parametrize("name", list(VIEWS))
def test_a_view_fits_a_telephone(visit, name):
    page = visit(f"?scenario={FIRST}&view={name}", width=390, theme="dark")
    assert page.locator(".figure .main-svg").count() >= 1
    fits(page)
    # Nothing of a figure is cut off.
    wide = "Array.from(document.querySelectorAll('.figure')).filter(each => each.scrollWidth > each.clientWidth + 1)"
    assert page.evaluate(f"{wide}.length") == 0


def fits(page):
    """Nothing is wider than the page."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "calibration"])
def test_a_control_changes_the_figures(visit, name):
    page = visit(f"?scenario={FIRST}&view={name}")
    assert changed(page, lambda: page.click(HALF), figures)
    assert "workload.sequence_length=524288" in page.url


@pytest.mark.parametrize("name", list(CHOICES))
def test_a_choice_changes_its_view_and_stays_in_the_address(visit, name):
    option, value = CHOICES[name]
    page = visit(f"?scenario={FIRST}&view={name}")
    what = lambda page: page.inner_html("#view")  # noqa: E731
    changed(page, lambda: page.select_option(f'[data-option="{option}"] >> nth=0', value), what)
    page.wait_for_selector('#view[aria-busy="false"]')
    assert f"view.{option}={value}" in page.url
    again = visit(f"?scenario={FIRST}&view={name}&view.{option}={value}")
    assert again.input_value(f'[data-option="{option}"] >> nth=0') == value


def test_axes_of_a_sweep_are_typed(visit):
    page = visit(f"?scenario={FIRST}&view=sweep")
    page.fill('[data-option="along"]', "cluster.nic_efficiency")
    changed(page, lambda: page.keyboard.press("Enter"), figures)
    assert "view.along=cluster.nic_efficiency" in page.url
    page.fill('[data-option="along-values"]', "0.5, 0.7, 0.9")
    shown = changed(page, lambda: page.keyboard.press("Enter"), figures)
    assert "[0.5,0.7,0.9]" in shown["figure-along"]
    # Another field takes other values.
    page.fill('[data-option="along"]', "layout.nothing")
    page.keyboard.press("Enter")
    page.wait_for_selector("#body-along .problem")
    assert "there is no field" in page.inner_text("#body-along")
    assert page.input_value('[data-option="along-values"]') == ""
    assert "along-values" not in page.url


def test_a_search_tells_how_far_it_is_and_is_cancelled(open_page):
    page = open_page(f"?scenario={FIRST}&view=sweep&view.search=on")
    page.wait_for_selector("#body-front progress")
    page.click("[data-cancel]")
    # An answer of before that comes late shows progress once more, until the page asks again.
    page.wait_for_function("document.querySelector('#body-front').innerText.includes('Cancelled')")
    assert page.locator("#body-front [data-again]").count() == 1
    assert page.locator("#figure-along .main-svg").count()


def test_a_search_ends_with_a_front(open_page):
    # One system and few GPUs, which takes a second or two.
    page = open_page(f"?scenario={FIRST}&view=sweep&view.search=on&systems=megatron,hyscale&cluster.nodes=64")
    page.wait_for_selector("#figure-front .main-svg", timeout=90_000)
    page.wait_for_selector("#table-layouts tbody tr")
    assert page.locator("#head-front h2").inner_text() == "The best layouts"
    assert "layouts on 512 GPUs" in page.inner_text("#head-front")


def test_what_to_measure_first_is_told_with_what_to_type(open_page):
    page = open_page(f"?scenario={FIRST}&view=sensitivity&view.minutes=2")
    page.wait_for_selector("#table-measure-first tbody tr")
    scenario = read_scenario(catalog.path("published", FIRST)).scenario
    wanted = first_measurements(scenario, minutes=2)
    assert page.locator("[id^=measure-]").all_inner_texts() == wanted["commands"]
    chosen = [row["name"] for row in wanted["measurements"] if row["chosen"]]
    rows = page.locator("#table-measure-first tbody tr", has_text="yes").all_inner_texts()
    assert [row.split()[0] for row in rows] == chosen
    assert "minutes" in page.inner_text("#choices-measure-first")


def test_the_address_restores_the_page(open_page):
    query = (
        f"?scenario={FIRST}&layout.cp=64&layout.ep=64&range.cluster.nic_efficiency=0.75,0.8&systems=megatron,hyscale"
    )
    page = open_page(query)
    assert len(times(page)) == 2
    assert page.input_value('[data-set="layout.cp"]') == "64"
    assert page.locator("#changes .chip").count() == 4
    page.click("nav >> text=Memory")
    page.wait_for_selector("#figure-memory-kinds")
    page.select_option('[data-option="stage"]', "2")
    page.wait_for_function("document.getElementById('head-memory-moments').innerText.includes('stage 2')")
    again = open_page(page.url.partition("/?")[2] and "?" + page.url.partition("/?")[2])
    again.wait_for_selector("#figure-memory-kinds")
    assert again.input_value('[data-option="stage"]') == "2"
    drawn(again)
    assert figures(again) == figures(page)


def test_back_undoes_a_change(visit):
    page = visit(f"?scenario={FIRST}")
    before = times(page)
    after = changed(page, lambda: page.click(HALF))
    assert changed(page, page.go_back) == before
    assert page.input_value(LENGTH) == "1048576"
    assert changed(page, page.go_forward) == after


def test_a_prediction_is_pinned_and_compared(open_page):
    page = open_page(f"?scenario={FIRST}")
    pinned = times(page)[0]
    page.click("#pin")
    page.wait_for_selector(".tile .pinned")
    changed(page, lambda: page.click(HALF))
    page.wait_for_function(f"document.querySelector('.tile .pinned').innerText.includes({json.dumps(pinned)})")
    assert open_page("?" + page.url.partition("/?")[2]).locator(".tile .pinned").count() == 3
    page.click("#pin")
    page.wait_for_function("document.querySelectorAll('.tile .pinned').length === 0")


def test_what_cannot_be_is_said_and_loses_nothing(visit):
    page = visit(f"?scenario={FIRST}")
    before = times(page)
    page.fill('[data-set="layout.cp"]', "96")
    page.wait_for_selector("#message .error")
    assert "does not divide the 512 GPUs" in page.inner_text("#message")
    assert times(page) == before
    page.click("#changes .chip")
    page.wait_for_function("document.querySelectorAll('#message .error').length === 0")
    page.wait_for_function("""document.querySelector('[data-set="layout.cp"]').value === '128'""")


def test_a_named_entry_brings_its_fields(open_page):
    page = open_page(f"?scenario={FIRST}")
    page.click("summary >> text=Cluster")
    changed(page, lambda: page.select_option('[data-set="cluster"]', "512xh200"))
    page.wait_for_function("""document.querySelector('[data-set="cluster.gpu"]').value === 'h200'""")


def test_an_assumption_is_narrowed(open_page):
    page = open_page(f"?scenario={FIRST}")
    page.click("summary >> text=Assumptions")
    spread = lambda page: page.locator(".tile .sub").all_inner_texts()  # noqa: E731
    changed(page, lambda: page.uncheck('[data-range="workload.global_batch_size"] [value="16"]'), spread)
    assert "range.workload.global_batch_size=4,8" in page.url


def test_a_segment_shows_its_derivation(visit):
    page = visit(f"?scenario={FIRST}&view=breakdown")
    drawn(page)
    box = page.locator("#figure-breakdown .bars path").nth(1).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function("location.search.includes('view.term=')")
    chosen = page.input_value('[data-option="term"]')
    assert f"view.term={chosen}" in page.url


def told(page, text):
    """Wait until the page tells of an error."""
    told_of = "(text) => document.getElementById('message').innerText.includes(text)"
    page.wait_for_function(told_of, arg=text)


def upload(page, text, name="mine.yaml"):
    page.set_input_files("[data-upload]", {"name": name, "mimeType": "text/yaml", "buffer": text.encode()})


def test_a_scenario_is_uploaded(open_page):
    page = open_page(f"?scenario={FIRST}")
    text = catalog.path("published", FIRST).read_text(encoding="utf-8").replace("cp: 128, ep: 128", "cp: 64, ep: 64")
    changed(page, lambda: upload(page, text))
    assert "scenario=upload:" in page.url
    assert page.input_value('[data-set="layout.cp"]') == "64"
    # It stays in the browser, and survives a reload there.
    page.reload()
    page.wait_for_selector(".tile .big")
    elsewhere = page.context.browser.new_context().new_page()
    elsewhere.goto(page.url)
    elsewhere.wait_for_selector("#message .error")
    assert "uploaded in another browser" in elsewhere.inner_text("#message")
    elsewhere.context.close()


PROFILE = measured.paths()["h200-sxm"]


def upload_profile(page, text):
    page.set_input_files(
        '[data-upload="profile"]', {"name": "mine.json", "mimeType": "application/json", "buffer": text.encode()}
    )


def test_a_profile_is_uploaded(open_page):
    page = open_page(f"?scenario={FIRST}&view=calibration")
    renamed = PROFILE.read_text(encoding="utf-8").replace('"name": "h200-sxm"', '"name": "another"', 1)
    what = lambda page: page.input_value('[data-option="profile"]')  # noqa: E731
    assert changed(page, lambda: upload_profile(page, renamed), what).startswith("upload:")
    assert page.locator('[data-option="profile"] option:checked').inner_text() == "mine.json (uploaded)"
    # It is no scenario, and the scenario is still the one before.
    assert page.locator("[data-scenario] option:checked").inner_text() == FIRST
    page.reload()
    settled(page)
    assert page.locator("#figure-calibrated .main-svg").count()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PROFILE.read_text(encoding="utf-8")[:5000], "not JSON"),
        ('{"kind": "measured"}', "schema version"),
        ("[]", "no measured profile"),
        ("#" * (1 << 20) + "#", "larger than 1048576 bytes"),
    ],
    ids=["cut short", "without version", "no profile", "too large"],
)
def test_a_broken_profile_says_why_and_loses_nothing(visit, text, said):
    page = visit(f"?scenario={FIRST}&view=calibration")
    upload_profile(page, text)
    told(page, said)
    assert page.input_value('[data-option="profile"]') == "h200-sxm"
    assert page.locator("#figure-calibrated .main-svg").count()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layout: [", "mine.yaml:2: this is not YAML"),
        ("extends: /etc/hostname\n", "cannot refer to other files"),
        ("#" * (1 << 20) + "#", "larger than 1048576 bytes"),
        ("<script>alert(1)</script>: 1", "unknown"),
    ],
)
def test_a_bad_upload_says_why_and_loses_nothing(visit, text, said):
    page = visit(f"?scenario={FIRST}&layout.cp=64&layout.ep=64")
    before = times(page)
    upload(page, text)
    told(page, said)
    assert times(page) == before
    assert "layout.cp=64" in page.url


def test_downloads(visit, tmp_path):
    page = visit(f"?scenario={FIRST}&workload.sequence_length=524288")
    drawn(page)
    with page.expect_download() as download:
        page.click('[data-act="yaml"]')
    text = download.value.path().read_text(encoding="utf-8")
    assert read_scenario("mine.yaml", text=text).scenario.workload.sequence_length == 524288
    with page.expect_download() as download:
        page.click('[data-figure="figure-step-times"][data-format="svg"]')
    assert download.value.path().read_text(encoding="utf-8").startswith("<svg")
    with page.expect_download() as download:
        page.click('[data-figure="figure-step-times"][data-format="png"]')
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as download:
        page.click('[data-table="table-numbers"]')
    rows = list(csv.reader(download.value.path().read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["", "megatron", "megatron-best", "hyscale"]
    assert {len(row) for row in rows} == {4}


def test_the_theme_is_kept(open_page):
    page = open_page(f"?scenario={FIRST}", theme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click('[data-act="theme"]')
    page.wait_for_function(f"{ground} !== {json.dumps(light)}")
    page.reload()
    page.wait_for_selector(".tile .big")
    assert page.evaluate(ground) != light
    page.evaluate("localStorage.clear()")


def test_everything_can_be_reached_by_keyboard(open_page):
    page = open_page(f"?scenario={FIRST}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus(LENGTH)
    page.keyboard.press("Control+a")
    page.keyboard.type("262144")
    changed(page, lambda: page.keyboard.press("Enter"))
    assert page.evaluate("document.activeElement.dataset.set") == "workload.sequence_length"
    page.focus(".tile .told >> nth=0")
    assert "origin: " in page.inner_text(".tip")
    page.keyboard.press("Escape")
    assert page.locator(".tip").count() == 0


def test_nothing_moves_when_a_figure_changes(visit):
    page = visit(f"?scenario={FIRST}")
    drawn(page)
    places = "Array.from(document.querySelectorAll('#view section')).map(each => each.offsetTop)"
    before = page.evaluate(places)
    changed(page, lambda: page.click(HALF), figures)
    assert page.evaluate(places) == before


def test_controls_open_on_a_telephone(open_page):
    page = open_page(f"?scenario={FIRST}", width=390)
    assert not page.is_visible(LENGTH)
    page.click('[data-act="controls"]')
    assert page.is_visible(LENGTH)
    assert page.get_attribute('[data-act="controls"]', "aria-expanded") == "true"


def test_answers_that_overtake_one_another(visit):
    page = visit(f"?scenario={FIRST}")
    held = []

    def slow_first(route):
        # The first answer of all is let go last.
        if held:
            route.continue_()
        else:
            held.append(route)

    before = times(page)
    page.route("**/_dash-update-component*", slow_first)
    page.click(HALF)
    page.wait_for_timeout(300)
    after = changed(page, lambda: page.click(HALF))
    held[0].continue_()
    page.wait_for_timeout(1000)
    assert times(page) == after != before
    page.unroute("**/_dash-update-component*")
