"""Fit one global rate to the fit part of published step times: ``python -m hyscale_model.checks.fit``.

The rate of 16-bit products on Blackwell is the only one fitted. Published single kernels run cool and alone; a step of
minutes at the power limit does not. One factor scales the rates of single and grouped products, so that the mean over
families of the mean logarithm of predicted over reported seconds is zero; every family counts once. Families held out
are not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hyscale_model import catalog
from hyscale_model.checks.published import family_of, published_names, split_of
from hyscale_model.evaluate import Evaluator
from hyscale_model.rates.draws import Draws
from hyscale_model.rates.load import load_profile
from hyscale_model.rates.profile import Profile, Rate
from hyscale_model.scenario.resolve import read_scenario
from hyscale_model.scenario.schema import Scenario

ARCHITECTURE, PRECISION, FAMILIES = "blackwell", "bf16", ("gemm", "grouped_gemm")
# Factors tried: bisection in log space between these.
LOW, HIGH, STEPS = 0.25, 1.5, 20


def fit_cases() -> list[tuple[str, Scenario]]:
    """(family, scenario) of the runs that may be fitted: the architecture, the precision, the fit part, seconds."""
    found = []
    for name in published_names():
        scenario = read_scenario(name, text=catalog.path("published", name).read_bytes()).scenario
        family = family_of(scenario)
        wanted = scenario.cluster.gpu.architecture == ARCHITECTURE and scenario.training.precision == PRECISION
        if wanted and split_of(family) == "fit":
            found.append((family, scenario))
    return found


def scaled(profile: Profile, factor: float) -> Profile:
    """The profile with the rates of products in the fitted precision times a factor."""
    families = dict(profile.families)
    for name in FAMILIES:
        tensor = tuple(
            replace(entry, fraction=_times(entry.fraction, factor)) if PRECISION in entry.precisions else entry
            for entry in families[name].tensor
        )
        families[name] = replace(families[name], tensor=tensor)
    return replace(profile, families=families)


def _times(rate: Rate, factor: float) -> Rate:
    return replace(rate, value=rate.value * factor, low=rate.low * factor, high=rate.high * factor)


def mean_log_error(profile: Profile, cases: Sequence[tuple[str, Scenario]]) -> float:
    """Mean over families of the mean log of predicted over reported seconds, at nominal inputs."""
    errors: defaultdict[str, list[float]] = defaultdict(list)
    for family, scenario in cases:
        evaluator = Evaluator(scenario, {}, Draws(0), profile)
        (seconds,) = (step.step.seconds[0, 0] for step in evaluator.steps(scenario.systems))
        errors[family] += [np.log(seconds / row.value) for row in scenario.reported if row.metric.endswith("_time_s")]
    return float(np.mean([np.mean(each) for each in errors.values()]))


def fitted_factor() -> float:
    """The factor at which the mean log error is zero."""
    cases, profile = fit_cases(), load_profile("published", ARCHITECTURE)
    low, high = np.log(LOW), np.log(HIGH)
    for _ in range(STEPS):
        middle = (low + high) / 2
        # A higher rate shortens the step.
        if mean_log_error(scaled(profile, float(np.exp(middle))), cases) > 0:
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))


if __name__ == "__main__":
    print(f"{fitted_factor():.3f} times the rates of 16-bit products on {ARCHITECTURE}")
