"""What may import what, and what runs without any framework (or without most packages)."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("torch", "tensorflow", "keras", "tf_keras", "jax", "onnx", "onnxruntime")

#: makes imports of packages fail as if they were not installed
BLOCK = """
import importlib.machinery as machinery
def block(original=machinery.PathFinder.find_spec):
    def find_spec(name, path=None, target=None):
        return None if name.partition('.')[0] in {blocked!r} else original(name, path, target)
    machinery.PathFinder.find_spec = find_spec
block()
"""


def run(code: str, blocked: tuple[str, ...] = ()) -> str:
    head = BLOCK.format(blocked=set(blocked)) if blocked else ""
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_after(code: str) -> set[str]:
    names = run(f"import sys\n{code}\nprint('\\n' + ' '.join(sys.modules))").splitlines()[-1].split()
    return {name for name in names if name in FRAMEWORKS}


def cli(*arguments: str) -> str:
    return f"""
from ambidex.cli import main
try:
    main({list(arguments)!r})
except SystemExit as ended:
    assert ended.code in (0, 1), ended.code
"""


def test_importing_ambidex_loads_no_framework() -> None:
    assert loaded_after("import ambidex") == set()


def test_public_names_are_there_and_load_no_framework() -> None:
    assert loaded_after("import ambidex\nfor name in ambidex.__all__: getattr(ambidex, name)") == set()


@pytest.mark.parametrize(
    "module", ["engine.compare", "rules", "report.text", "report.html", "report.json_", "cli.app", "api"]
)
def test_layers_below_the_adapters_load_no_framework(module: str) -> None:
    assert loaded_after(f"import ambidex.{module}") == set()


@pytest.mark.parametrize("arguments", [("--help",), ("compare", "--help"), ("explain",), ("check",)])
def test_commands_load_no_framework(arguments: tuple[str, ...]) -> None:
    assert loaded_after(cli(*arguments)) == set()


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("explain",), ("check",)])
def test_commands_work_with_no_framework_installed(arguments: tuple[str, ...]) -> None:
    assert run(cli(*arguments), blocked=FRAMEWORKS).strip()


def test_report_works_with_no_framework_installed(tmp_path: Path) -> None:
    file, page = tmp_path / "r.json", tmp_path / "r.html"
    file.write_text(
        '{"format": 1, "verdict": "equal", "coverage": {"matched": 1},'
        ' "whole_model": {"max_abs": 0.0, "max_rel": 0.0, "floor_ratio": 0.0}}'
    )
    assert run(cli("report", str(file), "--html", str(page)), blocked=FRAMEWORKS).strip()
    assert "<html" in page.read_text()


def test_recording_needs_only_numpy_safetensors_and_the_framework(tmp_path: Path) -> None:
    """A model is recorded in an old environment that has none of our other packages."""
    code = f"""
import numpy as np, ambidex
from ambidex.core.trace import Trace
class Twice:
    framework = "none"
    def signature(self): return None
    def run(self, batch, plan=None, **options): return Trace("none", outputs={{"0": batch[0] * 2}})
    def layers(self): return []
    def constants(self):
        return set()

    def weights(self): return {{}}
    def close(self): pass
from ambidex.core.tracefile import save_trace
save_trace(ambidex.record(Twice(), np.ones(3)), {str(tmp_path / "trace")!r})
"""
    run(code, blocked=("pydantic", "typer", "rich", "jinja2", "scipy", "onnx", "torch", "tensorflow", "keras"))
    assert (tmp_path / "trace" / "trace.json").is_file()


def test_help_is_quick() -> None:
    """Processor time, the least of five: the clock on the wall measures the neighbours as well."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(cli("--help"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) <= 0.4, spent


def test_adapters_of_one_framework_do_not_import_another() -> None:
    """import-linter's contract lists modules; this one holds for files that are added later."""
    families: dict[str, set[str]] = {}
    for file in (ROOT / "src/ambidex/adapters").glob("[a-z]*_*.py"):
        family = file.stem.partition("_")[0]
        found = re.findall(r"ambidex\.adapters(?:\.| import )(\w+?)_\w*", file.read_text())
        families.setdefault(family, set()).update(found)
    assert {"torch", "keras"} <= set(families)
    frameworks = set(families) - {"reference", "build"}  # those two serve all adapters and know no framework
    for family in frameworks:
        assert not (families[family] & frameworks) - {family}, family


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import ambidex

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ambidex.nothing
    assert "compare" in dir(ambidex)
