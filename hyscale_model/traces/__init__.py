"""Traces of the PyTorch profiler (Chrome JSON): what the GPU did in a step, told by the terms of the model."""

from hyscale_model.traces.attribution import Attribution, attribute
from hyscale_model.traces.rules import Rule, read_rules, shipped_rules
from hyscale_model.traces.trace import Trace, read_trace

__all__ = ["Attribution", "Rule", "Trace", "attribute", "read_rules", "read_trace", "shipped_rules"]
