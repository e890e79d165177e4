"""What is registered is complete, and is listed without torch."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hyscale_calibration.benches import registry
from hyscale_calibration.benches.arguments import select_cases, select_dtypes
from hyscale_calibration.kernel_hash import source_paths
from hyscale_calibration.layers.__main__ import sources
from hyscale_calibration.recorded import recorded_results

ROOT = Path(__file__).parents[2]
BENCHES = ROOT / "calibration" / "hyscale_calibration" / "benches"


def imported_kernels(path):
    """Modules of kernels that a source file imports, as paths relative to the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hyscale_kernels."):
            yield node.module.partition(".")[2].replace(".", "/") + ".py"


def test_names_are_unique_and_every_operation_is_registered():
    assert len(set(registry.NAMES)) == len(registry.NAMES)
    assert set(registry.NAMES) == {path.stem for path in BENCHES.glob("*.py") if "\nOPERATION = " in path.read_text()}


@pytest.mark.parametrize("name", registry.NAMES)
def test_an_operation_is_called_like_its_module(name):
    operation = registry.load(name)
    assert operation.name == name
    assert operation.description
    assert "\n" not in operation.description


@pytest.mark.parametrize("name", registry.NAMES)
def test_sources_exist_and_so_do_those_they_import(name):
    sources = registry.load(name).sources
    for path in source_paths(sources):
        assert path.is_file()
        assert set(imported_kernels(path)) <= set(sources), "what a kernel calls decides its time too"


@pytest.mark.parametrize("name", registry.NAMES)
def test_cases_of_an_operation_have_the_same_keys_and_names_of_their_own(name):
    operation = registry.load(name)
    assert operation.cases
    assert operation.dtypes
    assert len({case.name for case in operation.cases}) == len(operation.cases)
    assert len({tuple(case.shape) for case in operation.cases}) == 1
    assert set(operation.trial) <= set(operation.cases[0].shape)


@pytest.mark.parametrize("name", registry.NAMES)
def test_without_arguments_every_case_is_measured(name):
    operation = registry.load(name)
    assert select_cases(operation, {}) == list(operation.cases)
    assert select_dtypes(operation, None) == operation.dtypes


def test_every_recorded_result_belongs_to_an_operation():
    for name, results in recorded_results():
        stem = name.rpartition("/")[2]
        if stem == "training" or stem.startswith("layers"):
            # Of all kernels at once; see hyscale_calibration.layers and hyscale_calibration.training.
            assert set(results["sources"]) <= set(sources())
            continue
        operation = registry.load(stem)
        assert results["sources"] == list(operation.sources)
        assert {row["dtype"] for row in results["rows"]} <= set(operation.dtypes)
        assert all(set(operation.cases[0].shape) <= set(row["shape"]) for row in results["rows"])


def test_listing_operations_imports_no_torch():
    script = (
        f"import json, sys\nsys.path[:0] = {[str(ROOT / each) for each in ('kernels', 'calibration')]}\n"
        "from hyscale_calibration.benches.__main__ import main\nassert main(['--list']) == 0\n"
        "sys.stderr.write(json.dumps(list(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(result.stderr)}
    assert not loaded & {"torch", "triton", "hyscale_kernels"}
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(registry.NAMES)
