"""Scenario files: the schema, and the one way from a file to a checked scenario."""

from __future__ import annotations

from hyscale_model.scenario.base import default_reason
from hyscale_model.scenario.jsonschema import scenario_json_schema
from hyscale_model.scenario.load import Document, load, loads
from hyscale_model.scenario.models import Model
from hyscale_model.scenario.origins import leaves
from hyscale_model.scenario.resolve import Resolved, read_scenario
from hyscale_model.scenario.schema import (
    Assumption,
    Cluster,
    Gpu,
    Layout,
    Reported,
    Scenario,
    System,
    Training,
    Workload,
)
from hyscale_model.scenario.validate import case_for, check_layout

__all__ = [
    "Assumption",
    "Cluster",
    "Document",
    "Gpu",
    "Layout",
    "Model",
    "Reported",
    "Resolved",
    "Scenario",
    "System",
    "Training",
    "Workload",
    "case_for",
    "check_layout",
    "default_reason",
    "leaves",
    "load",
    "loads",
    "read_scenario",
    "scenario_json_schema",
]
