import io
import json
import math
import re
from pathlib import Path

import pytest

from hyscale_model.checks import bars
from hyscale_model.prediction import MEMORY_KINDS, TERMS
from hyscale_model.report import failed_bars, make_console, render_check, render_prediction
from hyscale_model.report.canvas import bar, printable
from hyscale_model.report.memory import verdict_text
from hyscale_model.report.svg import picture
from hyscale_model.report.times import label, shares


def shown(render, data, width=120):
    file = io.StringIO()
    render(data, make_console(file, width=width))
    return file.getvalue()


def in_one_line(text):
    return " ".join(text.split())


def test_shares_sum_to_one(prediction):
    for system in prediction["systems"].values():
        assert sum(shares(system["time_s"]).values()) == pytest.approx(1.0, abs=1e-12)


def test_shares_of_nothing_are_zero():
    assert shares({"moe": 0.0}) == {"moe": 0.0}


def test_shown_shares_sum_to_100_percent(prediction):
    prediction["systems"] = {"megatron": prediction["systems"]["megatron"]}
    text = shown(render_prediction, prediction)
    section = text.partition("Where the time goes")[2].partition("step ")[0]
    found = [float(share) for share in re.findall(r"^[a-z_]+ +[\d.]+ +([\d.]+) ", section, flags=re.MULTILINE)]
    assert sum(found) == pytest.approx(100.0, abs=0.05 * len(TERMS))


@pytest.mark.parametrize("width", [80, 120])
def test_every_term_and_every_used_kind_is_shown(prediction, width):
    text = in_one_line(shown(render_prediction, prediction, width))
    for term in TERMS:
        assert label(term, short=width < 110) in text
    for kind in MEMORY_KINDS:
        assert kind in text


def test_short_labels_stay_distinct():
    assert len({label(term, short=True) for term in TERMS}) == len(TERMS)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_console(prediction, checked, width):
    for text in (shown(render_prediction, prediction, width), shown(render_check, checked, width)):
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_cut_off(prediction, checked, width):
    assert "…" not in shown(render_prediction, prediction, width)
    assert "…" not in shown(render_check, checked, width)


def test_many_systems_are_all_shown_on_a_narrow_terminal(prediction):
    one = prediction["systems"]["hyscale"]
    prediction["systems"] |= {f"variant-{number}": one for number in range(7)}
    text = shown(render_prediction, prediction, 80)
    assert "…" not in text
    for number in range(7):
        assert text.count(f"variant-{number}") >= 3


def test_output_without_unicode_has_none(prediction, checked):
    for render, data in ((render_prediction, prediction), (render_check, checked)):
        file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        render(data, make_console(file, width=120))
        file.flush()
        assert file.buffer.getvalue().isascii()


def test_piped_output_has_neither_colour_nor_box_characters(prediction):
    text = shown(render_prediction, prediction)
    assert "\x1b" not in text
    assert not re.search("[─│┌┐└┘├┤┬┴┼━┃]", text)


def test_the_answer_and_its_interval_come_first(prediction):
    gain = prediction["speedup"]["hyscale/megatron"]
    first = shown(render_prediction, prediction).partition("Systems")[0]
    assert f"hyscale runs a step {gain['nominal']:.2f}x as fast as megatron" in first
    assert f"{gain['p10']:.2f}x to {gain['p90']:.2f}x" in first


def test_the_ablation_starts_at_its_baseline(prediction):
    with_baseline = shown(render_prediction, prediction)
    del prediction["ablation"][0]
    without = shown(render_prediction, prediction)
    section = without.partition("From the baseline")[2]
    assert section == with_baseline.partition("From the baseline")[2]


def test_a_bound_has_no_error(prediction):
    prediction["reported"][2]["error"] = -0.2
    (line,) = [line for line in shown(render_prediction, prediction, 80).splitlines() if line.startswith("P5 ")]
    assert "-20.0 %" not in line


def test_one_draw_claims_no_interval(prediction):
    prediction["draws"] = 1
    assert "80 % of the draws" not in shown(render_prediction, prediction)


def test_a_misfit_names_the_kind_and_by_how_much(prediction):
    memory = prediction["systems"]["megatron"]["memory"]
    by = memory["overflow"]["by_bytes"] / 2**30
    text = verdict_text("megatron", memory)
    assert "DOES NOT FIT" in text
    assert f"score_table (FP32 score table) overflows by {by:.1f} GiB" in text
    memory["overflow"] = None
    assert f"overflows by {by:.1f} GiB" in verdict_text("megatron", memory)


def test_verdicts_of_systems_that_fit_blame_nothing(prediction):
    for name in ("megatron-best", "hyscale"):
        assert "overflows" not in verdict_text(name, prediction["systems"][name]["memory"])


def test_the_nearest_feasible_baseline_names_its_changes(prediction):
    text = in_one_line(shown(render_prediction, prediction))
    assert "Nearest megatron that fits: layout.cp = 256, cluster.nodes = 128; a step takes" in text
    prediction["nearest_feasible"] = {"megatron": None}
    assert "No change of layout tried makes megatron fit" in shown(render_prediction, prediction)


def test_reported_results_stand_beside_predicted_ones(prediction):
    lines = shown(render_prediction, prediction, 80).splitlines()
    assert any(line.startswith("P1 ") and "2.07x" in line and "inside" in line for line in lines)
    assert any(line.startswith("P4 ") and "OUTSIDE" in line for line in lines)
    assert any("at most 1.200 s" in line for line in lines)


def test_a_longer_term_never_has_a_shorter_bar():
    lengths = [sum(char != " " for char in bar(share / 100, 12)) for share in range(101)]
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == 12
    assert bar(1e-9, 12).strip()
    assert bar(0.5, 4, blocks=False) == "##  "


def _paths(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*path, key)
            if path[:1] == ("systems",) and path[1:2] not in ((), ("hyscale",)):
                continue
            if len(path) < 4:
                yield from _paths(value, (*path, key))


@pytest.mark.slow
def test_any_missing_part_is_left_out_without_a_crash(prediction):
    text = json.dumps(prediction)
    # One path of each kind: what holds for one system or term holds for its neighbours.
    for path in {(len(path), path[0], path[-1]): path for path in _paths(prediction)}.values():
        data = json.loads(text)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        # A term or kind may be absent, an end of an interval or the bytes of an overflow may not.
        if path[-1] in ("by_bytes",):
            continue
        del holder[path[-1]]
        shown(render_prediction, data, 80)
    shown(render_prediction, {})


def test_absent_values_may_be_null(prediction):
    for key in ("nearest_feasible", "reported", "warnings", "assumptions", "ablation", "speedup", "origins"):
        prediction[key] = None
    for system in prediction["systems"].values():
        for key in ("bound_by", "terms", "memory", "critical_stage", "tokens_per_s_per_gpu"):
            system[key] = None
    assert "Where the time goes" in shown(render_prediction, prediction)


def test_what_is_not_finite_is_never_shown(prediction):
    prediction["systems"]["hyscale"]["time_s"]["moe"] = math.nan
    with pytest.raises(ValueError, match="not a finite number"):
        shown(render_prediction, prediction)


def test_text_of_a_user_cannot_drive_the_terminal(prediction):
    prediction["scenario"]["name"] = "\x1b[2J[bold]x[/bold] :smile:\x07"
    prediction["warnings"] = ["\x1b]0;title\x07 [red]w"]
    text = shown(render_prediction, prediction)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]x[/bold] :smile:" in text
    assert printable("a\x1b\u202eb") == "a  b"


def test_a_check_is_summarised(checked):
    text = shown(render_check, checked)
    assert "P4 +10.0 %" in text
    assert "P1: 83.0 % of the combinations lie within 10 % of the reported value." in text
    assert "The 10 with the largest error; --json has all." in text
    grid = text.partition("Unstated inputs: 12 combinations")[2].partition("Result")[0]
    assert len(grid.splitlines()) < 15
    assert "No bar failed." in text


def test_columns_of_the_grid_take_the_unit_of_the_row_they_are_named_after(checked):
    for point in checked["grid"]["rows"]:
        point["P1"] = point.pop("speedup.hyscale/megatron")
        point["P4"] = point.pop("systems.megatron.selection_share_of_step")
    grid = shown(render_check, checked).partition("Unstated inputs")[2]
    assert "1.69x to 2.02x" in grid
    assert "34.0 to 46.0 %" in grid


def test_the_worst_rows_are_shown_first(checked):
    kernels = shown(render_check, checked).partition("kernels: 25 rows")[2]
    errors = [abs(float(error)) for error in re.findall(r"([+-][\d.]+) %", kernels)][:10]
    assert errors == sorted(errors, reverse=True)


def test_failed_bars_are_found_wherever_they_stand(checked):
    assert failed_bars(checked) == []
    checked["bars"] = [bars.bar("time", 0.2, at_most=0.1), bars.bar("fine", 0.1, at_most=0.1)]
    checked["summary"]["paper"]["passed"] = False
    checked["summary"]["kernels"]["bars"] = [
        bars.bar("bias", 0.3, at_least=-0.1, at_most=0.1),
        bars.bar("number of steps", 3, at_most=0, unit="count"),
    ]
    assert failed_bars(checked) == [
        "time is 20.0 %, the bar is at most 10.0 %",
        "paper: its bar is not met",
        "kernels: bias is 30.0 %, the bar is at least -10.0 % and at most 10.0 %",
        "kernels: number of steps is 3, the bar is at most 0",
    ]
    assert "FAILED kernels: bias" in shown(render_check, checked)


def test_long_ids_leave_room_for_their_numbers(checked):
    rows = [{**row, "id": f"glm-5.1 dsa 131072/2 megatron, gathers hidden: {row['id']}"} for row in checked["rows"]]
    assert "…" not in shown(render_check, {**checked, "rows": rows}, 80)


def test_an_empty_check_is_no_crash():
    assert "No bar failed." in shown(render_check, {"rows": [], "summary": {}})


def test_the_picture_needs_no_network_and_repeats(prediction):
    svg = picture(prediction)
    assert svg == picture(prediction)
    assert "@font-face" not in svg
    assert "selection_fwd" in svg
    assert set(re.findall(r"https?://[^\"' )]+", svg)) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


def test_reports_print_only_through_a_console():
    import hyscale_model.report

    for path in Path(hyscale_model.report.__file__).parent.glob("*.py"):
        assert not re.search(r"(?<![\w.])print\(", path.read_text(encoding="utf-8")), path
