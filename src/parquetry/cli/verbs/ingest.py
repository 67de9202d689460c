"""The verb that takes data in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from parquetry.cli.terminal.options import Json, Table, opened
from parquetry.cli.terminal.output import counted, print_json
from parquetry.cli.terminal.progress import shown

verbs = typer.Typer()


@verbs.command("ingest")
def ingest(
    ctx: typer.Context,
    table: Table,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Parquet, CSV or JSON files, or folders.")],
    label: Annotated[
        str | None, typer.Option(help="The batch's name: the same label twice changes nothing the second time.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="How many tasks sort and write.")] = None,
    executor: Annotated[
        str, typer.Option(help="'spark' starts Spark for a small batch too, which is else written without it.")
    ] = "auto",
    json: Json = False,
) -> None:
    """Commit files as one batch: all of it or nothing. Queries see it after 'maintain'."""
    with opened(ctx) as wh, shown(f"ingest into {table}") as work:
        done = wh.ingest(table, paths, label, tasks=tasks, executor=executor, progress=work)
    if json:
        print_json(asdict(done))
    elif done.repeated:
        print(f"label '{done.label}' was ingested before (timestamp {done.t}); nothing changed")
    else:
        print(f"{counted(done.rows, 'row')} into '{done.table}' at timestamp {done.t}, label '{done.label}'")
