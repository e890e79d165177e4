"""A measured profile as rates: what was fitted on a GPU, over published rates for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyscale_model.errors import InputError
from hyscale_model.prediction import Origin
from hyscale_model.rates.law import Law
from hyscale_model.rates.profile import SCHEMA_VERSION, Family, Fitted, Profile, Rate

KIND = "measured"
# Draws are log-uniform on either side of the nominal value, so 80 % of them lie within 0.8 of the range.
_INTERVAL = 0.8


def parse_measured(data: Mapping[str, Any], base: Profile, where: str) -> Profile:
    """The rates of ``base`` with the families that ``data`` has a fit of.

    Raises:
        InputError: it is of another version, of a GPU that the catalogue lacks, not fitted, or a fit is no law.
    """
    if data.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"profile has schema version {data.get('schema_version')}",
            file=where,
            field="schema_version",
            expected=str(SCHEMA_VERSION),
        )
    gpu, fits = data.get("gpu"), data.get("fits")
    if not isinstance(gpu, str):
        raise InputError(
            "the profile does not say which GPU of the catalogue it is of", file=where, field="gpu", expected="a name"
        )
    fitted = fits.get("families") if isinstance(fits, Mapping) else None
    if not isinstance(fitted, Mapping) or not fitted:
        raise InputError(
            "the profile holds measurements but no fits",
            file=where,
            field="fits",
            expected=f"what hyscale profile merge {where} --output PATH writes",
        )
    families = dict(base.families)
    for name, entry in fitted.items():
        known = families.get(name, Family(name, (), None))
        families[name] = replace(known, fitted=_fitted(name, entry, gpu, str(data.get("name")), where))
    return replace(base, name=str(data.get("name")), families=families)


def _fitted(name: str, entry: Any, gpu: str, profile: str, where: str) -> Fitted:
    field = f"fits.families.{name}"
    try:
        law = Law.parse(entry["coefficients"])
        low, high = (float(each) for each in entry["measured_s"])
        spread, count = float(entry["spread"]), int(entry["fit"]["n"])
    except KeyError as missing:
        raise InputError(f"the fit lacks {missing}", file=where, field=field) from None
    except (TypeError, ValueError) as error:
        raise InputError(f"no law: {error}", file=where, field=field) from None
    if not (0 <= spread < math.inf and 0 < low <= high < math.inf):
        raise InputError(f"a spread of {spread} over {low} to {high} s makes no interval", file=where, field=field)
    source = f"profile {profile}: {count} points on {gpu}, hyscale calibrate"
    width = math.exp(spread / _INTERVAL)
    return Fitted(gpu, source, law, Rate(1.0, 1.0 / width, width, Origin("measured", source)), (low, high))
