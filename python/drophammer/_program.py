"""Where the program is, and how it is called."""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]
Event = Dict[str, Any]

# Colours and cursor movements of a terminal do not belong in the message of an exception.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A message that names every error of a suite is shorter than this many lines.
_KEPT = 200


class ProgramError(Exception):
    """The program refused its work or failed.

    Attributes:
        code: its exit code; ``drophammer --help`` lists them.
        message: what it printed, with cause and remedy.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class SuiteError(ProgramError):
    """The suite or an argument is wrong (exit code 2). The message names file, line and remedy."""


class MachineError(ProgramError):
    """This machine lacks something: a program, a privilege or an interface (exit code 3)."""


class ProgramNotFound(FileNotFoundError):
    """The ``drophammer`` program is not installed."""


class Ended(NamedTuple):
    """How the program ended: its exit code, its standard output, and the last lines of its standard error."""

    code: int
    out: str
    err: str


def program() -> Path:
    """Returns the path of the ``drophammer`` program.

    The environment variable ``DROPHAMMER`` comes first, then the program installed with this package, then ``PATH``.

    Raises:
        ProgramNotFound: there is none.
    """
    chosen = os.environ.get("DROPHAMMER")
    if chosen:
        if not os.path.isfile(chosen) or not os.access(chosen, os.X_OK):
            raise ProgramNotFound(f"DROPHAMMER is {chosen!r}, which is not a program; unset it, or set it to the program")
        return Path(chosen).resolve()
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        path = Path(sysconfig.get_path("scripts", scheme)) / "drophammer"
        if path.is_file() and os.access(path, os.X_OK):
            return path
    found = shutil.which("drophammer")
    if found:
        return Path(found)
    raise ProgramNotFound("there is no program `drophammer`; install the wheel, or set DROPHAMMER to the program's path")


def call(
    arguments: Sequence[str], *, show: bool = False, on_event: Optional[Callable[[Event], None]] = None
) -> Ended:
    """Runs the program to its end. With `show`, its progress also goes to this process's standard error.

    Each line of its standard output is an event if `on_event` is given. An exception, such as ``KeyboardInterrupt``,
    ends the program as Ctrl-C does: it keeps what was measured and cleans up first.

    Raises:
        SuiteError, MachineError: exit codes 2 and 3.
    """
    with subprocess.Popen(
        [str(program()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        # Ctrl-C reaches this process only, which then ends the program once.
        start_new_session=True,
    ) as child:
        errors = _Errors(child.stderr, show)
        try:
            out = _output(child, on_event)
        except BaseException:
            _end(child)
            raise
        finally:
            errors.join()
    if child.returncode in (2, 3):
        kind = SuiteError if child.returncode == 2 else MachineError
        raise kind(child.returncode, errors.text().strip() or out.strip())
    return Ended(child.returncode, out, errors.text())


class _Errors(threading.Thread):
    """Reads standard error while another thread reads standard output, so neither pipe can fill up."""

    def __init__(self, stream: Any, show: bool) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.show = show
        self.lines: Deque[str] = collections.deque(maxlen=_KEPT)
        self.start()

    def run(self) -> None:
        for line in self.stream:
            if self.show:
                print(line, end="", file=sys.stderr, flush=True)
            self.lines.append(_ESCAPES.sub("", line))

    def text(self) -> str:
        return "".join(self.lines)


def _output(child: "subprocess.Popen[str]", on_event: Optional[Callable[[Event], None]]) -> str:
    """Reads standard output to its end and returns it; with `on_event`, passes each line on instead."""
    assert child.stdout is not None
    lines: List[str] = []
    for line in child.stdout:
        if on_event is None:
            lines.append(line)
        else:
            on_event(json.loads(line))
    child.wait()
    return "".join(lines)


def _end(child: "subprocess.Popen[str]") -> None:
    """Ends the program as Ctrl-C does and waits until it has cleaned up; a second interrupt ends it immediately."""
    child.terminate()
    try:
        # The exception may have come in the middle of a line, whose rest is no event.
        _output(child, None)
    except BaseException:
        child.kill()
        raise


def version() -> str:
    """Returns the version of the program, such as ``0.1.0``."""
    return call(["--version"]).out.split()[1]


def check(suite: PathLike) -> None:
    """Checks a suite file; starts nothing.

    Raises:
        SuiteError: the suite has errors. The message names each with its line and a remedy.
    """
    call(["check", os.fspath(suite)])
