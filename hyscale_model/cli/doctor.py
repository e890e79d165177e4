"""``hyscale doctor``: what this machine and installation have, for help with a problem."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hyscale_model.cli.outcome import version

REQUIRED = ("numpy", "scipy", "networkx", "pydantic", "PyYAML", "typer", "rich", "platformdirs")
OPTIONAL = ("torch", "triton", "plotly", "dash", "pyarrow")
_GPU_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")] = False,
) -> None:
    """Show Python, packages, GPUs and profiles found here, and measurements of kernels that changed since."""
    data = examine()
    if as_json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(data)


def examine() -> dict[str, Any]:
    """Everything ``doctor`` shows; imports none of the packages it looks at."""
    from hyscale_model.locations import user_data_directory, user_profile_directory

    directory = user_profile_directory()
    return {
        "hyscale": version(),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in REQUIRED},
        "optional_packages": {name: _version(name) for name in OPTIONAL},
        "gpus": gpus(),
        "user_data": str(user_data_directory()),
        "profiles": {
            "shipped": _shipped_profiles(),
            "yours": sorted(path.stem for path in directory.glob("*.json")) if directory.is_dir() else [],
        },
        "stale_results": stale_results(),
        "stale_profiles": stale_profiles(),
    }


def gpus() -> list[dict[str, str]]:
    """NVIDIA GPUs as the driver's own tool reports them; none where it is absent or does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run([tool, *_GPU_QUERY], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.split(",") for line in answer.stdout.splitlines())
    return [
        {"name": row[0].strip(), "memory": row[1].strip(), "driver": row[2].strip()} for row in rows if len(row) == 3
    ]


def stale_results() -> list[str] | None:
    """Recorded results of kernels that differ from those installed; None where either is missing."""
    try:
        from hyscale_calibration.recorded import stale_results

        return stale_results()
    except ModuleNotFoundError:
        return None


def stale_profiles() -> dict[str, list[str]] | None:
    """Shipped profiles with the operations whose kernels differ from those installed; None where either is missing."""
    try:
        from hyscale_calibration.recorded import stale_profiles

        return stale_profiles()
    except ModuleNotFoundError:
        return None


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _shipped_profiles() -> list[str]:
    from importlib.util import find_spec
    from pathlib import Path

    from hyscale_model.cli.catalog import names

    # Found without being imported: the package of the measurements needs what only GPU users have.
    package = find_spec("hyscale_calibration")
    folders = [Path(place) / "profiles" for place in (package.submodule_search_locations or [])] if package else []
    measured = (path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.json"))
    return sorted({*names("profiles"), *measured})


def _show(data: Mapping[str, Any]) -> None:
    from hyscale_model.report.canvas import heading, make_console, plain_table, printable, sentence

    console = make_console()
    rows = [
        ["hyscale-model", data["hyscale"]],
        ["Python", f"{data['python']['version']} ({data['python']['executable']})"],
        ["platform", data["platform"]],
        ["your data", data["user_data"]],
        ["profiles, shipped", ", ".join(data["profiles"]["shipped"]) or "none"],
        ["profiles, yours", ", ".join(data["profiles"]["yours"]) or "none"],
    ]
    rows += [[f"GPU {index}", ", ".join(gpu.values())] for index, gpu in enumerate(data["gpus"])] or [["GPU", "none"]]
    stale = data["stale_results"]
    if stale is None:
        rows.append(["results, stale", "unknown: hyscale_kernels or hyscale_calibration is not installed"])
    elif stale:
        rows.append(["results, stale", f"{', '.join(stale)}: their kernels changed, measure again"])
    for name, operations in (data["stale_profiles"] or {}).items():
        rows.append([f"profile {name}", f"{', '.join(operations)}: kernels changed since, calibrate again"])
    console.print(plain_table(["", ""], [[key, printable(value)] for key, value in rows], left=(0, 1), fold=(1,)))
    heading(console, "Packages")
    packages = [[name, found or "MISSING"] for name, found in data["packages"].items()]
    packages += [[name, found or "not installed"] for name, found in data["optional_packages"].items()]
    console.print(plain_table(["package", "version"], packages, left=(0, 1)))
    if data["optional_packages"].get("torch") is None:
        sentence(console, "Predictions need no torch; measuring kernels on a GPU does.", "dim")
