"""Values that rows reach through a key, as they were when a layout was learned: a frozen map from keys to values.

A layout may cut on such a column as on a row's own: the block of a row then follows from the row and the map alone.
What the other table says later changes nothing, so skipping stays right; only its gain may fade.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.model.predicate import IsNull, OneOf, Or, Predicate
from parquetry.model.through import steps_of

MOST_KEYS = 1 << 21


@dataclass(frozen=True)
class Reached:
    """What the column ``name`` stands for: ``values`` by ``keys``, which ascend; null for every other key."""

    name: str
    keys: pa.Array
    values: pa.Array

    @classmethod
    def of(cls, name: str, keys: pa.Array, values: pa.Array) -> Reached:
        """Of a key that comes again, as it may in a table of facts, the last value counts."""
        codes, order = np.unique(_codes(keys)[::-1], return_index=True)
        return cls(name, pa.array(codes), values.take(pa.array(len(keys) - 1 - order)))

    @property
    def own(self) -> str:
        """The table's own column, which holds the keys."""
        return steps_of(self.name)[0]

    def of_keys(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The value that each of these keys leads to."""
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        codes = _codes(keys.fill_null(0) if keys.null_count else keys)
        if not len(self.keys):
            return pa.nulls(len(keys), self.values.type)
        at = np.minimum(np.searchsorted(self._known, codes), len(self._known) - 1)
        missing = self._known[at] != codes
        if keys.null_count:
            missing |= np.asarray(keys.is_null())
        return self.values.take(pa.array(at, mask=missing))

    def holds(self, keys: pa.Array) -> Predicate:
        """What the column satisfies in every row that has one of these keys."""
        found = self.of_keys(keys).unique()
        known = OneOf(self.name, frozenset(found.drop_null().to_pylist()))
        return Or((known, IsNull(self.name))) if found.null_count else known

    @cached_property
    def _known(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.asarray(self.keys)

    def to_json(self) -> dict[str, Any]:
        batch = pa.record_batch({"keys": self.keys, "values": self.values})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_batch(batch)
        return {"name": self.name, "map": base64.b64encode(sink.getvalue()).decode()}

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> Reached:
        with pa.ipc.open_stream(base64.b64decode(d["map"])) as stream:
            (batch,) = list(stream)
        return cls(d["name"], batch["keys"], batch["values"])


def with_reached(rows: pa.Table, reached: Iterable[Reached]) -> pa.Table:
    """The rows with a column for each."""
    for r in reached:
        rows = rows if r.name in rows.column_names else rows.append_column(r.name, r.of_keys(rows.column(r.own)))
    return rows


def can_be_key(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))


def _codes(keys: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(keys.view(pa.int32()) if pa.types.is_date32(keys.type) else keys).astype(np.int64)
