"""What stands between a command and the user: exit codes, errors in one sentence, and quiet frameworks."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ambidex.errors import AmbidexError

#: 128 + signal number, as shells count
INTERRUPTED, TERMINATED = 130, 143
COULD_NOT_RUN = 2


def run(arguments: list[str]) -> int:
    """Run one command; every way it can end has its exit code and at most one sentence on stderr."""
    debug = "--debug" in arguments
    _settle(debug)
    try:
        with _terminable():
            from ambidex.cli.app import app

            code = int(app(arguments, prog_name="ambidex", standalone_mode=False) or 0)
            # typer turns Ctrl-C into this code without a word
            return _say("interrupted", code) if code == INTERRUPTED else code
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else COULD_NOT_RUN
    except BrokenPipeError:
        # the reader of our output is gone (`| head`): not our error, and nothing can be said any more
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT_RUN
    except BaseException as error:
        if debug:
            import traceback

            traceback.print_exc()
        return _say(*_sentence(error))


def _sentence(error: BaseException) -> tuple[str, int]:
    if isinstance(error, AmbidexError):
        return str(error), COULD_NOT_RUN
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # wrong usage, said by typer
        return _usage(error), COULD_NOT_RUN
    if type(error).__name__ == "Abort":
        return "interrupted", INTERRUPTED
    from ambidex.api import is_out_of_memory
    from ambidex.core.usercode import one_line

    if is_out_of_memory(error):
        return f"the memory of this machine is used up: {one_line(error, 160)}.", COULD_NOT_RUN
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use '{error.filename}': {error.strerror}.", COULD_NOT_RUN
    where = _own_frame(error)
    return (
        f"this is a bug in ambidex, not in your model: {type(error).__name__}{where}: {one_line(error)}. "
        "Run the same command with --debug for the traceback, and please report it."
    ), COULD_NOT_RUN


def _usage(error: Any) -> str:
    message = str(error.format_message()).strip().rstrip(".").replace("Value error, ", "")
    message = message[:1].lower() + message[1:] + ("" if message.endswith("?") else ".")
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", None) or "ambidex"
    return f"{message} See `{command} --help`."


def _own_frame(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}ambidex{os.sep}" in frame.filename]
    if not own:
        return ""
    file = own[-1].filename.rpartition(f"{os.sep}ambidex{os.sep}")[2]
    return f" at {file}:{own[-1].lineno}"


def _say(sentence: str, code: int) -> int:
    from ambidex.cli.words import printable

    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        print(f"ambidex: {printable(sentence)}", file=sys.stderr, flush=True)
    return code


def _settle(debug: bool) -> None:
    """Before any framework loads: what they print about themselves is no news to the user."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if debug else "3")
    if not debug:
        import warnings

        warnings.simplefilter("ignore")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends us the way Ctrl-C does, so that temporary files are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
