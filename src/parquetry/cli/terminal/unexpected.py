"""An error that nobody foresaw: its details go to a file, for a report; the user gets one line that names it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime

from parquetry import __version__

_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]+@")


def describe(error: BaseException, arguments: Sequence[str]) -> str:
    """One line on an unexpected error; the file that it names holds the rest, and only its owner may read it."""
    first = (str(error).strip().splitlines() or [""])[0]
    short = f"{type(error).__name__}: {first[:300]}" if first else type(error).__name__
    try:
        place = f"details are in '{_write(error, arguments)}'; please report it with them"
    except OSError as e:
        place = f"its details could not be written ({e.strerror or e}); please report it"
    return _PASSWORD.sub(r"\1***@", f"unexpected error ({short}); {place}")


def _write(error: BaseException, arguments: Sequence[str]) -> str:
    said = "".join(traceback.format_exception(error))
    text = (
        f"parquetry {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"{datetime.now(UTC).isoformat(timespec='seconds')}\n"
        f"parquetry {shlex.join(arguments)}\n\n{said}"
    )
    descriptor, path = tempfile.mkstemp(prefix="parquetry-error-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as f:
        f.write(_PASSWORD.sub(r"\1***@", text))
    return path


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the reader of our output has gone, as in ``parquetry … | head``; what is left to print goes nowhere."""
    if not isinstance(error, BrokenPipeError):
        return False
    # Else Python tells of the same again when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
