"""Verbs that show what there is: tables, deltas, blocks, freshness, history, queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import typer

from parquetry.cli.terminal.options import Json, Limit, SomeTable, Table, opened
from parquetry.cli.terminal.output import cell, console, counted, print_found, print_json, print_table, size

verbs = typer.Typer()


@verbs.command("tables")
def tables(ctx: typer.Context, json: Json = False) -> None:
    """List the tables."""
    with opened(ctx) as wh:
        found = wh.tables()
    print_found(
        json,
        found,
        ("table", "model", "key", "columns", "deltas", "rows", "size", "QT"),
        [
            (
                t["table"],
                t["model"],
                ", ".join(t["key"]),
                len(t["columns"]),
                t["deltas"],
                f"{t['rows']:,}",
                size(t["bytes"]),
                t["qt"],
            )
            for t in found
        ],
    )


@verbs.command("deltas")
def deltas(ctx: typer.Context, table: Table, json: Json = False) -> None:
    """List a table's deltas, oldest first."""
    with opened(ctx) as wh:
        found = wh.deltas(table)
    print_found(
        json,
        found,
        ("delta", "timestamps", "level", "rows", "size", "files", "visible"),
        [
            (
                d["delta"],
                f"[{d['t_lo']}, {d['t_hi']}]",
                d["level"],
                f"{d['rows']:,}",
                size(d["bytes"]),
                d["files"],
                d["visible"],
            )
            for d in found
        ],
    )


@verbs.command("blocks")
def blocks(ctx: typer.Context, table: Table, limit: Limit = 100, json: Json = False) -> None:
    """List a table's units of skipping with their sizes and ranges of the key."""
    with opened(ctx) as wh:
        found = wh.blocks(table)
    shown = found[:limit]
    print_found(
        json,
        {"total": len(found), "blocks": shown},
        ("delta", "block", "row group", "rows", "size", "key ranges"),
        [
            (b["delta"], b["block"], b["row_group"], f"{b['rows']:,}", size(b["bytes"]), _ranges(b["key_ranges"]))
            for b in shown
        ],
    )
    if len(found) > limit and not json:
        console().print(f"… {counted(len(found) - limit, 'more block')}; --limit shows more", style="dim")


def _ranges(ranges: dict[str, list[Any]]) -> str:
    return ", ".join(f"{column} {cell(low)} … {cell(high)}" for column, (low, high) in ranges.items())


@verbs.command("freshness")
def freshness(ctx: typer.Context, json: Json = False) -> None:
    """Show up to which timestamp all is visible, what is hidden, and what it waits for."""
    with opened(ctx) as wh:
        found = wh.freshness()
    if json:
        print_json(found)
        return
    print(freshness_line(found))
    names = ("table", "kind", "qt", "hidden_deltas", "hidden_rows", "waits_for", "progress")
    print_table([n.replace("_", " ") for n in names], [[t[n] for n in names] for t in found["tables"]])


def freshness_line(found: dict[str, Any]) -> str:
    lag = f"the oldest hidden batch waits for {found['lag_s']:.1f} s" if found["lag_s"] else "nothing is hidden"
    return f"QT {found['qt']} of timestamp {found['clock']}: {lag}"


@verbs.command("history")
def history(ctx: typer.Context, table: SomeTable = None, limit: Limit = 100, json: Json = False) -> None:
    """List commits, the newest first."""
    with opened(ctx) as wh:
        found = wh.history(table, limit)
    rows = [(h["version"], h["at"], h["t"], h["kind"], _details(h["detail"])) for h in found]
    print_found(json, found, ("version", "at", "timestamp", "kind", "detail"), rows)


def _details(detail: dict[str, Any]) -> str:
    return ", ".join(f"{name} {cell(value)}" for name, value in detail.items())


@verbs.command("queries")
def queries(ctx: typer.Context, table: SomeTable = None, limit: Limit = 20, json: Json = False) -> None:
    """List logged queries, the newest first, with what each read."""
    with opened(ctx) as wh:
        found = wh.queries(limit, table)
    print_found(
        json,
        [{**q, "at": _iso(q["at"])} for q in found],
        ("at", "executor", "ms", "rows", "read", "query"),
        [
            (
                _iso(q["at"]),
                q["executor"],
                round(q["elapsed_ms"], 1),
                q["rows_out"],
                size(q["bytes_read"] or 0),
                " ".join(q["sql"].split()),
            )
            for q in found
        ],
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
