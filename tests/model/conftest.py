from types import SimpleNamespace

import pytest

from hyscale_model import catalog
from hyscale_model.evaluate import Evaluator
from hyscale_model.predict import predict
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.scenario import read_scenario

PUBLISHED = catalog.path("published", "glm-5.1-1m-512xh20").read_text(encoding="utf-8")

# A hypothetical model of six layers on one node, small enough to reason about by hand.
SMALL = """
schema_version: 1
name: six layers on one node
model: {extends: glm-5.1, num_hidden_layers: 6}
cluster: {gpu: h200, nodes: 1, gpus_per_node: 8, nic_gbit_per_gpu: 400}
layout: {pp: 2, cp: 4, ep: 4}
workload: {sequence_length: 65536, global_batch_size: 4}
training: {}
systems: [megatron, hyscale]
"""


@pytest.fixture(scope="session")
def resolve():
    """Read one of the two scenarios with overrides; ``edit`` is (old, new) text."""

    def _resolve(*overrides, systems=(), small=False, edit=None):
        text = SMALL if small else PUBLISHED
        if edit is not None:
            assert edit[0] in text
            text = text.replace(*edit)
        return read_scenario("scenario.yaml", overrides=overrides, systems=systems, text=text)

    return _resolve


@pytest.fixture(scope="session")
def predicted(resolve):
    """The JSON of a prediction, computed once for equal arguments. Tests must not change it."""
    known = {}

    def _predicted(*overrides, systems=(), small=False, draws=0, seed=0, edit=None):
        key = (overrides, tuple(systems), small, draws, seed, edit)
        if key not in known:
            resolved = resolve(*overrides, systems=systems, small=small, edit=edit)
            known[key] = predict(resolved, draws=draws, seed=seed).data
        return known[key]

    return _predicted


@pytest.fixture(scope="session")
def evaluate():
    """Step and memory of some systems of a scenario with values in place of some of its fields."""

    def _evaluate(scenario, values=None, draws=None, systems=None):
        draws = draws or Draws(0)
        evaluator = Evaluator(scenario, values or {}, draws, load_profile(scenario.profile))
        systems = systems or scenario.systems
        steps = [evaluation.step for evaluation in evaluator.steps(systems)]
        memory = [evaluator.memory(system) for system in systems]
        return SimpleNamespace(steps=steps, memory=memory, evaluator=evaluator)

    return _evaluate
