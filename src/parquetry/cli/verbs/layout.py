"""Verbs for layouts and the workload they learn from: workload, relayout, layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parquetry import RelayoutOptions
from parquetry.cli.terminal.options import Json, Limit, SomeTable, Table, assignments, names, opened, with_options
from parquetry.cli.terminal.output import counted, print_done, print_found, print_json, size
from parquetry.cli.terminal.progress import shown
from parquetry.errors import StorageError

verbs = typer.Typer()
workload = typer.Typer(help="The queries that layouts are learned from.", no_args_is_help=True)
layout = typer.Typer(help="The present layout of a table.", no_args_is_help=True)
verbs.add_typer(workload, name="workload")
verbs.add_typer(layout, name="layout")


@workload.command("import")
def workload_import(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of SQL: ';'-separated, or one query per line.")],
    json: Json = False,
) -> None:
    """Add the queries of a file to the query log; broken ones are reported with their line."""
    with opened(ctx) as wh:
        done = wh.import_workload(file)
    if json:
        rejected = [{"line": r.line, "sql": r.sql, "why": r.why} for r in done.rejected]
        print_json({"imported": done.queries, "rejected": rejected})
        return
    for r in done.rejected:
        print(f"line {r.line}: {r.why}")
    print(f"{counted(done.queries, 'statement')} imported, {len(done.rejected)} rejected")


@workload.command("show")
def workload_show(ctx: typer.Context, table: SomeTable = None, limit: Limit = 20, json: Json = False) -> None:
    """What the logged queries filter, and what could not be understood."""
    with opened(ctx) as wh:
        rows = wh.queries(limit, table)
    document = [{"sql": r["sql"], "executor": r["executor"], "shape": r["shape"]} for r in rows]
    lines = [
        [s["table"], ", ".join(s["filters"]) or "no filter", ", ".join(s.get("opaque", [])), r["executor"]]
        for r in rows
        for s in r["shape"]
        if table is None or s["table"].lower() == table.lower()
    ]
    print_found(json, document, ("table", "filters", "not understood", "executor"), lines)


def _weights(text: str) -> dict[str, float]:
    try:
        return {column: float(weight) for column, weight in assignments(text.split(","), "--weights").items()}
    except ValueError as e:
        raise typer.BadParameter(f"--weights takes numbers, as a=3,b=0.5; {e}.") from e


@verbs.command("relayout")
@with_options(
    RelayoutOptions,
    {"columns": (str | None, names), "weights": (str | None, _weights), "delta": (float | None, float)},
)
def relayout(
    ctx: typer.Context,
    table: Table,
    learner: Annotated[
        str,
        typer.Argument(
            metavar="LEARNER",
            help="auto, paw, warp, qdtree, kdtree, range, robust, two_phase, zorder, hilbert or key.",
        ),
    ],
    workload: Annotated[Path | None, typer.Option(help="Learn from this file of SQL instead of the query log.")] = None,
    pays_back_within: Annotated[
        int, typer.Option(help="auto: rewrite only if that saves its cost within so many queries.")
    ] = 1_000,
    json: Json = False,
    *,
    options: RelayoutOptions,
) -> None:
    """Learn a layout and rewrite the table in it."""
    with opened(ctx) as wh, shown(f"relayout {table}") as work:
        done = wh.relayout(
            table,
            learner,
            workload=workload,
            options=options,
            pays_back_within=pays_back_within,
            phase=work.start,
            progress=work,
        )
    if json:
        shown_fields = ("table", "learner", "blocks", "rows", "extra_rows", "bytes_before", "bytes_after", "version")
        advised = ("applied", "reason", "predicted") if learner == "auto" else ()
        print_json({f: getattr(done, f) for f in (*shown_fields, *advised)})
        return
    if not done.applied:
        print(f"{done.table}: nothing was changed; {done.reason}")
        return
    if done.reason:
        print(f"{done.table}: {done.reason}")
    twice = f", {done.extra_rows:,} of them twice" if done.extra_rows else ""
    print(
        f"{done.table}: {done.rows:,} rows{twice} in {counted(done.blocks, 'block')} by {done.learner}, "
        f"{size(done.bytes_before)} -> {size(done.bytes_after)}"
    )


@layout.command("show")
def layout_show(ctx: typer.Context, table: Table, json: Json = False) -> None:
    """The learner, columns and number of blocks of a table's layout."""
    with opened(ctx) as wh:
        found = wh.layout(table)
    print_found(json, found, ("", ""), found.items())


@layout.command("draw")
def layout_draw(
    ctx: typer.Context,
    table: Table,
    out: Annotated[Path, typer.Option(help="The SVG file to write.")] = Path("layout.svg"),
    columns: Annotated[str | None, typer.Option(help="The two columns of the picture, comma-separated.")] = None,
    json: Json = False,
) -> None:
    """Write a picture of blocks and logged queries over two columns."""
    with opened(ctx) as wh:
        drawn = wh.draw_layout(table, names(columns) if columns else None)
    try:
        out.write_text(drawn, encoding="utf-8")
    except OSError as e:
        raise StorageError(f"cannot write '{out}': {e.strerror}; check the path and space") from e
    print_done(json, {"file": str(out), "bytes": len(drawn)}, f"wrote {out}")
