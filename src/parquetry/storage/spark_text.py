"""Names and values in the text of Spark's SQL.

Expressions go to Spark as text wherever there are many: each call of PySpark's functions asks the JVM several times,
and a small batch would spend more time on that than on its rows.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any


def quote(column: str) -> str:
    """A column's name."""
    return "`" + column.replace("`", "``") + "`"


def literal(value: Any) -> str:
    """A Spark SQL literal, whatever the session's time zone and escape settings are.

    >>> literal(date(1994, 1, 1)), literal(5), literal(Decimal("1.50"))
    ("DATE '1994-01-01'", '5L', '1.50BD')
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}L" if -(2**63) < value < 2**63 else f"{value}BD"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case str():
            plain = value.isascii() and value.isprintable() and "'" not in value and "\\" not in value
            return f"'{value}'" if plain else f"CAST(X'{value.encode().hex()}' AS STRING)"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if value.tzinfo is not None:
            return f"TIMESTAMP_MICROS({(value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}L)"
        case datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
    raise TypeError(f"no Spark literal for {type(value).__name__}")
