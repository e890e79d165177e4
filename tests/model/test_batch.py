"""A batch is its points one at a time, and groups of draws are what each group gives alone."""

from dataclasses import replace

import numpy as np
import pytest

from hyscale_model.batch import assign, draw_assumptions
from hyscale_model.predict import predict
from hyscale_model.rates.draws import Draws

# Fields whose values are points of one evaluation, by the values they take together.
POINTS = {
    "global batch": {"workload.global_batch_size": (4, 8, 16, 64)},
    "micro-batch": {"workload.micro_batch_size": (1, 2), "workload.global_batch_size": (8, 16)},
    "virtual stages": {"layout.vpp": (1, 2, 3)},
    "index precision": {"training.index_precision": ("bf16", "fp8")},
    "gradient precision": {"training.gradient_precision": ("fp32", "bf16")},
    "adapters": {"cluster.nic_efficiency": (0.5, 0.7, 0.9)},
    "imbalance": {"training.moe_imbalance": (1.0, 1.3, 2.0)},
    "order": {"layout.cp_order": ("zigzag", "contiguous", "zigzag"), "layout.index_balance": (True, True, False)},
    "dispatcher": {"systems.*.dispatcher": ("alltoall", "deepep")},
    "memory bandwidth": {"cluster.gpu.hbm_bytes_per_s": (3e12, 4e12, 5e12)},
    "nodes": {"cluster.nodes": (64, 128), "workload.global_batch_size": (16, 16)},
    "sequence": {"workload.sequence_length": (4096, 131072, 700416, 1048576, 2097152)},
    "ranks": {"layout.cp": (32, 64, 128), "layout.ep": (64, 32, 128), "workload.global_batch_size": (16, 16, 16)},
    "mixed": {
        "workload.sequence_length": (262144, 1048576, 524288),
        "layout.vpp": (1, 3, 2),
        "training.index_precision": ("fp8", "bf16", "fp8"),
        "training.moe_imbalance": (1.0, 1.5, 1.1),
    },
}


def assert_same(found, expected):
    """Equal to 1e-12 of the whole: a term that is a difference of large numbers keeps their rounding."""
    scale = np.abs(expected).max()
    assert np.abs(np.asarray(found) - np.asarray(expected)).max() <= 1e-12 * scale


def columns(name):
    return {path: np.array(values)[:, None] for path, values in POINTS[name].items()}


@pytest.mark.parametrize("name", POINTS)
def test_time_of_a_batch_is_that_of_its_points(resolve, evaluate, name):
    scenario = resolve().scenario
    batch = evaluate(scenario, columns(name))
    for index, point in enumerate(zip(*POINTS[name].values(), strict=True)):
        alone = evaluate(assign(scenario, dict(zip(POINTS[name], point, strict=True))))
        for together, single in zip(batch.steps, alone.steps, strict=True):
            assert_same(together.seconds[index], single.seconds[0])
            assert_same(together.terms[:, index], single.terms[:, 0])
            assert together.stage[index] == single.stage[0]
            assert set(together.hidden) == set(single.hidden)
            for group, hidden in together.hidden.items():
                assert hidden[index] == pytest.approx(single.hidden[group][0], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", POINTS)
def test_memory_of_a_batch_is_that_of_its_points(resolve, evaluate, name):
    scenario = resolve().scenario
    batch = evaluate(scenario, columns(name))
    for index, point in enumerate(zip(*POINTS[name].values(), strict=True)):
        alone = evaluate(assign(scenario, dict(zip(POINTS[name], point, strict=True))))
        for together, single in zip(batch.memory, alone.memory, strict=True):
            assert_same(together.totals[..., index, :], single.totals[..., 0, :])
            assert_same(together.peak()[index], single.peak()[0])


def test_points_and_draws_cross(resolve, evaluate):
    scenario = resolve().scenario
    draws = Draws(8, 4)
    lengths = (524288, 1048576)
    drawn = {"cluster.nic_efficiency": np.linspace(0.7, 0.9, 9)[None, :]}
    batch = evaluate(scenario, drawn | {"workload.global_batch_size": np.array([[4], [16]])}, draws)
    for index, size in enumerate((4, 16)):
        alone = evaluate(assign(scenario, {"workload.global_batch_size": size}), drawn, draws)
        for together, single in zip(batch.steps, alone.steps, strict=True):
            assert together.seconds.shape == (len(lengths), 9)
            assert_same(together.terms[:, index], single.terms[:, 0])


def test_systems_are_evaluated_as_if_each_were_alone(resolve, evaluate):
    scenario = resolve().scenario
    draws = Draws(8, 1)
    values = draw_assumptions(scenario, draws)
    together = evaluate(scenario, values, draws)
    for index, system in enumerate(scenario.systems):
        alone = evaluate(scenario, values, draws, systems=[system])
        assert_same(together.steps[index].terms, alone.steps[0].terms)
        assert_same(together.memory[index].totals, alone.memory[0].totals)


STRUCTURE = {
    "systems.megatron.selection": ("score_table", "hytopk"),
    "systems.megatron.recompute_selection": ("rerun", "skip", "replay"),
    "systems.*.cp_overlap": ("none", "behind_selection"),
    "training.recompute": ("full", "none"),
    "training.index_loss": ("sparse", "none"),
    "layout.pp": (4, 2),
    "layout.zero": (1, 0),
}


@pytest.mark.parametrize("path", STRUCTURE)
def test_draws_of_different_structure_are_those_of_each_structure_alone(resolve, evaluate, path):
    scenario = resolve().scenario
    draws = Draws(11, 2)
    shared = draw_assumptions(scenario, draws)
    choices = STRUCTURE[path]
    # The nominal column holds the scenario's own value.
    picked = [choices[index % len(choices)] for index in range(draws.width)]
    mixed = evaluate(scenario, shared | {path: np.array(picked)[None, :]}, draws)
    for choice in choices:
        alone = evaluate(assign(scenario, {path: choice}), shared, draws)
        own = [column for column, value in enumerate(picked) if value == choice]
        for together, single in zip(mixed.steps, alone.steps, strict=True):
            assert_same(together.seconds[:, own], single.seconds[:, own])
            assert_same(together.terms[:, :, own], single.terms[:, :, own])
            for group, hidden in single.hidden.items():
                assert together.hidden[group][:, own] == pytest.approx(hidden[:, own], rel=1e-12, abs=1e-12)
        for together, single in zip(mixed.memory, alone.memory, strict=True):
            ranks = single.totals.shape[0]
            assert_same(together.totals[:ranks, ..., own], single.totals[..., own])
            assert not together.totals[ranks:, ..., own].any()


def test_draws_of_a_named_system_leave_the_others_alone(resolve, evaluate):
    scenario = resolve().scenario
    draws = Draws(4)
    values = {"systems.megatron.selection": np.array([["score_table", "hytopk", "hytopk", "score_table", "hytopk"]])}
    mixed, plain = evaluate(scenario, values, draws), evaluate(scenario, {}, draws)
    for index, system in enumerate(scenario.systems):
        same = np.isclose(mixed.steps[index].seconds, plain.steps[index].seconds, rtol=1e-12)
        assert same.all() == (system.name != "megatron")


def test_points_cross_with_draws_of_different_structure(resolve, evaluate):
    scenario = resolve().scenario
    points = {"workload.global_batch_size": np.array([[4], [8]])}
    drawn = {"training.recompute": np.array([["full", "none", "full"]])}
    mixed = evaluate(scenario, points | drawn, Draws(2))
    alone = evaluate(scenario, points, Draws(2))
    assert_same(mixed.steps[0].seconds[:, [0, 2]], alone.steps[0].seconds[:, [0, 2]])


@pytest.mark.parametrize("path", ["systems.megatron.table_topk", "layout.pp", "training.recompute"])
def test_a_structural_assumption_stands_beside_others(resolve, path):
    choices = {"systems.megatron.table_topk": "torch, radix", "layout.pp": "4, 2", "training.recompute": "full, none"}
    item = f"assumptions:\n  - {{path: {path}, choices: [{choices[path]}], reason: not known}}"
    resolved = resolve(edit=("assumptions:", item))
    assert path in {assumption.path for assumption in resolved.scenario.assumptions}
    data = predict(resolved, draws=16).data
    assert data["systems"]["megatron"]["step_time_s"]["p90"] > 0


def test_a_system_may_change_its_own_layout_and_training(resolve, evaluate):
    scenario = resolve().scenario
    own = replace(scenario.systems[0], layout={"pp": 2, "vpp": 3}, training={"recompute": "none"})
    mixed = evaluate(scenario, systems=[scenario.systems[2], own])
    changed = assign(scenario, {"layout.pp": 2, "layout.vpp": 3, "training.recompute": "none"})
    alone = evaluate(changed, systems=[scenario.systems[0]])
    assert_same(mixed.steps[1].terms, alone.steps[0].terms)
    assert_same(mixed.memory[1].totals, alone.memory[0].totals)
    assert_same(mixed.steps[0].terms, evaluate(scenario).steps[2].terms)


def test_systems_for_which_the_same_is_assumed_share_it_and_are_what_each_is_alone(resolve, evaluate):
    scenario, draws = resolve().scenario, Draws(8)
    values = draw_assumptions(scenario, draws)
    drawn = [values[f"systems.{system.name}.dispatcher"] for system in scenario.systems]
    assert all(each is drawn[0] for each in drawn)
    together = evaluate(scenario, values, draws)
    for place, system in enumerate(scenario.systems):
        # Arrays of its own, of which nothing is shared.
        own = {path: array.copy() for path, array in values.items()}
        alone = evaluate(scenario, own, draws, systems=[system])
        assert_same(together.steps[place].terms, alone.steps[0].terms)
        assert_same(together.memory[place].totals, alone.memory[0].totals)
    # Another nominal value is another array.
    first, *rest = scenario.systems
    other = replace(scenario, systems=(replace(first, dispatcher="deepep"), *rest))
    differ = draw_assumptions(other, draws)
    assert differ[f"systems.{first.name}.dispatcher"] is not differ[f"systems.{rest[0].name}.dispatcher"]
