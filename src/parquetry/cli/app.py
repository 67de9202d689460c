"""The command's frame: global options, the verbs, and how errors become one line and an exit code."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from parquetry import __version__
from parquetry.cli.verbs import advise, define, demo, ingest, layout, maintain, query, show, views
from parquetry.errors import ParquetryError

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

# typer brings its own click and gives only this child of its usage errors a public name.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="parquetry",
    help="A warehouse layer for Spark: plain Parquet files, metadata in SQL, one timestamp up to which all is visible.",
    epilog="Every verb takes --json. Exit codes: 0 done, 1 an error you can mend, 2 wrong usage.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (define, ingest, maintain, query, views, layout, advise, show, demo):
    app.add_typer(group.verbs)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"parquetry {__version__}")
        raise typer.Exit()


@app.callback()
def parquetry(
    ctx: typer.Context,
    warehouse: Annotated[
        str, typer.Option("-w", "--warehouse", envvar="PARQUETRY_WAREHOUSE", help="The warehouse's folder.")
    ] = "warehouse",
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    ctx.obj = warehouse


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (by default the process's own) and gives its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    as_json = "--json" in given
    _quiet()
    try:
        code = typer.main.get_command(app)(given, prog_name="parquetry", standalone_mode=False)
        sys.stdout.flush()
    except ParquetryError as e:
        return _report(FAILED, type(e).__name__, str(e), as_json)
    except _UsageError as e:
        verb = e.ctx.command_path if e.ctx else "parquetry"
        said = e.format_message().strip().splitlines() or ["a verb is missing"]
        wrong = "a verb is missing" if said[0].startswith("Usage:") else said[0].rstrip(". ")
        return _report(WRONG_USAGE, "Usage", f"{wrong}; see '{verb} --help'", as_json)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as e:
        from parquetry.cli.terminal.unexpected import describe, is_closed_pipe

        if is_closed_pipe(e):
            return FAILED
        return _report(FAILED, "Unexpected", describe(e, given), as_json)
    if code == INTERRUPTED:
        return _report(INTERRUPTED, "Interrupted", "interrupted", as_json)
    return code if isinstance(code, int) else DONE


def _quiet() -> None:
    """Nothing is printed but what the verbs and this frame print, and all of that can be printed."""
    # Interrupted in a call to the JVM, py4j logs a traceback of what is reported on one line.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn their callers, not our users
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report(code: int, kind: str, message: str, as_json: bool) -> int:
    """The error on one line of stderr; for programs also as the JSON document they wait for."""
    from parquetry.cli.terminal.output import print_json

    line = " ".join(message.split())
    print(f"parquetry: {line}", file=sys.stderr)
    if as_json:
        print_json({"error": line, "kind": kind})
    return code
