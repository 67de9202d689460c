"""The writer's merge of rows that come sorted by a part of the key only."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.model.schema import Column, TableSchema
from parquetry.storage import pieces
from parquetry.storage.pieces import Counted, in_pieces

SCHEMA = TableSchema(
    (Column("a", "int"), Column("b", "string"), Column("n", "bigint")),
    ("a", "b"),
    "aggregate",
    {"n": "sum"},
    None,
    True,
)
ARROW = pa.schema([("a", pa.int32()), ("b", pa.string()), ("n", pa.int64()), ("__order", pa.int64())])


def batches(rows: list[tuple[int, str | None]], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        part = [{"a": a, "b": b, "n": 1, "__order": 0} for a, b in rows[start : start + size]]
        yield pa.RecordBatch.from_pylist(part, schema=ARROW)


def merged(rows: list[tuple[int, str | None]], size: int, sorted_by: int | None) -> list[tuple[int, str | None, int]]:
    found = pa.concat_tables(in_pieces(Counted(batches(rows, size), 0), SCHEMA, sorted_by))
    return [(r["a"], r["b"], r["n"]) for r in found.to_pylist()]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([None, "x", "y", "é"])), min_size=1), st.integers(1, 9))
def test_a_shared_prefix_is_enough_to_give_a_sorted_run_of_merged_groups(
    rows: list[tuple[int, str | None]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pieces, "_MERGE_ROWS", 4)
        random.Random(1).shuffle(rows)
        rows.sort(key=lambda r: r[0])  # by the prefix alone
        counts: dict[tuple[int, str | None], int] = {}
        for r in rows:
            counts[r] = counts.get(r, 0) + 1
        ordered = sorted(counts, key=lambda r: (r[0], r[1] is not None, r[1] or ""))
        assert merged(rows, size, 1) == [(a, b, counts[(a, b)]) for a, b in ordered]


def test_rows_out_of_order_stop_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_MERGE_ROWS", 2)
    with pytest.raises(AssertionError, match="out of order"):
        merged([(3, "x"), (4, "x"), (5, "x"), (6, "x"), (1, "x"), (2, "x"), (7, "x"), (8, "x")], 2, 1)
