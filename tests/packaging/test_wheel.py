import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("hyscale_model", "kernels", "calibration")


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Names in the wheel built from the sources alone, so that nothing lying around can slip in."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    # With a setuptools of our own the build needs no network.
    own = int(metadata.version("setuptools").partition(".")[0]) >= 77
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command + ["--no-build-isolation"] * own, check=True, timeout=600)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_the_wheel_has_the_whole_catalogue(contents):
    facts = (ROOT / "hyscale_model" / "catalog").rglob("*.yaml")
    assert {path.relative_to(ROOT).as_posix() for path in facts} <= contents


@pytest.mark.slow
def test_the_wheel_has_all_three_packages_and_no_tests(contents):
    tops = {name.partition("/")[0] for name in contents if ".dist-info" not in name}
    assert tops == {"hyscale_model", "hyscale_kernels", "hyscale_calibration"}
    for name in SOURCES:
        root = ROOT if name == "hyscale_model" else ROOT / name
        package = root / ("hyscale_model" if root == ROOT else f"hyscale_{name}")
        modules = {path.relative_to(root).as_posix() for path in package.rglob("*.py")}
        assert modules <= contents
