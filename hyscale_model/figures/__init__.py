"""Figures: pure functions from the JSON of a result to a figure of Plotly, shared by dashboard and HTML report."""

from __future__ import annotations

from hyscale_model.figures.ablation import ablation
from hyscale_model.figures.breakdown import step_breakdown
from hyscale_model.figures.calibrated import predicted_over_measured, rate_over_size
from hyscale_model.figures.checked import checked
from hyscale_model.figures.communication import communication
from hyscale_model.figures.front import front
from hyscale_model.figures.gains import speedups
from hyscale_model.figures.memory import memory_by_kind, memory_by_stage, memory_over_step
from hyscale_model.figures.network import network
from hyscale_model.figures.overview import peak_memory, step_times
from hyscale_model.figures.selection import gain_over_lengths, roofline, selection_bytes, selection_over_lengths
from hyscale_model.figures.style import DARK, LIGHT, THEMES, Figure, LegendEntry, Theme, legend
from hyscale_model.figures.sweeps import curves, heat_map
from hyscale_model.figures.techniques import techniques
from hyscale_model.figures.timelines import pipeline, streams
from hyscale_model.figures.tornado import tornado
from hyscale_model.figures.training import training_differences, training_losses

__all__ = [
    "DARK",
    "LIGHT",
    "THEMES",
    "Figure",
    "LegendEntry",
    "Theme",
    "ablation",
    "checked",
    "communication",
    "curves",
    "front",
    "gain_over_lengths",
    "heat_map",
    "legend",
    "memory_by_kind",
    "memory_by_stage",
    "memory_over_step",
    "network",
    "peak_memory",
    "pipeline",
    "predicted_over_measured",
    "rate_over_size",
    "roofline",
    "selection_bytes",
    "selection_over_lengths",
    "speedups",
    "step_breakdown",
    "step_times",
    "streams",
    "techniques",
    "tornado",
    "training_differences",
    "training_losses",
]
