"""Verbs about views and what the database promises: create-view, drop-view, views, suggest-views, profile."""

from __future__ import annotations

from typing import Annotated

import typer

from parquetry.cli.terminal.options import Json, Query, names, opened, query_text, setting_values
from parquetry.cli.terminal.output import print_done, print_found, print_json, print_table, size

verbs = typer.Typer()

View = Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")]


@verbs.command("create-view")
def create_view(
    ctx: typer.Context,
    name: View,
    query: Query,
    order: Annotated[
        str, typer.Option("--order", metavar="A,B", help="Order of the groups on disk; without it the query's.")
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the view; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a view: groups and aggregates of a table, kept up by maintain."""
    text = query_text(query)
    changes = setting_values(settings or [])
    with opened(ctx) as wh:
        wh.create_view(name, text, order=names(order), settings=changes)
        made = next(v for v in wh.views() if v["view"].lower() == name.lower())
    if json:
        print_json(made)
    else:
        print(f"made the view '{name}' over {', '.join(made['over'])}, ordered by ({', '.join(made['key'])})")
        print("filled by the next maintain" if made["waiting_deltas"] else "up to date: its tables are empty")


@verbs.command("drop-view")
def drop_view(ctx: typer.Context, name: View, json: Json = False) -> None:
    """Remove a view. Its files go with the next vacuum."""
    with opened(ctx) as wh:
        wh.drop_view(name)
    print_done(json, {"view": name, "dropped": True}, f"dropped '{name}'")


@verbs.command("views")
def views(ctx: typer.Context, json: Json = False) -> None:
    """List the views with their definitions, and how far each is filled."""
    with opened(ctx) as wh:
        found = wh.views()
    print_found(
        json,
        found,
        ("view", "over", "key", "rows", "size", "deltas", "state", "definition"),
        [
            (
                v["view"],
                ", ".join(v["over"]),
                ", ".join(v["key"]),
                f"{v['rows']:,}",
                size(v["bytes"]),
                v["deltas"],
                "ready" if v["ready"] else f"filling, {v['waiting_deltas']} deltas wait",
                v["sql"],
            )
            for v in found
        ],
    )


@verbs.command("suggest-views")
def suggest_views(
    ctx: typer.Context,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only over this table.")] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Suggest at most so many; else as the profile says, or 5.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make the suggested views and drop the idle ones.")] = False,
    json: Json = False,
) -> None:
    """Suggest views for the logged queries, with what each would save; and views to drop."""
    with opened(ctx) as wh:
        found = wh.suggest_views(table, most=most)
        if apply:
            for s in found.views:
                wh.create_view(s.name, s.sql)
            for name in found.drop:
                wh.drop_view(name)
    rows = [
        {
            "view": s.name,
            "sql": s.sql,
            "rows": s.rows,
            "queries": s.queries,
            "rows_read_before": s.rows_before,
            "rows_read_after": s.rows_after,
        }
        for s in found.views
    ]
    if json:
        told = {"queries": found.queries, "views": rows, "drop": list(found.drop), "refused": found.refused}
        print_json({**told, "applied": apply})
        return
    print_table(
        ("view", "rows", "queries", "rows read before", "after", "definition"),
        [(s.name, f"{s.rows:,}", s.queries, f"{s.rows_before:,}", f"{s.rows_after:,}", s.sql) for s in found.views],
    )
    for name in found.drop:
        print(f"{'dropped' if apply else 'to drop'}: {name}, which none of {found.queries} queries needs")
    for why, queries in found.refused.items():
        print(f"no view for {queries} of {found.queries} queries: {why}")
    if apply and found.views:
        print("filled by the next maintain")


@verbs.command("profile")
def profile(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="freshness, speed or cost.")] = None,
    targets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An explicit target; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """State what matters: freshness, speed or cost; without arguments show it and whether it is kept."""
    wanted = setting_values(targets or [])
    with opened(ctx) as wh:
        if name is not None or wanted:
            wh.set_profile(name, **wanted)
        stated = wh.profile
        told = wh.freshness()
    found = None if stated is None else {**stated.to_json(), "lag_s": told["lag_s"], "late": told["late"]}
    if json:
        print_json(found)
    elif found is None:
        print("no profile is stated; choose freshness, speed or cost")
    else:
        print_table(("target", "value"), found.items())
