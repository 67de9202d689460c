"""Single column values: their order, which is Spark's, and their form in JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from parquetry.errors import SchemaError


def order_key(value: Any) -> tuple[int, Any]:
    """Sorts as Spark does: NaN is the largest number and equals itself.

    >>> sorted([float("nan"), 1.0, float("inf")], key=order_key)
    [1.0, inf, nan]
    """
    if isinstance(value, float) and value != value:
        return (1, 0)
    return (0, value)


def value_to_json(value: Any) -> Any:
    """A form that JSON keeps, with the type wherever JSON has none of its own.

    >>> value_to_json(date(1994, 1, 1)), value_to_json(7)
    ({'date': '1994-01-01'}, 7)
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, datetime):
        kind = "timestamp_ntz" if value.tzinfo is None else "timestamp"
        plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return {kind: plain.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    raise SchemaError(f"a layout cannot hold a value of type {type(value).__name__}")


def value_from_json(encoded: Any) -> Any:
    """The inverse of :func:`value_to_json`."""
    if not isinstance(encoded, dict):
        return encoded
    (kind, text), *more = encoded.items()
    if not more:
        match kind:
            case "float":
                return float(text)
            case "decimal":
                return Decimal(text)
            case "bytes":
                return bytes.fromhex(text)
            case "timestamp":
                return datetime.fromisoformat(text).replace(tzinfo=UTC)
            case "timestamp_ntz":
                return datetime.fromisoformat(text)
            case "date":
                return date.fromisoformat(text)
    raise SchemaError(f"a layout holds a value of unknown kind '{kind}'; it was written by a newer release")
