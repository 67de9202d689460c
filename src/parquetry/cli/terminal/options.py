"""Options and arguments that several verbs share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

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


def with_options(
    options: type[Any], read: Mapping[str, tuple[Any, Callable[[Any], Any]]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for each field of ``options`` that has a help, and calls it with an object of them.

    ``read`` has types and readers for the fields that are typed in differently from how they are kept.
    """
    hints = get_type_hints(options)
    shown = [f for f in fields(options) if "help" in f.metadata]

    def option(f: Field[Any]) -> Parameter:
        kind = read[f.name][0] if f.name in read else hints[f.name]
        said = typer.Option(f.default, help=f.metadata["help"])
        return Parameter(f.name, Parameter.KEYWORD_ONLY, default=said, annotation=kind)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            said = {f.name: given.pop(f.name) for f in shown}
            said |= {name: reader(said[name]) for name, (_, reader) in read.items() if said[name] is not None}
            command(**given, options=options(**said))

        own = [p for p in signature(command, eval_str=True).parameters.values() if p.name != "options"]
        run.__signature__ = Signature([*own, *map(option, shown)])  # type: ignore[attr-defined]
        run.__doc__ = command.__doc__
        return run

    return decorated


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
