"""Options and arguments that several verbs share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from parquetry.warehouse import Warehouse

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table's name.")]
SomeTable = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only of this table.")]
Limit = Annotated[int, typer.Option(min=1, help="Show at most so many.")]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="Spark SQL; '-' reads it from standard input.")]
Executor = Annotated[str, typer.Option(help="Who runs it: auto, local or spark.")]
Off = Annotated[list[str] | None, typer.Option(metavar="RULE", help="Switch a rule off (see 'rules'); repeatable.")]
Trusted = Annotated[
    bool, typer.Option("--trusted", help="Allow functions that run code or read files, and other relations.")
]
Splits = Annotated[int | None, typer.Option("--splits", min=1, help="Ask for so many scan workers on Spark.")]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def opened(ctx: typer.Context, trusted: bool = False) -> Warehouse:
    """The warehouse that the global options name; it must be there."""
    from parquetry.warehouse import connect

    return connect(ctx.obj, create=False, trusted=trusted)


def query_text(query: str) -> str:
    if query != "-":
        return query
    return typer.get_text_stream("stdin").read()


def names(text: str) -> list[str]:
    """Names separated by commas.

    >>> names("day, shop")
    ['day', 'shop']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def assignments(texts: Iterable[str], what: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a mapping.

    >>> assignments(["revenue=sum"], "--value")
    {'revenue': 'sum'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise typer.BadParameter(f"{what} is written name=value, not '{text}'.")
        found[name.strip()] = value.strip()
    return found


def setting_values(texts: Iterable[str]) -> dict[str, Any]:
    """Settings as typed: whole numbers become numbers; the settings themselves check the rest."""
    return {name: _number_or_text(value) for name, value in assignments(texts, "a setting").items()}


def _number_or_text(value: str) -> int | str:
    try:
        return int(value)
    except ValueError:
        return value


def seconds(text: str) -> float:
    """A duration in seconds.

    >>> seconds("90"), seconds("1.5h"), seconds("1d")
    (90.0, 5400.0, 86400.0)
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise typer.BadParameter(f"'{text}' is no duration; write seconds, or a number with s, m, h or d.")
    return float(found[1]) * _SECONDS[found[2]]
