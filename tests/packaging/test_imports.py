import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEVER = {"scipy", "plotly", "dash", "pyarrow", "torch", "triton"}
# A cold start of help needs none of these either.
LATER = {"numpy", "networkx", "yaml", "rich"}


def loaded_by(code):
    paths = [str(ROOT / each) for each in ("", "kernels", "calibration")]
    script = f"import json, sys\nsys.path[:0] = {paths}\n{code}\nsys.stderr.write(json.dumps(list(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return {name.partition(".")[0] for name in json.loads(result.stderr)}


@pytest.mark.parametrize(
    "code",
    [
        "import hyscale_model.cli.main",
        "from hyscale_model.cli.main import main; main(['--help'])",
        "from hyscale_model.cli.main import main; main(['predict', '--help'])",
    ],
)
def test_a_cold_start_is_lazy(code):
    assert not loaded_by(code) & (NEVER | LATER)


def test_doctor_looks_at_kernels_without_importing_them():
    code = "from hyscale_model.cli.main import main\nassert main(['doctor', '--json']) == 0"
    loaded = loaded_by(code)
    assert "hyscale_calibration" in loaded
    assert not loaded & (NEVER | {"hyscale_kernels"})


def test_reports_need_no_numbers_library():
    assert not loaded_by("import hyscale_model.report") & (NEVER | {"numpy", "networkx"})


def test_imports_go_one_way():
    linter = pytest.importorskip("importlinter.cli")
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
