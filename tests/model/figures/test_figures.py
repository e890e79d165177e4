import json
import re
from functools import cache

import plotly.graph_objects as go
import pytest

from hyscale_model import figures
from hyscale_model.checks import check
from hyscale_model.dashboard.profiles import KnownProfiles
from hyscale_model.derivation import derive
from hyscale_model.figures.palette import FAMILIES, hatch, kind_family, term_colour, term_family
from hyscale_model.figures.style import TRANSPARENT
from hyscale_model.lengths import over_lengths
from hyscale_model.moments import memory_moments
from hyscale_model.prediction import MEMORY_KINDS, TERMS
from hyscale_model.report.units import GIB
from hyscale_model.studies.decision import decide
from hyscale_model.studies.search import search
from hyscale_model.studies.sensitivity import sensitivity
from hyscale_model.studies.sweep import Sweep
from hyscale_model.timeline import timeline
from hyscale_model.traffic import traffic

THEMES = list(figures.THEMES.values())
UNITS = re.compile(r"(, (s|ms|GiB|tokens|GB|GFLOP|FLOP a byte)$)|times as fast|1 is equal|, CP$")
LENGTH, CP = "workload.sequence_length", "layout.cp"
TITLES = ("sequence length, tokens", "context parallel, CP")


@pytest.fixture(scope="module")
def data(predicted):
    return predicted(draws=16)


@pytest.fixture(scope="module")
def sweep(resolve):
    """The JSON of a sweep over some axes."""

    def _sweep(axes, draws=0):
        return Sweep.of(resolve(f"sweep={axes}"), draws).collect()

    return _sweep


@pytest.fixture(scope="module")
def searched(resolve):
    return search(resolve(small=True), top=2, draws=4)


@pytest.fixture(scope="module")
def drawn(data, resolve, sweep, searched):
    moments = memory_moments(resolve(), "hyscale")
    pinned = json.loads(json.dumps(data))
    passes = timeline(resolve(), "hyscale")
    lengths = over_lengths(resolve(), draws=4)
    sent = traffic(resolve(), "hyscale")
    systems = list(data["systems"])
    swept, grid = sweep(f"{{{CP}: [32, 64, 96]}}", draws=4), sweep(f"{{{LENGTH}: [131072, 4194304], {CP}: [64, 96]}}")
    calibrated = KnownProfiles().compared("h200-sxm")
    parts = {name: derive(resolve(), name, "selection_forward")["parts"] for name in data["systems"]}

    def _drawn(theme=figures.LIGHT):
        plain = {
            "step_breakdown": figures.step_breakdown(data, theme),
            "step_times": figures.step_times(data, theme, pinned),
            "peak_memory": figures.peak_memory(data, theme, pinned),
            "speedups": figures.speedups(data, theme, pinned),
            "ablation": figures.ablation(data, theme),
            "communication": figures.communication(data, theme),
            "memory_by_kind": figures.memory_by_kind(data, theme),
            "memory_by_stage": figures.memory_by_stage(data, "hyscale", theme),
            "memory_over_step": figures.memory_over_step(moments, 0, theme),
            "network": figures.network(sent, theme),
            "checked": figures.checked(data["reported"], theme),
            "curves": figures.curves(swept, CP, "context parallel, CP", "speedup", theme, dict.fromkeys(systems, "x")),
            "heat_map": figures.heat_map(grid, (LENGTH, CP), TITLES, "step_time_s", "hyscale", theme, "assumed"),
            "front": figures.front(searched, 96e9, theme),
            "predicted_over_measured": figures.predicted_over_measured(calibrated["points"], "profile", theme),
            "rate_over_size": figures.rate_over_size(
                [point for point in calibrated["points"] if point["family"] == "gemm"],
                calibrated["curves"]["gemm"],
                calibrated["peaks"],
                "profile",
                theme,
            ),
            "pipeline": figures.pipeline(passes, "hyscale", "assumed", theme),
            "streams": figures.streams(passes, 1, "hyscale", {}, theme),
            "selection_over_lengths": figures.selection_over_lengths(lengths, data, theme),
            "gain_over_lengths": figures.gain_over_lengths(lengths, data, theme),
            "selection_bytes": figures.selection_bytes(parts, theme),
            "tornado": figures.tornado(sensitivity(resolve(), draws=4), theme),
            "techniques": figures.techniques(decide(resolve(), draws=4), theme),
            "roofline": figures.roofline(parts, data["scenario"]["cluster"]["gpu"], theme),
        }
        # Plotly's own objects refuse attributes that do not exist.
        return {name: go.Figure(figure) for name, figure in plain.items()}

    # Drawn once a theme: tests must not change a figure.
    return cache(_drawn)


def bars(figure):
    return [trace for trace in figure.data if trace.type == "bar"]


def sums(figure):
    """Length of all segments by row."""
    total = {}
    for trace in bars(figure):
        for name, value in zip(trace.y, trace.x, strict=True):
            total[name] = total.get(name, 0.0) + value
    return total


def test_segments_sum_to_the_step_time(drawn, data):
    for name in ("step_breakdown", "step_times"):
        for system, total in sums(drawn()[name]).items():
            assert total == pytest.approx(data["systems"][system]["step_time_s"]["nominal"], rel=1e-9)


def test_kinds_sum_to_the_peaks(drawn, data):
    for system, total in sums(drawn()["memory_by_kind"]).items():
        assert total * GIB == pytest.approx(data["systems"][system]["memory"]["peak_bytes"])
    for stage, total in zip(
        data["systems"]["hyscale"]["memory"]["stages"], sums(drawn()["memory_by_stage"]).values(), strict=True
    ):
        assert total * GIB == pytest.approx(stage["peak_bytes"])


def test_the_fullest_moment_is_the_peak_of_the_stage(drawn, data):
    peak = data["systems"]["hyscale"]["memory"]["stages"][0]["peak_bytes"]
    assert max(sums(drawn()["memory_over_step"]).values()) * GIB == pytest.approx(peak)


def test_the_waterfall_leads_from_the_baseline_to_the_last_system(drawn, data):
    (trace,) = drawn()["ablation"].data
    assert trace.x[0] == pytest.approx(data["systems"]["megatron"]["step_time_s"]["nominal"])
    assert trace.x[-1] == pytest.approx(data["systems"]["hyscale"]["step_time_s"]["nominal"])
    ends = [base + length for base, length in zip(trace.base, trace.x, strict=True)]
    assert list(trace.base[1:-1]) == pytest.approx(ends[:-2])
    assert ends[-2] == pytest.approx(ends[-1])


def test_exposed_communication_is_that_of_the_terms(drawn, data):
    exposed = drawn()["communication"].data[0]
    for system, entry in data["systems"].items():
        of_system = sum(x for y, x in zip(exposed.y, exposed.x, strict=True) if y.startswith(f"{system}, "))
        terms = sum(value for term, value in entry["time_s"].items() if term.endswith("_communication_exposed"))
        assert of_system == pytest.approx(terms)


def test_links_are_as_wide_as_their_bytes_and_coloured_by_their_load(resolve):
    sent = traffic(resolve(), "hyscale")
    figure = go.Figure(figures.network(sent, figures.LIGHT))
    widths = sorted({trace.line.width for trace in figure.data if trace.mode == "lines"})
    sizes = sorted({link["bytes"] for link in sent["links"]})
    assert widths[-1] / widths[0] == pytest.approx(sizes[-1] / sizes[0])
    (marks,) = [trace for trace in figure.data if trace.mode == "markers"]
    assert max(marks.marker.color) == pytest.approx(100 * max(link["load"] for link in sent["links"]))
    alone = go.Figure(figures.network(sent, figures.LIGHT, "pp"))
    assert len([trace for trace in alone.data if trace.mode == "lines"]) == sent["gpus_per_node"]
    assert "1.61 GB" in next(trace for trace in alone.data if trace.mode == "markers").customdata[0]


def test_a_prediction_pinned_to_itself_lies_on_itself(drawn):
    pinned, now = drawn()["speedups"].data
    assert pinned.x == now.x
    assert pinned.name == "pinned"


def test_reported_values_are_shown_as_ratios(drawn, data):
    shown = {name: value for trace in drawn()["checked"].data for name, value in zip(trace.y, trace.x, strict=True)}
    for row in data["reported"]:
        assert shown[row["id"]] == pytest.approx(row["predicted"]["nominal"] / row["reported"])


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_axis_of_numbers_has_a_unit(drawn, theme):
    for name, figure in drawn(theme).items():
        if figure.layout.xaxis.visible is not False:
            assert UNITS.search(figure.layout.xaxis.title.text), name
        assert figure.layout.height > 0


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_figures_are_strict_json(drawn, theme):
    for figure in drawn(theme).values():
        json.loads(figure.to_json(), parse_constant=pytest.fail)


def hovers(figure):
    for trace in figure.data:
        for entry in trace.customdata if trace.customdata is not None else ():
            yield entry if isinstance(entry, str) else entry[0]


def test_every_number_tells_its_origin_on_hover(drawn):
    for name, figure in drawn().items():
        texts = list(hovers(figure))
        assert texts, name
        if name != "checked":
            assert all("origin: " in text for text in texts), name
    assert all("80 % of the draws" in text for text in hovers(drawn()["checked"]))


def test_numbers_with_draws_tell_their_interval_on_hover(drawn):
    for name in ("step_breakdown", "step_times", "peak_memory", "speedups"):
        assert all("80 % of the draws: " in text for text in hovers(drawn()[name])), name


def test_text_of_users_is_no_markup(data):
    renamed = json.loads(json.dumps(data).replace("hyscale", "<img src=x>"))
    assert "<img" not in "".join(hovers(go.Figure(figures.step_times(renamed, figures.LIGHT))))


def test_a_meaning_has_one_colour():
    colours = [colour for colour, _ in FAMILIES.values()]
    assert len(set(colours)) == len(colours)
    assert term_colour("selection_forward") == term_colour("selection_recompute") == FAMILIES["selection"][0]
    assert kind_family("score_table") == term_family("selection_forward") == "selection"
    assert {term_family(term) for term in TERMS} == set(FAMILIES)
    assert {kind_family(kind) for kind in MEMORY_KINDS} <= set(FAMILIES)


def test_terms_nobody_foresaw_have_a_family():
    assert term_family("sp_communication_exposed") == "communication"
    assert term_family("sliding_attention") == "attention"
    assert term_family("something_new") == "other"
    assert kind_family("something_new") == "other"


def test_phases_differ_by_more_than_colour():
    phases = ("sparse_attention_forward", "sparse_attention_recompute", "sparse_attention_backward")
    assert len({hatch(term) for term in phases}) == 3


def test_kinds_and_terms_nobody_foresaw_are_drawn(data):
    more = json.loads(json.dumps(data))
    for system in more["systems"].values():
        system["time_s"]["something_new"] = 1.0
        system["memory"]["at_peak_bytes"]["something_new"] = float(GIB)
    assert any("something_new" in text for text in hovers(go.Figure(figures.step_breakdown(more, figures.LIGHT))))
    assert any("something_new" in text for text in hovers(go.Figure(figures.memory_by_kind(more, figures.LIGHT))))


def test_the_legend_names_every_colour_once(drawn):
    for name, figure in drawn().items():
        entries = figures.legend(figure.to_plotly_json())
        assert len({entry.name for entry in entries}) == len(entries), name
        assert all(entry.colour.startswith("#") for entry in entries), name
        assert TRANSPARENT not in {entry.colour for entry in entries}
    families = [entry.name for entry in figures.legend(drawn()["step_breakdown"].to_plotly_json())]
    assert families == [text for _, text in FAMILIES.values() if text in families]


def test_the_pipeline_shows_every_pass(drawn, resolve):
    found = timeline(resolve(), "hyscale")
    assert sum(len(trace.x) for trace in drawn()["pipeline"].data[:2]) == len(found.passes)


def test_the_tornado_starts_at_the_nominal_speed_up(drawn, predicted):
    nominal = predicted()["speedup"]["hyscale/megatron"]["nominal"]
    less, more = drawn()["tornado"].data
    assert list(less.base) == list(more.base) == pytest.approx([nominal] * len(less.x))
    assert max(less.x) <= 1e-9
    assert min(more.x) >= -1e-9


def test_traffic_is_that_of_the_operations(drawn, resolve):
    moved = sum(part["bytes"] for part in derive(resolve(), "hyscale", "selection_forward")["parts"])
    assert sums(drawn()["selection_bytes"])["hyscale"] * 1e9 == pytest.approx(moved)


def test_no_operation_is_above_its_roof(drawn, data):
    gpu = data["scenario"]["cluster"]["gpu"]
    peak = max(gpu["bf16_flops"], gpu["fp8_flops"] or 0.0)
    for trace in drawn()["roofline"].data:
        if trace.mode == "markers":
            for intensity, reached in zip(trace.x, trace.y, strict=True):
                assert reached * 1e12 <= min(peak, intensity * gpu["hbm_bytes_per_s"]) * 1.001


def test_marks_of_different_shapes_differ_in_the_legend_too():
    figure = go.Figure(layout={"meta": {"legend": True}})
    for symbol in (None, "diamond", "triangle-up", "square", "star"):
        figure.add_scatter(
            x=[1], y=[1], mode="markers", name=str(symbol), marker={"color": "#000000", "symbol": symbol}
        )
    assert [entry.shape for entry in figures.legend(figure.to_plotly_json())] == [
        "dot",
        "diamond",
        "triangle-up",
        "square",
        "dot",
    ]


def test_figures_without_need_have_no_legend(drawn):
    assert figures.legend(drawn()["ablation"].to_plotly_json()) == []


def test_the_checks_of_the_paper_can_be_drawn():
    rows = check(["paper"], draws=4)["rows"]
    figure = go.Figure(figures.checked(rows, figures.DARK))
    assert sum(len(trace.y) for trace in figure.data) == len(rows)


def test_rows_without_an_interval_are_neither_inside_nor_outside(data):
    rows = [row | {"inside": None} for row in data["reported"][:2]] + data["reported"][2:4]
    figure = figures.checked(rows, figures.LIGHT)
    assert [len(trace["y"]) for trace in figure["data"] if trace["name"] == "without an interval"] == [2]


def test_many_rows_share_a_line_with_their_family(data):
    rows = [data["reported"][0] | {"id": str(number), "family": f"family {number % 3}"} for number in range(90)]
    figure = figures.checked(rows, figures.LIGHT)
    assert {name for trace in figure["data"] for name in trace["y"]} == {"family 0", "family 1", "family 2"}
    assert figure["layout"]["height"] < 400


def test_points_that_are_not_possible_are_left_out_and_others_marked(sweep):
    data = sweep(f"{{{LENGTH}: [131072, 4194304], {CP}: [64, 96]}}")
    (heat,) = figures.heat_map(data, (LENGTH, CP), TITLES, "step_time_s", "hyscale", figures.LIGHT, "")["data"]
    # No layout of 96 ranks divides 512 GPUs; four million tokens do not fit.
    assert heat["y"] == ["64"]
    assert heat["text"][0][0].endswith("5")
    assert heat["text"][0][1].endswith(" !")
    assert heat["z"] == [[0.0, 1.0]]


def test_a_sweep_where_nothing_is_possible_is_an_empty_figure(sweep):
    data = sweep(f"{{{CP}: [96]}}")
    assert figures.curves(data, CP, "CP", "step_time_s", figures.LIGHT, {})["data"] == []


def test_ribbons_hold_their_line(sweep):
    data = sweep(f"{{{LENGTH}: [131072, 1048576]}}", draws=8)
    traces = figures.curves(data, LENGTH, "tokens", "speedup", figures.LIGHT, {})["data"]
    for ribbon, line in zip(traces[::2], traces[1::2], strict=True):
        assert len(ribbon["x"]) == 2 * len(line["x"])
    # The baseline's speed-up over itself says nothing.
    assert [trace["name"] for trace in traces[1::2]] == ["megatron-best", "hyscale"]


def test_no_layout_of_the_front_beats_another(searched):
    for trace in figures.front(searched, 96e9, figures.LIGHT)["data"][:2]:
        assert list(trace["x"]) == sorted(trace["x"])
        assert list(trace["y"]) == sorted(trace["y"], reverse=True)


def test_bands_are_five_and_ten_percent():
    shapes = figures.predicted_over_measured([], "", figures.LIGHT)["layout"]["shapes"]
    assert [round(shape["y1"], 2) for shape in shapes[:2]] == [1.1, 1.05]
