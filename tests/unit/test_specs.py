"""Model specs: what opens, and one exact sentence for everything that does not. A stand-in framework is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ambidex import adapters
from ambidex.adapters import open_model, specs, wrap
from ambidex.core import usercode
from ambidex.core.trace import Trace
from ambidex.core.tracefile import save_trace
from ambidex.errors import AmbidexError, RunError, SpecError, UnsupportedError


class Wrapped:
    framework = "fakefw"

    def __init__(self, net: Any) -> None:
        self.net = net

    def signature(self) -> None: ...
    def run(self, batch: Any) -> None: ...
    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, and a framework `fakefw` whose adapter is `fake_adapter`."""
    monkeypatch.chdir(tmp_path)
    framework = ModuleType("fakefw")
    framework.Net = type("Net", (), {"__module__": "fakefw", "__call__": lambda self: None})  # type: ignore[attr-defined]
    framework.remembering = []  # type: ignore[attr-defined]
    adapter = ModuleType("fake_adapter")

    @contextmanager
    def remember_sources() -> Iterator[None]:
        framework.remembering.append(True)
        yield
        framework.remembering.pop()

    adapter.__dict__.update(
        accepts=lambda obj: isinstance(obj, framework.Net), wrap=Wrapped, remember_sources=remember_sources
    )
    monkeypatch.setitem(sys.modules, "fakefw", framework)
    monkeypatch.setitem(sys.modules, "fake_adapter", adapter)
    monkeypatch.setattr(adapters, "ADAPTERS", {"fakefw": "fake_adapter"})
    framework.__spec__ = SimpleNamespace(name="fakefw")  # type: ignore[assignment]
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fails(spec: Any, kind: type[AmbidexError] = SpecError) -> str:
    with pytest.raises(kind) as caught:
        open_model(spec)
    text = str(caught.value)
    assert "\n" not in text and text.endswith((".", "?")), text
    return text


NET = "import fakefw\ndef make():\n    return fakefw.Net()\n"


# ---------------------------------------------------------------------------------------------------- what opens
def test_a_factory_in_a_file_opens() -> None:
    write("m.py", NET)
    assert isinstance(open_model("m.py:make"), Wrapped)
    assert isinstance(open_model(Path("m.py:make")), Wrapped)


def test_a_ready_model_and_a_class_and_a_method_open() -> None:
    write("m.py", "import fakefw\nready = fakefw.Net()\nNet = fakefw.Net\nclass Zoo:\n    make = staticmethod(Net)\n")
    for name in ("ready", "Net", "Zoo.make"):
        assert isinstance(open_model(f"m.py:{name}"), Wrapped)


def test_a_factory_in_a_package_opens_from_the_current_folder() -> None:
    write("pack_a/__init__.py", "")
    write("pack_a/models.py", "from .parts import Net\ndef make(size=3):\n    return Net()\n")
    write("pack_a/parts.py", "from fakefw import Net\n")
    assert isinstance(open_model("pack_a.models:make"), Wrapped)


def test_live_objects_models_and_traces_open() -> None:
    net = sys.modules["fakefw"].Net()
    assert open_model(net).net is net
    model = wrap(net)
    assert open_model(model) is model
    trace = Trace("torch")
    assert open_model(trace) is trace
    save_trace(Trace("torch", versions={"torch": "2.1"}), "rec")
    assert open_model("rec").versions == {"torch": "2.1"}


def test_two_folders_with_helpers_of_the_same_name_each_get_their_own() -> None:
    for side in ("a", "b"):
        write(f"{side}/model.py", "import fakefw, layers\ndef make():\n    import late\n    return fakefw.Net()\n")
        write(f"{side}/model2.py", f"import layers\nassert layers.SIDE == '{side}'\n" + NET)
        write(f"{side}/layers.py", f"SIDE = '{side}'\n")
        write(f"{side}/late.py", f"import layers\nassert layers.SIDE == '{side}', layers.SIDE\n")
    for spec in ("a/model.py:make", "b/model.py:make", "a/model2.py:make", "b/model2.py:make"):
        assert isinstance(open_model(spec), Wrapped)


def test_a_file_runs_once_and_again_after_a_change() -> None:
    write("m.py", "import fakefw\nruns = getattr(fakefw, 'runs', 0) + 1\nfakefw.runs = runs\n" + NET)
    open_model("m.py:make")
    open_model("m.py:make")
    assert sys.modules["fakefw"].runs == 1
    with open("m.py", "a") as file:
        file.write("def more():\n    return fakefw.Net()\n")
    open_model("m.py:more")
    assert sys.modules["fakefw"].runs == 2


def test_sources_are_remembered_while_the_file_and_the_factory_run() -> None:
    write(
        "m.py",
        "import fakefw\nassert fakefw.remembering\n"
        "def make():\n    assert fakefw.remembering\n    return fakefw.Net()\n",
    )
    assert isinstance(open_model("m.py:make"), Wrapped)
    assert sys.modules["fakefw"].remembering == []


def test_a_factory_may_answer_with_a_place() -> None:
    save_trace(Trace("torch"), "rec")
    write("m.py", "def make():\n    return 'rec'\n")
    assert isinstance(open_model("m.py:make"), Trace)


def test_the_import_path_is_as_before() -> None:
    write("m.py", NET)
    before = list(sys.path)
    open_model("m.py:make")
    with pytest.raises(SpecError):
        open_model("m.py:nothing")
    assert sys.path == before


# ---------------------------------------------------------------------------------------------------- what does not
def test_a_missing_file_names_a_near_one() -> None:
    write("model.py", NET)
    assert fails("modle.py:make") == "the file 'modle.py' does not exist. Did you mean 'model.py'?"
    assert "In '.' there are model.py" in fails("zzz.py:make")
    assert "there is no folder 'none'" in fails("none/m.py:make")


def test_a_missing_name_lists_what_is_there_without_running_the_file() -> None:
    write("m.py", "raise SystemExit('ran')\ndef make(): ...\nclass Net: ...\ndef _hidden(): ...\n")
    assert fails("m.py:mak") == "'m.py' has no 'mak'. Did you mean 'make'? It has make, Net, _hidden."
    write("e.py", "x = 1\n")
    assert fails("e.py:make") == "'e.py' has no 'make'. It defines no function and no class."


def test_a_name_that_only_running_can_tell_is_looked_for_by_running() -> None:
    write("m.py", "import fakefw\nglobals()['ma' + 'ke'] = fakefw.Net\n")
    assert isinstance(open_model("m.py:make"), Wrapped)
    assert "has no 'other'" in fails("m.py:other")


def test_a_file_without_a_name_lists_its_factories() -> None:
    write(
        "m.py",
        NET + "def sized(n): ...\nclass Free:\n    def __init__(self, a=1): ...\nclass Bound:\n"
        "    def __init__(self, a): ...\n",
    )
    assert fails("m.py") == "'m.py' names no factory. Say one of m.py:make, m.py:Free."
    write("n.py", "def sized(n): ...\n")
    assert fails("n.py").startswith("'n.py' names no factory: all of sized need arguments. Write a function")
    write("e.py", "")
    assert "the file defines no function" in fails("e.py")


def test_a_factory_that_needs_arguments_names_them() -> None:
    write("m.py", "def make(hidden, *, depth, drop=0.1): ...\nclass Net:\n    def __init__(self, hidden): ...\n")
    text = fails("m.py:make")
    assert text.startswith("'m.py:make' needs the arguments 'hidden', 'depth': factories are called without arguments.")
    assert "def make(): return Net(hidden=...)" in fails("m.py:Net")


def test_a_factory_that_raises_shows_the_users_own_line() -> None:
    write("helper.py", "import json\ndef read():\n    return json.loads('{')\n")
    write("m.py", "import helper\ndef make():\n    return helper.read()\n")
    assert fails("m.py:make").startswith("'m.py:make' raised: JSONDecodeError in helper.py:3: Expecting property name")
    write("n.py", "def make():\n    raise ValueError('first\\n  second')\n")
    assert fails("n.py:make") == "'n.py:make' raised: ValueError in n.py:2: first second."
    write("o.py", "def make():\n    raise KeyError\n")
    assert fails("o.py:make") == "'o.py:make' raised: KeyError in o.py:2: KeyError."


def test_a_file_that_cannot_be_imported_says_why() -> None:
    write("s.py", "def make(:\n")
    assert fails("s.py:make").startswith("cannot import 's.py': line 1: ")
    write("z.py", "1 / 0\ndef make(): ...\n")
    assert fails("z.py:make") == "cannot import 'z.py': ZeroDivisionError in z.py:1: division by zero."
    write("i.py", "import no_such_thing\ndef make(): ...\n")
    text = fails("i.py:make")
    assert text.startswith("cannot import 'i.py': No module named 'no_such_thing' (i.py:1). Install 'no_such_thing'")
    write("x.py", "import sys\nsys.exit(3)\ndef make(): ...\n")
    assert "cannot import 'x.py' ended Python: sys.exit(3) in x.py:2" in fails("x.py:make")
    Path("b.py").write_bytes(b"\x00\xff\xfe")
    assert "'b.py'" in fails("b.py:make") or "no Python source" in fails("b.py:make")


def test_a_missing_framework_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    write("m.py", "def make():\n    raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')\n")
    assert "pip install 'ambidex[tensorflow]', or run `ambidex record` where it is installed" in fails("m.py:make")


def test_a_file_that_hides_a_package_is_named() -> None:
    write("keras.py", "")
    write("m.py", "def make():\n    raise ImportError('cannot import name layers')\n")
    assert fails("m.py:make").endswith("'keras.py' in that folder hides the package keras: rename it.")


def test_memory_is_told_and_an_interrupt_passes() -> None:
    write("m.py", "def make():\n    raise MemoryError\ndef stop():\n    raise KeyboardInterrupt\n")
    assert "ran out of memory" in fails("m.py:make", RunError)
    with pytest.raises(KeyboardInterrupt):
        open_model("m.py:stop")


def test_our_own_errors_pass_as_they_are() -> None:
    write("m.py", "from ambidex.errors import InputError\ndef make():\n    raise InputError('mine')\n")
    with pytest.raises(AmbidexError, match="^mine.$"):
        open_model("m.py:make")


@pytest.mark.parametrize(
    "body, words",
    [
        ("None", "returned None: no model came back. Is a `return` missing"),
        ("3", "returned a int: only a torch.nn.Module or a Keras 3 model"),
        ("make", "returned a function"),
        ("fakefw.Net", "Net is a class. Give an object of it"),
        ("{'w': __import__('numpy').ones(2)}", "that is a state dict"),
        ("(fakefw.Net(), 1)", "returned a tuple"),
    ],
)
def test_what_is_no_model_is_named(body: str, words: str) -> None:
    write("m.py", f"import fakefw\ndef make():\n    return {body}\n")
    assert words in fails("m.py:make")


def test_a_legacy_keras_model_is_told_apart() -> None:
    write("m.py", "class Old: ...\nOld.__module__ = 'tf_keras.src.engine.functional'\ndef make():\n    return Old()\n")
    text = fails("m.py:make", UnsupportedError)
    assert text == (
        "'m.py:make' is a legacy Keras 2 model: Keras 3 is needed; TF_USE_LEGACY_KERAS=1 and tf_keras models are not "
        "reached yet. Build the model with Keras 3 (unset TF_USE_LEGACY_KERAS)."
    )


def test_a_value_that_cannot_be_called_is_named() -> None:
    write("m.py", "size = 3\n")
    assert "a int: only" in fails("m.py:size")
    assert "a list is no model" in fails([1])


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".pt", ".pth", ".h5", ".safetensors", ".pb", ".ckpt"])
def test_other_files_are_not_reached_yet(suffix: str) -> None:
    write(f"model{suffix}", "")
    text = fails(f"model{suffix}", UnsupportedError)
    assert "this version compares torch modules and Keras 3 models" in text and "file.py:factory" in text
    assert "does not exist" in fails(f"other{suffix}")


def test_a_keras_file_that_is_no_archive_is_told() -> None:
    write("m.keras", "import os")
    assert "no .keras archive" in fails("m.keras")
    assert "Did you mean 'm.keras'?" in fails("n.keras")


def test_folders_and_urls() -> None:
    write("sm/saved_model.pb", "")
    assert "is a TensorFlow SavedModel" in fails("sm", UnsupportedError)
    write("code/m.py", NET)
    assert fails("code") == "'code' is a folder and no recorded trace: it has no trace.json. It has m.py."
    write("pack_b/__init__.py", "")
    assert fails("pack_b") == "'pack_b' is a package. Say pack_b:factory."
    assert "is a URL" in fails("http://host/model", UnsupportedError)


@pytest.mark.parametrize(
    "spec", ["", "  ", "nothing", ":make", "m.py:", "m.py:ma ke", "m.py:1x", "a b:make", "m.txt:make", ".:x"]
)
def test_what_is_no_spec_is_told(spec: str) -> None:
    assert any(words in fails(spec) for words in ("Say ", "does not exist", "is a folder"))


def test_modules_that_are_missing_or_lack_the_name() -> None:
    write("nets.py", NET)
    assert "there is no module 'netz'" in fails("netz:make") and "Did you mean 'nets.py'?" in fails("netz:make")
    assert fails("nets:mak") == "'nets' has no 'mak'. Did you mean 'make'?"
    assert "No module named 'nets.deep'" in fails("nets.deep:make")


def test_nothing_is_imported_when_no_spec_mentions_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(specs.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(specs.importlib, "import_module", asked.append)
    write("k.py", "import keras  # import torch\n'''from torch import x'''\n")
    write("t.py", "import os\nif True:\n    from torch import nn\n")
    specs.import_order(["k.py:make", None, "rec", "nothing.py:x", 3])
    assert asked == []
    specs.import_order(["k.py:make", "t:make"])
    assert asked == ["torch"]


@pytest.mark.parametrize(
    "text, is_meant",
    [
        ("import torch", True),
        ("import torch.nn as nn", True),
        ("  from torch import nn", True),
        ("import numpy, torch", True),
        ("import torchvision", False),
        ("from mine import torch_like", False),
        ("x = 'import torch'", False),
    ],
)
def test_mentions(text: str, is_meant: bool) -> None:
    assert usercode.mentions(text, "torch") is is_meant
