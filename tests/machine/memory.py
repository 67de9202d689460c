"""The in-memory model of the random test: what a warehouse should answer, written as plainly as possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from parquetry.model.types import arrow_type

KEY = ("k", "s")
Row = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    label: str
    t: int
    rows: list[Row]
    given: pa.Table  # as it was handed to ingest


@dataclass
class MemoryTable:
    """Columns in order with their types, and all batches ever committed."""

    name: str
    model: str
    columns: dict[str, str]
    merges: dict[str, str] = field(default_factory=dict)
    sequence: str | None = None
    batches: list[Batch] = field(default_factory=list)

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {type_}" for name, type_ in self.columns.items())

    def batch_table(self, rows: list[Row]) -> pa.Table:
        """The rows as the frame that is ingested; columns that no row has are left out."""
        names = [n for n in self.columns if n in KEY or any(n in r for r in rows)]
        return pa.table({n: pa.array([r.get(n) for r in rows], arrow_type(self.columns[n])) for n in names})

    def commit(self, label: str, t: int, rows: list[Row], given: pa.Table) -> None:
        counts = [n for n, how in self.merges.items() if how == "count" and n not in given.column_names]
        self.batches.append(Batch(label, t, [{**r, **dict.fromkeys(counts, 1)} for r in rows], given))

    def batch_of(self, label: str) -> Batch:
        return next(b for b in self.batches if b.label == label)

    def labels(self, qt: int) -> list[str]:
        """Labels of the batches with rows that are visible at ``qt``."""
        return sorted(b.label for b in self.batches if b.t <= qt and b.rows)

    def content(self, qt: int) -> list[Row]:
        """The table's rows at ``qt``, every column present."""
        merged: dict[tuple[Any, ...], Row] = {}
        found = []
        for row in self._rows(qt):
            if self.model == "append":
                found.append(row)
                continue
            key = tuple(row[k] for k in KEY)
            before = merged.get(key)
            merged[key] = row if before is None else self._merge(before, row)
        return found if self.model == "append" else list(merged.values())

    def _rows(self, qt: int) -> Iterator[Row]:
        for batch in self.batches:
            if batch.t <= qt:
                for row in batch.rows:
                    yield {n: row.get(n) for n in self.columns}

    def _merge(self, old: Row, new: Row) -> Row:
        later = True
        if self.sequence is not None:
            before, after = old[self.sequence], new[self.sequence]
            later = before is None or (after is not None and after >= before)
        if self.model == "upsert":
            return new if later else old
        merged = dict(new)
        for name, how in self.merges.items():
            a, b = old[name], new[name]
            if how == "replace":
                merged[name] = b if later else a
            elif a is None or b is None:
                merged[name] = b if a is None else a
            else:
                merged[name] = a + b if how in ("sum", "count") else (min if how == "min" else max)(a, b)
        return merged
