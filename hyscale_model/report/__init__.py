"""What a person sees of a result: every function here draws from the JSON dictionary alone."""

from hyscale_model.report.as_json import dumps
from hyscale_model.report.canvas import make_console
from hyscale_model.report.check import failed_bars, render_check
from hyscale_model.report.explained import render_explanation
from hyscale_model.report.terminal import render_prediction

__all__ = ["dumps", "failed_bars", "make_console", "render_check", "render_explanation", "render_prediction"]
