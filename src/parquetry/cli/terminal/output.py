"""What verbs print on stdout: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# A table only takes the width it needs; into a pipe or a file no cell is ever cut.
_PIPE_WIDTH = 100_000


def jsonable(value: Any) -> Any:
    """The value as JSON can say it without loss: decimals as strings, dates in ISO form, bytes as hex, NaN as 'NaN'.

    >>> jsonable([Decimal("1.10"), date(2026, 1, 2), b"\\x01", float("nan")])
    ['1.10', '2026-01-02', '01', 'NaN']
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(jsonable(k)): jsonable(v) for k, v in value.items()}
    if isinstance(value, Iterable):
        return [jsonable(v) for v in value]
    return str(value)


def print_json(document: Any) -> None:
    print(json.dumps(jsonable(document), ensure_ascii=False, allow_nan=False), flush=True)


def print_done(json: bool, document: Any, text: str) -> None:
    """What a verb did: one JSON document for programs, or a text for people."""
    if json:
        print_json(document)
    else:
        print(text)


def print_found(json: bool, document: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """What a verb found: one JSON document for programs, or a table for people."""
    if json:
        print_json(document)
    else:
        print_table(columns, rows)


def console(*, stderr: bool = False) -> Console:
    """A plain console: no markup in what users stored, and full width where nobody looks at a screen."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A compact table; columns of numbers are set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, name in enumerate(columns):
        numbers = all(_is_number(row[i]) for row in listed) and bool(listed)
        table.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in listed:
        table.add_row(*[Text(cell(value)) for value in row])
    return table


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


def cell(value: Any) -> str:
    """A value as people read it in a table.

    >>> cell(None), cell(True), cell(Decimal("1.50")), cell([1, 2])
    ('null', 'true', '1.50', '[1, 2]')
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return str(value)
    simple = jsonable(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    console().print(table_of(columns, rows))


def size(n: int) -> str:
    """Bytes for people.

    >>> size(512), size(123_456_789)
    ('512 B', '123.5 MB')
    """
    if n < 1000:
        return f"{n} B"
    amount = float(n)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def counted(n: int, thing: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {thing}" + ("" if n == 1 else "s")
