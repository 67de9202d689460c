"""The rows that come into a write task: counted, hashed, and given on in pieces that are sorted and merged."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.model.keys import encode_keys
from parquetry.model.layout import EXTRA_BASE
from parquetry.model.schema import TableSchema
from parquetry.storage.merge import BLOCK, merge_sql, quote

DIGEST = "__digest"
_MERGE_ROWS = 262_144  # rows merged at a time: a few row groups, so memory stays bounded


@dataclass
class Counted:
    """Counts and hashes incoming rows, whatever their order: the batch's digest for its label.

    Copies for extra blocks are not counted. They come behind all other rows, and are dropped if those were few.
    """

    batches: Iterator[pa.RecordBatch]
    extra_from: int
    rows: int = 0
    digest: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            if batch.num_rows == 0:
                continue
            own = batch.num_rows
            if BLOCK in batch.schema.names:
                own = int(np.searchsorted(batch.column(BLOCK).to_numpy(), EXTRA_BASE))
            self.rows += own
            if self.rows < self.extra_from:
                batch = batch.slice(0, own)
                if own == 0:
                    continue
            if DIGEST in batch.schema.names:
                hashes = batch.column(DIGEST).to_numpy(zero_copy_only=False)[:own].view(np.uint64)
                total = (self.digest + int(hashes.sum(dtype=np.uint64))) % (1 << 64)
                self.digest = total - (1 << 64) if total >= 1 << 63 else total
                batch = batch.drop_columns([DIGEST])
            yield batch


def in_pieces(
    batches: Iterable[pa.RecordBatch], schema: TableSchema, sorted_by: int | None = None
) -> Iterator[pa.Table]:
    """The run in pieces of some row groups, sorted and, for keyed tables, with equal keys merged.

    Rows sorted by a part of the key only are sorted by the rest inside each of its values (NA-32). Rows sorted by
    none of it are merged all together: they must fit into memory.
    """
    if not schema.keyed:
        for batch in batches:
            yield pa.Table.from_batches([batch])
        return
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    order = ", ".join([quote(BLOCK), *(f"{quote(k)} NULLS FIRST" for k in schema.key)])
    statement = f"SELECT * FROM ({merge_sql(schema, 'piece', carried=True)}) ORDER BY {order}"
    waiting: list[pa.RecordBatch] = []
    count = 0
    carry: pa.Table | None = None  # the merged last keys of the piece before: more of their rows may follow
    prefix = [BLOCK, *schema.key[:sorted_by]]
    piece_rows = sys.maxsize if sorted_by == 0 else _MERGE_ROWS
    given = b""  # the last prefix that was given out

    def merged() -> pa.Table:
        parts = [pa.Table.from_batches(waiting)] if waiting else []
        if carry is not None:
            parts.insert(0, carry.cast(parts[0].schema) if parts else carry)
        connection.register("piece", pa.concat_tables(parts))
        return connection.sql(statement).to_arrow_table()

    for batch in batches:
        waiting.append(_with_block(batch))
        count += batch.num_rows
        if count >= piece_rows:
            table = merged()
            done = table.num_rows - _last_alike(table, prefix if sorted_by is not None else ())
            carry = table.slice(done).select(waiting[0].schema.names)
            waiting, count = [], 0
            if done:
                if sorted_by is not None:
                    given = _checked(table, done, schema.key[:sorted_by], given)
                yield table.slice(0, done)
    if waiting or carry is not None:
        yield merged()
    connection.close()


def _checked(table: pa.Table, done: int, prefix: Sequence[str], given: bytes) -> bytes:
    """The prefix of row ``done - 1``, given out next: rows that come in another order must not make a wrong run."""
    first, last = (encode_keys([table.slice(i, 1).column(n) for n in prefix])[0].as_py() for i in (0, done - 1))
    if first <= given:
        raise AssertionError("the rows of a run came out of order")
    return bytes(last)


def _last_alike(table: pa.Table, prefix: Sequence[str]) -> int:
    """How many rows at the end have the last row's values of ``prefix``; without one, the last row alone."""
    alike = np.ones(table.num_rows, bool)
    for name in prefix:
        column, last = table.column(name), table.column(name)[table.num_rows - 1]
        same = pc.equal(column, last) if last.is_valid else pc.is_null(column)
        alike &= np.asarray(same.combine_chunks().fill_null(False))
    return max(1, int(alike.sum())) if prefix else 1


def _with_block(batch: pa.RecordBatch) -> pa.RecordBatch:
    if BLOCK in batch.schema.names:
        return batch
    return batch.append_column(BLOCK, pa.array(np.zeros(batch.num_rows, np.int32)))
