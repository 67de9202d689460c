"""Programs that call the command, run with one JVM: ``parquetry`` in a shell script is answered by this process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from parquetry.cli import main

_COMMAND = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect({address!r})
    s.sendall(json.dumps([os.getcwd(), sys.argv[1:]]).encode() + b"\\n")
    code, out, err = json.loads(s.makefile().read())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@contextlib.contextmanager
def _listening() -> Iterator[tuple[socket.socket, Path]]:
    """A socket, and a folder with a ``parquetry`` that asks there."""
    with tempfile.TemporaryDirectory(prefix="parquetry-") as folder, socket.socket(socket.AF_UNIX) as listener:
        command, address = Path(folder) / "parquetry", f"{folder}/socket"
        command.write_text(_COMMAND.format(python=sys.executable, address=address))
        command.chmod(0o700)
        listener.bind(address)
        listener.listen()
        listener.settimeout(0.05)
        yield listener, Path(folder)


def run_shell(program: str, folder: Path) -> None:
    """Runs a bash program in ``folder``; fails as it does."""
    with _listening() as (listener, commands), tempfile.TemporaryFile("w+") as told:
        path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", program],
            cwd=folder,
            env=os.environ | {"PATH": path},
            stdout=told,
            stderr=subprocess.STDOUT,
        )
        while shell.poll() is None:
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(10)
                    cwd, arguments = json.loads(connection.makefile().readline())
                    connection.sendall(json.dumps(_answer(cwd, arguments)).encode())
        told.seek(0)
        assert shell.returncode == 0, f"{program}\n{told.read()}"


def _answer(cwd: str, arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def run_python(program: str, folder: Path) -> None:
    """Runs a Python program in ``folder``, as a script of its own."""
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(program, "example", "exec"), {"__name__": "__main__"})
