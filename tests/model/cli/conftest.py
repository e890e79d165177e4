import io
import json
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

import hyscale_model
import hyscale_model.scenario
from hyscale_model.cli.main import main
from hyscale_model.errors import InputError
from hyscale_model.prediction import Prediction

SAMPLES = Path(__file__).parents[1] / "report"


def sample(name):
    return json.loads((SAMPLES / f"sample_{name}.json").read_text(encoding="utf-8"))


def stand_in(monkeypatch, name, **members):
    """Put a module of our own in place of one of hyscale_model: these tests are about the command line."""
    module = types.ModuleType(f"hyscale_model.{name}")
    for key, value in members.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, f"hyscale_model.{name}", module)
    monkeypatch.setattr(hyscale_model, name, module, raising=False)


@pytest.fixture
def run(capsys, monkeypatch):
    """Run ``hyscale`` and return its exit code, stdout and stderr."""

    def _run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return _run


@pytest.fixture
def engine(monkeypatch):
    """A predict that returns ``data`` or raises ``error``, and remembers how it was called."""
    state = SimpleNamespace(data=sample("prediction"), error=None, read=None, predicted=None)

    def read_scenario(source, *, overrides=(), systems=(), text=None):
        state.read = SimpleNamespace(source=source, overrides=overrides, systems=systems, text=text, notes=())
        if text is None and not Path(source).exists():
            raise InputError("no such file", file=str(source))
        return state.read

    def predict(resolved, *, draws=64, seed=0):
        state.predicted = (resolved, draws, seed)
        if state.error is not None:
            raise state.error
        return Prediction(state.data)

    monkeypatch.setattr(hyscale_model.scenario, "read_scenario", read_scenario, raising=False)
    monkeypatch.setattr(
        hyscale_model.scenario, "scenario_json_schema", lambda: {"type": "object", "title": "é"}, raising=False
    )
    stand_in(monkeypatch, "predict", predict=predict)
    return state


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text("schema_version: 1\n", encoding="utf-8")
    return path


@pytest.fixture
def checks(monkeypatch):
    state = SimpleNamespace(data=sample("check"), called=None)

    def check(groups, files, *, profile, draws=256, seed=0):
        state.called = SimpleNamespace(groups=groups, files=files, profile=profile, draws=draws, seed=seed)
        return state.data

    stand_in(monkeypatch, "checks", check=check)
    return state


@pytest.fixture
def facts(monkeypatch):
    entry = SimpleNamespace(
        name="h20-96",
        description="NVIDIA H20 96 GB",
        values={"sms": 78, "bf16_flops": 148e12, "memory_bytes": 102625181696, "note": None},
        source="a data sheet",
        sources={"memory_bytes": "the driver"},
        extends=None,
    )

    def names(kind):
        if kind not in ("models", "gpus", "published"):
            raise InputError(f"the catalogue has no {kind!r}")
        return {"gpus": ("h20-96",), "published": ("paper",)}.get(kind, ())

    def one(kind, name):
        if name not in names(kind):
            raise InputError(f"no {kind} entry {name!r}", expected="h20-96")
        return entry

    def document(kind, name):
        rows = {"description": "a table", "rows": [{"id": "P1", "value": 2.07}]}
        return SimpleNamespace(root=SimpleNamespace(plain=lambda: rows))

    stand_in(monkeypatch, "catalog", KINDS=("models", "gpus"), names=names, entry=one, document=document)
    return entry
