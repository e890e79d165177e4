"""Figures: pure functions from the JSON of a result to a Plotly figure, shared by dashboard and HTML report."""

from __future__ import annotations

from hyscale_model.figures.ablation import ablation
from hyscale_model.figures.breakdown import step_breakdown
from hyscale_model.figures.checked import checked
from hyscale_model.figures.communication import communication
from hyscale_model.figures.gains import speedups
from hyscale_model.figures.memory import memory_by_kind, memory_by_stage, memory_over_step
from hyscale_model.figures.overview import peak_memory, step_times
from hyscale_model.figures.style import DARK, LIGHT, THEMES, LegendEntry, Theme, legend

__all__ = [
    "DARK",
    "LIGHT",
    "THEMES",
    "LegendEntry",
    "Theme",
    "ablation",
    "checked",
    "communication",
    "legend",
    "memory_by_kind",
    "memory_by_stage",
    "memory_over_step",
    "peak_memory",
    "speedups",
    "step_breakdown",
    "step_times",
]
