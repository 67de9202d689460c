"""Verbs that ask: sql, explain, rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from parquetry.cli.terminal.options import Executor, Json, Off, Query, Splits, Trusted, opened, query_text
from parquetry.cli.terminal.output import console, counted, print_found, print_json, size, table_of

if TYPE_CHECKING:
    import pyarrow as pa

verbs = typer.Typer()


@verbs.command("sql")
def sql(
    ctx: typer.Context,
    query: Query,
    executor: Executor = "auto",
    off: Off = None,
    splits: Splits = None,
    trusted: Trusted = False,
    limit: Annotated[int, typer.Option(min=1, help="Print at most so many rows; --json prints all.")] = 100,
    wait: Annotated[
        int | None, typer.Option("--wait", metavar="T", help="First wait until timestamp T, of an ingest, is visible.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a query at the queryable timestamp."""
    text = query_text(query)
    with opened(ctx, trusted) as wh:
        if wait is not None:
            wh.wait(wait)
        result = wh.sql(text, executor=executor, off=off or (), splits=splits)
        table, stats = result.arrow(), result.stats
    if json:
        print_json(
            {
                "columns": table.column_names,
                "types": result.types,
                "rows": rows_of(table),
                "stats": stats,
            }
        )
        return
    out = console()
    out.print(table_of(table.column_names, rows_of(table.slice(0, limit))))
    if table.num_rows > limit:
        out.print(f"… {counted(table.num_rows - limit, 'more row')}", style="dim")
    out.print(stats_line(stats), style="dim")


def rows_of(table: pa.Table) -> list[list[Any]]:
    """The rows as lists: two columns of a query may have one name."""
    from parquetry.errors import QueryError

    try:
        columns = [c.to_pylist() for c in table.columns]
    except (OverflowError, ValueError) as e:  # Arrow's dates reach further than Python's
        raise QueryError(f"a value of the answer cannot be shown ({e}); cast it to a string") from e
    return [list(row) for row in zip(*columns, strict=True)]


def stats_line(stats: dict[str, Any]) -> str:
    """The main figures of a query on one line."""
    skipped = ", ".join(f"{n} by {proof}" for proof, n in stats["skipped_by"].items())
    return (
        f"{counted(stats['rows_out'], 'row')} in {stats['elapsed_ms']:.1f} ms on {stats['executor']} · "
        f"QT {stats['qt']} · "
        f"read {stats['blocks_read']} of {counted(stats['blocks_total'], 'block')}"
        + (f" (skipped {skipped})" if skipped else "")
        + f", {counted(stats['rows_scanned'], 'row')}, {size(stats['bytes_read'])}"
    )


@verbs.command("explain")
def explain(
    ctx: typer.Context,
    query: Query,
    executor: Executor = "auto",
    off: Off = None,
    splits: Splits = None,
    trusted: Trusted = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run it, and compare with the least that must be read.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what each step of a query decides and why, without running it."""
    text = query_text(query)
    with opened(ctx, trusted) as wh:
        found = wh.explain(text, executor=executor, off=off or (), analyze=analyze, splits=splits).to_json()
    steps = [(s["rule"], s["decided"], s["why"]) for s in found["steps"]]
    print_found(json, found, ("step", "decided", "why"), steps)


@verbs.command("rules")
def rules(json: Json = False) -> None:
    """List the rules that 'sql' and 'explain' can switch off with --off; answers stay the same."""
    from parquetry import Warehouse

    listed = [{"rule": name, "does": meaning} for name, meaning in Warehouse.rules().items()]
    print_found(json, listed, ("rule", "does"), [(r["rule"], r["does"]) for r in listed])
