"""What systems and workloads have in common: a table to store, an answer, and what was stored.

Everything here and in the systems of the second environment runs without Parquetry installed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class View:
    """Sums and the number of rows per group of a table, under the names of the columns that are summed, and ``n``."""

    name: str
    groups: tuple[str, ...]
    sums: tuple[str, ...]

    def sql(self, table: str) -> str:
        columns = [*self.groups, *(f"sum({c}) AS {c}" for c in self.sums), "count(*) AS n"]
        return f"SELECT {', '.join(columns)} FROM {table} GROUP BY {', '.join(self.groups)}"


@dataclass(frozen=True)
class Table:
    """A table that every system stores by its own means, from the same Parquet file."""

    name: str
    source: str
    key: tuple[str, ...]
    filters: tuple[str, ...]
    """Columns that queries filter: what the systems cluster by and keep statistics on."""
    sort: tuple[str, ...]
    """The best single order for the queries, for systems that have one."""
    file_rows: int
    group_rows: int
    year_of: str = ""
    """The date column by whose year plain Spark partitions."""
    model: str = "append"
    """``upsert`` where the latest row of a key wins."""
    views: tuple[View, ...] = ()
    """The smallest first; all groups are key columns."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Table:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()}
        views = tuple(View(v["name"], tuple(v["groups"]), tuple(v["sums"])) for v in fields.pop("views"))
        return cls(**fields, views=views)

    def over_view(self, sql: str, name: str) -> str:
        """The query over the smallest view that has its columns; ``name`` is the view's, with {} for what tells it."""
        mentioned = set(re.findall(r"\w+", sql)) & set(self.key)
        view = next(v for v in self.views if mentioned <= set(v.groups))
        return over(sql, self.name, name.format(view.name)).replace("count(*)", "sum(n)")

    def files(self, rows: int) -> int:
        """How many files of the wished size so many rows make."""
        return max(1, round(rows / self.file_rows))


@dataclass(frozen=True)
class Answer:
    """A query's rows in one form for all systems, its time inside the system, and what was read where it can tell."""

    rows: list[list[Any]]
    ms: float
    bytes: int | None = None
    files: int | None = None
    plan_ms: float | None = None


@dataclass(frozen=True)
class Stored:
    """What a system keeps of a table after writing it."""

    bytes: int
    files: int | None = None
    row_groups: int | None = None
    ingest_s: float = 0.0
    rewrite_s: float = 0.0


class System(Protocol):
    """One engine with its storage. ``how`` names the way a table is laid out; a table may be stored several ways."""

    def versions(self) -> dict[str, str]: ...

    def load(self, table: Table, how: str) -> Stored:
        """Stores the whole table."""
        ...

    def create(self, table: Table, how: str) -> None:
        """Makes the table with the source's columns and no rows."""
        ...

    def append(self, table: Table, how: str, path: str) -> float:
        """Adds a file's rows; the seconds until queries see them."""
        ...

    def upsert(self, table: Table, how: str, path: str) -> float:
        """Puts a file's rows in the place of those with the same key; the seconds until queries see them."""
        ...

    def stored(self, table: Table, how: str) -> Stored: ...

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        """Runs a query whose FROM names ``table``. Only with ``measure`` it also tells what was read."""
        ...

    def close(self) -> None: ...


def over(sql: str, table: str, target: str) -> str:
    """The query with another name for its table.

    >>> over("SELECT n FROM t WHERE n > 1", "t", "'t.parquet'")
    "SELECT n FROM 't.parquet' WHERE n > 1"
    """
    return re.sub(rf"\bFROM {re.escape(table)}\b", lambda _: f"FROM {target}", sql)


def canonical(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows as JSON has them, equal wherever two systems mean the same.

    >>> canonical([(Decimal("1.50"), Decimal(3), date(2026, 1, 2), None)])
    [['1.5', 3, '2026-01-02', None]]
    """
    return [[_value(v) for v in row] for row in rows]


def _value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else format(value.normalize(), "f")
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) else float(f"{value:.9g}")
    return value.isoformat() if isinstance(value, date) else value


def arrow_rows(table: Any) -> list[list[Any]]:
    return canonical(zip(*[column.to_pylist() for column in table.columns], strict=True))


def parquet_files(folder: Path | str) -> list[Path]:
    return sorted(Path(folder).rglob("*.parquet"))


def stored_files(paths: Iterable[Path | str], ingest_s: float = 0.0, rewrite_s: float = 0.0) -> Stored:
    """Size, files and row groups of a table's Parquet files."""
    import pyarrow.parquet as pq

    found = [Path(str(p).removeprefix("file:")) for p in paths]
    groups = sum(pq.read_metadata(p).num_row_groups for p in found)
    return Stored(sum(p.stat().st_size for p in found), len(found), groups, ingest_s, rewrite_s)
