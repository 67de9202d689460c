"""Verbs that make and change things: init, create-table, drop-table, add-column, set."""

from __future__ import annotations

from typing import Annotated

import typer

from parquetry.cli.terminal.options import Json, Table, assignments, names, opened, setting_values
from parquetry.cli.terminal.output import print_done, print_found, print_json, print_table

verbs = typer.Typer()


@verbs.command("init")
def init(
    ctx: typer.Context,
    catalog: Annotated[
        str | None, typer.Option(metavar="URL", help="The catalog's database (postgresql://…); default: SQLite.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a warehouse. An existing one is left as it is."""
    from parquetry.errors import WarehouseError
    from parquetry.warehouse import connect

    try:
        with connect(ctx.obj, create=False):
            created = False
    except WarehouseError:
        # Missing or broken: the second call tells which.
        with connect(ctx.obj, catalog=catalog, create=True):
            created = True
    if catalog and not created:
        raise WarehouseError(f"'{ctx.obj}' is a warehouse already and keeps its catalog; name another folder with -w")
    said = f"made the warehouse '{ctx.obj}'" if created else f"'{ctx.obj}' is a warehouse already"
    print_done(json, {"warehouse": ctx.obj, "created": created}, said)


@verbs.command("create-table")
def create_table(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new table's name.")],
    key: Annotated[str, typer.Option(metavar="A,B", help="The key columns in order: the table is sorted by them.")],
    schema: Annotated[str | None, typer.Option(metavar="COLUMNS", help='Columns as "a int, b string".')] = None,
    like: Annotated[str | None, typer.Option(metavar="FILE", help="Take the columns of a data file.")] = None,
    model: Annotated[str, typer.Option(help="append, upsert or aggregate.")] = "append",
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=MERGE", help="How a column merges: sum, min, max, count, replace; repeatable."),
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that says which of two rows is later.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the table; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Make an empty table."""
    if (schema is None) == (like is None):
        raise typer.BadParameter("give the columns by either --schema or --like.")
    merges = assignments(value or [], "--value")
    changes = setting_values(settings or [])
    with opened(ctx) as wh:
        columns = schema
        if like is not None:
            from parquetry import schema_like

            columns = schema_like(like)
        keys = names(key)
        wh.create_table(name, columns, keys, model, merges, sequence=sequence, settings=changes)
        made = next(t for t in wh.tables() if t["table"].lower() == name.lower())
    if json:
        print_json(made)
    else:
        print(f"made the {model} table '{name}' with the key ({', '.join(keys)})")
        print_table(("column", "type"), made["columns"].items())


@verbs.command("drop-table")
def drop_table(ctx: typer.Context, name: Table, json: Json = False) -> None:
    """Remove a table. Its files go with the next vacuum."""
    with opened(ctx) as wh:
        wh.drop_table(name)
    print_done(json, {"table": name, "dropped": True}, f"dropped '{name}'")


@verbs.command("add-column")
def add_column(
    ctx: typer.Context,
    table: Table,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new column's name.")],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Its type, by Spark's names.")],
    merge: Annotated[str | None, typer.Option(help="How it merges, in an aggregate table.")] = None,
    json: Json = False,
) -> None:
    """Add a nullable column; rows stored before read as null."""
    with opened(ctx) as wh:
        wh.add_column(table, name, type, merge)
    print_done(json, {"table": table, "column": name, "type": type}, f"added the column '{name}' to '{table}'")


@verbs.command("set")
def set_settings(
    ctx: typer.Context,
    table: Table,
    changes: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Settings to change.")] = None,
    json: Json = False,
) -> None:
    """Change a table's settings; without changes, show them."""
    wanted = setting_values(changes or [])
    with opened(ctx) as wh:
        if wanted:
            wh.change_settings(table, **wanted)
        settings = wh.settings(table).to_json()
    print_found(json, {"table": table, "settings": settings}, ("setting", "value"), settings.items())
