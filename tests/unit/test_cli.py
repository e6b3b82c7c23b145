"""The command line without a framework: exit codes, where things are printed, and one sentence for every failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ambidex import api
from ambidex.cli import guard, words
from ambidex.cli.progress import StepProgress
from ambidex.core.report import Coverage, Finding, Report, Where, WholeModel
from ambidex.core.trace import Trace
from ambidex.errors import InputError, RunError


def report(verdict: Any = "equal") -> Report:
    findings = []
    if verdict == "different":
        where = Where(reference="a", candidate="b", file="m.py", line=3)
        findings = [Finding(code="AMB101", title="epsilon", stage="forward", where=where, message="eps", proven=True)]
    whole = WholeModel(max_abs=0.0, max_rel=0.0, floor_ratio=0.0)
    return Report(verdict=verdict, whole_model=whole, coverage=Coverage(matched=1), findings=findings)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What a stand-in for the engine answers or raises, and what it was called with."""
    state: dict[str, Any] = {"answer": report(), "calls": []}

    def verb(*args: Any, **options: Any) -> Any:
        state["calls"].append((args, options))
        print("a print in the model")
        if isinstance(state["answer"], BaseException):
            raise state["answer"]
        return state["answer"]

    monkeypatch.setattr(api, "compare", verb)
    monkeypatch.setattr(api, "record", verb)
    monkeypatch.chdir(tmp_path)
    return state


@pytest.fixture
def ambidex(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = guard.run(list(arguments))
        out, err = capfd.readouterr()
        return code, out, err

    return call


# ---------------------------------------------------------------------------------------------------- exit codes
@pytest.mark.parametrize("verdict, code", [("equal", 0), ("different", 1), ("undecided", 2), ("not_reproducible", 3)])
def test_the_verdict_is_the_exit_code(answers: Any, ambidex: Any, verdict: str, code: int) -> None:
    answers["answer"] = report(verdict)
    assert ambidex("compare", "a", "b")[0] == code


def test_options_reach_the_engine(answers: Any, ambidex: Any) -> None:
    options = ["--inputs", "x.npz", "--weights", "keep", "--map", "m.toml", "--mode", "train", "--trust"]
    assert ambidex("compare", "a", "b", *options)[0] == 0
    (args, given), *_ = answers["calls"]
    assert args == ("a", "b") and callable(given.pop("progress"))
    assert given == {
        "inputs": "x.npz", "signature": None, "weights": "keep", "map": "m.toml", "mode": "train", "trust": True,
        "training": None, "targets": None, "stages": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["compare"], "ambidex: missing argument 'REF'. See `ambidex compare --help`.\n"),
        (["compare", "a", "b", "c"], "ambidex: got unexpected extra argument(s) (c). See `ambidex compare --help`.\n"),
        (["compare", "a", "b", "--weights", "x"], "ambidex: invalid value for '--weights': 'x' is not one of"),
        (["compar"], "ambidex: no such command 'compar'. Did you mean 'compare'? See `ambidex --help`.\n"),
        (["compare", "a", "b", "--nothing"], "ambidex: no such option: --nothing"),
        (["record", "a"], "ambidex: say where the run goes"),
    ],
)
def test_wrong_usage_is_one_sentence_and_code_2(
    answers: Any, ambidex: Any, arguments: list[str], sentence: str
) -> None:
    code, out, err = ambidex(*arguments)
    assert code == 2 and out == "" and err.startswith(sentence) and err.count("\n") == 1


@pytest.mark.parametrize(
    "error, sentence, code",
    [
        (InputError("x", "y", "Do z"), "ambidex: x: y. Do z.\n", 2),
        (RunError("it broke"), "ambidex: it broke.\n", 2),
        (KeyError("k"), "ambidex: this is a bug in ambidex, not in your model: KeyError", 2),
        (MemoryError(), "ambidex: the memory of this machine is used up: MemoryError.\n", 2),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "ambidex: the memory of this", 2),
        (PermissionError(13, "Permission denied", "/x"), "ambidex: cannot use '/x': Permission denied.\n", 2),
        (RecursionError("deep"), "ambidex: this is a bug", 2),
        (KeyboardInterrupt(), "ambidex: interrupted\n", 130),
        (SystemExit(7), "", 7),
    ],
)
def test_failures_are_one_sentence(answers: Any, ambidex: Any, error: BaseException, sentence: str, code: int) -> None:
    answers["answer"] = error
    got, out, err = ambidex("compare", "a", "b")
    err = err.replace("a print in the model\n", "")
    assert got == code and out == "" and err.startswith(sentence) and err.count("\n") == bool(sentence)
    assert "Traceback" not in err


def test_debug_shows_the_traceback_and_the_sentence(answers: Any, ambidex: Any) -> None:
    answers["answer"] = InputError("x")
    code, _, err = ambidex("compare", "a", "b", "--debug")
    assert code == 2 and "Traceback" in err and err.endswith("ambidex: x.\n")


def test_control_characters_do_not_reach_the_terminal(answers: Any, ambidex: Any) -> None:
    answers["answer"] = InputError("bad\x1b[2Jname")
    assert "\x1b" not in ambidex("compare", "a", "b")[2]


# ---------------------------------------------------------------------------------------------------- results
def test_json_on_stdout_is_json_alone(answers: Any, ambidex: Any) -> None:
    answers["answer"] = report("different")
    code, out, err = ambidex("compare", "a", "b", "--json", "-")
    assert code == 1 and json.loads(out)["verdict"] == "different" and "a print in the model" in err


def test_files_are_written_and_named(answers: Any, ambidex: Any, tmp_path: Path) -> None:
    code, out, _ = ambidex("compare", "a", "b", "--json", "r.json", "--html", "r.html")
    assert code == 0 and "r.html" in out and len(out.splitlines()) <= 10
    assert json.loads((tmp_path / "r.json").read_text())["format"] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json"]


@pytest.mark.parametrize(
    "option, value, words_",
    [
        ("--json", "none/r.json", "there is no folder 'none'"),
        ("--html", ".", "it is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_run(
    answers: Any, ambidex: Any, option: str, value: str, words_: str
) -> None:
    code, _, err = ambidex("compare", "a", "b", option, value)
    assert code == 2 and words_ in err and answers["calls"] == []


def test_two_results_in_one_file_are_refused(answers: Any, ambidex: Any) -> None:
    assert "two results" in ambidex("compare", "a", "b", "--json", "r", "--html", "./r")[2]


def test_stderr_is_as_before_after_a_run(answers: Any, ambidex: Any) -> None:
    before = sys.stderr
    ambidex("compare", "a", "b")
    assert sys.stderr is before
    os.write(2, b"still there\n")


def test_what_native_code_logs_is_quiet_unless_debug(capfd: pytest.CaptureFixture[str]) -> None:
    for debug in (False, True):
        with words.foreign_code(debug):
            os.write(2, b"native noise\n")
            print("said by the model")
        out, err = capfd.readouterr()
        assert out == "" and "said by the model" in err and ("native noise" in err) is debug


# ---------------------------------------------------------------------------------------------------- record
def test_record_writes_a_folder(answers: Any, ambidex: Any, tmp_path: Path) -> None:
    answers["answer"] = Trace("torch")
    code, out, _ = ambidex("record", "m.py:make", "--out", "rec", "--inputs", "x.npz", "--side", "candidate")
    assert code == 0 and "recorded 0 calls of 0 layers in rec" in out
    assert sorted(p.name for p in (tmp_path / "rec").iterdir()) == ["arrays.safetensors", "trace.json"]
    assert answers["calls"][0][1]["side"] == "candidate"
    code, out, _ = ambidex("record", "m.py:make", "--out", "rec", "--json", "-")
    assert code == 0 and json.loads(out)["framework"] == "torch"


def test_record_does_not_run_when_the_place_is_taken(answers: Any, ambidex: Any, tmp_path: Path) -> None:
    (tmp_path / "rec").write_text("mine")
    code, _, err = ambidex("record", "m.py:make", "--out", "rec")
    assert code == 2 and "something that is no trace" in err and answers["calls"] == []


# ---------------------------------------------------------------------------------------------------- report
def save(name: str, verdict: str) -> str:
    from ambidex.report import json_

    Path(name).write_text(json_.dumps(report(verdict)))
    return name


def test_reports_are_shown_again(answers: Any, ambidex: Any) -> None:
    first, second = save("a.json", "equal"), save("b.json", "different")
    code, out, _ = ambidex("report", first, second)
    assert code == 1 and "a.json" in out and "b.json" in out
    code, out, _ = ambidex("report", second, "--html", "b.html", "--json", "-")
    assert code == 1 and json.loads(out)["verdict"] == "different" and "<html" in Path("b.html").read_text()


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"{", "'r.json': the report is not JSON"),
        (b'{"format": 9}', "format 9"),
        (b"\xff", "no UTF-8 text"),
        (b"[" * 10**5, "not JSON"),
    ],
)
def test_damaged_reports_are_told(answers: Any, ambidex: Any, content: bytes, sentence: str) -> None:
    Path("r.json").write_bytes(content)
    code, _, err = ambidex("report", "r.json")
    assert code == 2 and sentence in err and err.count("\n") == 1
    assert "does not exist" in ambidex("report", "x.json")[2]


def test_several_reports_do_not_go_into_one_file(answers: Any, ambidex: Any) -> None:
    code, _, err = ambidex("report", save("a.json", "equal"), save("b.json", "equal"), "--html", "x.html")
    assert code == 2 and "2 reports cannot go into one file" in err


# ---------------------------------------------------------------------------------------------------- explain, check
def test_explain_shows_a_page_by_code_number_and_name(ambidex: Any) -> None:
    from ambidex import rules

    rule = rules.all_rules()[0]
    pages = {ambidex("explain", name)[:2] for name in (rule.code, rule.code.lower(), rule.code[3:], rule.name)}
    ((code, text),) = pages
    assert code == 0 and rule.code in text and rule.title in text
    assert api.explain(rule.code).strip() == text.strip()


def test_explain_lists_every_rule(ambidex: Any) -> None:
    from ambidex import rules

    code, out, _ = ambidex("explain")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == sorted(r.code for r in rules.all_rules())
    _, out, _ = ambidex("explain", "--json", "-")
    assert len(json.loads(out)["rules"]) == len(rules.all_rules())


@pytest.mark.parametrize("code", ["AMB999", "AMB10x", "nothing like it", "", "\x1b"])
def test_explain_of_an_unknown_code_is_told(ambidex: Any, code: str) -> None:
    got, out, err = ambidex("explain", code)
    assert got == 2 and out == "" and "there is no rule" in err and "List all with `ambidex explain`" in err


def test_explain_suggests_the_nearest(ambidex: Any) -> None:
    from ambidex import rules

    rule = next(r for r in rules.all_rules() if r.code != "AMB100")
    assert rule.code in ambidex("explain", rule.name[:-1] + "z")[2]


def test_check_prints_a_table_or_json(ambidex: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    code, out, _ = ambidex("check")
    assert code == 0 and "numpy" in out and "python" in out
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    code, out, _ = ambidex("check", "--json", "-")
    read = json.loads(out)
    assert code == 1 and read["format"] == 1 and read["problems"][0]["fault"] is True
    assert "FAULT TF_USE_LEGACY_KERAS is set" in ambidex("check")[1]


# ---------------------------------------------------------------------------------------------------- progress
class Terminal:
    """A stderr that says it is a terminal and keeps what is written."""

    encoding, errors = "utf-8", "strict"

    def __init__(self, is_terminal: bool) -> None:
        self.text, self.is_terminal = "", is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...


@pytest.mark.parametrize("is_terminal, patience, shows", [(True, 0.05, True), (True, 60, False), (False, 0.05, False)])
def test_progress_is_for_long_runs_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, patience: float, shows: bool
) -> None:
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    with StepProgress(patience) as progress:
        progress("align layers", 0.5)
        time.sleep(0.3)
        progress("measure", 2.0)
    assert ("align layers" in terminal.text and "measure" in terminal.text) is shows


# ---------------------------------------------------------------------------------------------------- processes
SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs this in the background has it ignored
from ambidex.cli import main
from ambidex import api
from ambidex.core import tracefile
from ambidex.core.trace import Trace
api.record = lambda *a, **k: Trace("torch")
def slow(arrays, path):
    open(path, "w").write("half")
    print("ready", flush=True)
    time.sleep(30)
import safetensors.numpy
safetensors.numpy.save_file = slow
main(["record", "x", "--out", "rec"])
"""


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_record_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()  # what runs inside prints to stderr
    assert line == "ready\n"
    assert [p.suffix for p in tmp_path.iterdir()] == [".tmp"]
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code and list(tmp_path.iterdir()) == [] and "Traceback" not in err


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m ambidex explain | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("AMB") and done.stderr == ""


def test_the_command_and_the_module_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "ambidex", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("ambidex ")
