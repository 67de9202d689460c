"""Pruning loses no row, whatever the types, nulls, NaN and predicates; and it skips what it can know."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.layouts.pruning.prune import PROOFS, Wanted, prune
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.schema import Column, TableSchema
from parquetry.storage.index import RowGroup, build_index
from parquetry.storage.index_reader import IndexReader, RowGroupTable
from parquetry.storage.snapshot_index import SnapshotIndex

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-3, 3),
    "bigint": st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    "float": st.sampled_from([-0.0, 0.0, 0.5, 1.5, -2.0, math.inf, -math.inf, math.nan]),
    "double": st.sampled_from([-0.0, 0.0, 0.5, 0.1, -2.0, math.inf, -math.inf, math.nan]),
    "decimal(5,2)": st.decimals(-2, 2, places=2),
    "decimal(30,2)": st.decimals(-2, 2, places=2),
    "string": st.text("ab\x00é\U0001f600", max_size=3) | st.integers(60, 70).map(lambda n: "a" * n),
    "binary": st.binary(max_size=2) | st.integers(60, 70).map(lambda n: b"\xff" * n),
    "date": st.dates(date(1969, 12, 28), date(1970, 1, 4)),
    "timestamp": st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2), timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2)),
}
SCHEMA = TableSchema(
    (*(Column(f"c{i}", kind) for i, kind in enumerate(VALUES)), Column("nested", "array<int>")), ("c1", "c7")
)


def write(
    rows: list[dict[str, Any]], schema: TableSchema, cut: int, blocks: int = 1, forget: bool = False
) -> RowGroupTable:
    """The index of one delta, as a writer makes it from its sorted run. ``forget`` leaves statistics out."""
    table = pa.Table.from_pylist(rows, schema.arrow)
    plain = encode_keys([table[k] for k in schema.key]).to_pylist()
    keys = pa.array([block_prefix(3 * (i % blocks)) + k for i, k in enumerate(plain)], pa.binary())
    order = pc.sort_indices(keys)
    table, keys = table.take(order).combine_chunks(), keys.take(order).to_pylist()
    groups: list[RowGroup] = []
    for at in range(0, len(rows), cut):
        part = table.slice(at, cut)
        mins: dict[str, Any] = {}
        maxs: dict[str, Any] = {}
        nans: dict[str, bool] = {}
        for c in schema.columns:
            column = part[c.name].combine_chunks()
            if pa.types.is_floating(c.arrow):
                nans[c.name] = bool(pc.any(pc.is_nan(column)).as_py())
            if not pa.types.is_nested(c.arrow):
                known = sorted((v for v in column.to_pylist() if v is not None and v == v), key=_utf8)
                mins[c.name], maxs[c.name] = (known[0], known[-1]) if known else (None, None)
        nulls = {c.name: part[c.name].null_count for c in schema.columns}
        if forget:
            mins, maxs, nulls, nans = {}, {}, {}, {}
        n = part.num_rows
        groups.append(
            RowGroup(
                0,
                len(groups),
                n,
                n,
                int.from_bytes(keys[at][:4], "big"),
                (keys[at],),
                (n,),
                keys[at + n - 1],
                mins,
                maxs,
                nulls,
                nans,
            )
        )
    data = build_index(groups, schema, 10, 3)
    index = IndexReader(lambda offset, length: data[offset : offset + length], len(data)).row_groups()
    ROWS[id(index)] = (index, [table.slice(at, cut).to_pylist() for at in range(0, len(rows), cut)])
    return index


ROWS: dict[int, tuple[RowGroupTable, list[list[dict[str, Any]]]]] = {}


def _utf8(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return _utf8(value)


def satisfies(row: dict[str, Any], p: Predicate) -> bool:
    """The plain meaning of a predicate, row by row."""
    match p:
        case And(parts):
            return all(satisfies(row, part) for part in parts)
        case Or(parts):
            return any(satisfies(row, part) for part in parts)
        case Anything():
            return True
        case Nothing():
            return False
        case IsNull(column):
            return row.get(column) is None
        case NotNull(column):
            return row.get(column) is not None
        case OneOf(column, values):
            v = row.get(column)
            return v is not None and any(_order(v) == _order(x) for x in values)
        case Range(column, lo, hi, lo_open, hi_open):
            v = row.get(column)
            if v is None:
                return False
            above = lo is None or _order(lo) < _order(v) or (not lo_open and _order(lo) == _order(v))
            return above and (hi is None or _order(v) < _order(hi) or (not hi_open and _order(hi) == _order(v)))


def leaves(column: Column) -> st.SearchStrategy[Predicate]:
    value = VALUES[column.type]
    name = st.just(column.name)
    return st.one_of(
        st.builds(Range, name, st.none() | value, st.none() | value, st.booleans(), st.booleans()),
        st.builds(OneOf, name, st.frozensets(value, max_size=4)),
        st.builds(IsNull, name),
        st.builds(NotNull, name),
    )


LEAF = st.one_of(
    *(leaves(c) for c in SCHEMA.columns if c.type in VALUES),
    *([leaves(SCHEMA.column("c1")), leaves(SCHEMA.column("c7"))] * 2),
    st.sampled_from([Anything("udf"), Nothing(), IsNull("nested"), NotNull("nested")]),
)
PREDICATE = st.recursive(
    LEAF,
    lambda inner: (
        st.builds(And, st.lists(inner, max_size=3).map(tuple)) | st.builds(Or, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=6,
)
ROW = st.fixed_dictionaries(
    {c.name: VALUES[c.type] if c.name in SCHEMA.key else st.none() | VALUES[c.type] for c in SCHEMA.columns[:-1]}
    | {"nested": st.none() | st.lists(st.integers(0, 3), max_size=2)}
)
OLD_SCHEMA = TableSchema(tuple(c for c in SCHEMA.columns if c.name not in ("c3", "c9", "nested")), SCHEMA.key)


@given(
    st.lists(ROW, min_size=1, max_size=10),
    st.lists(ROW, max_size=6),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
    PREDICATE,
    st.sets(st.sampled_from(sorted(PROOFS))),
)
@settings(max_examples=150, deadline=None)
def test_pruning_never_drops_a_row_group_with_a_matching_row(
    new: list[dict[str, Any]],
    old: list[dict[str, Any]],
    cut: int,
    blocks: int,
    forget: bool,
    predicate: Predicate,
    off: set[str],
) -> None:
    tables = [write(new, SCHEMA, cut, blocks, forget)]
    if old:
        tables.append(write([{k: v for k, v in r.items() if k in OLD_SCHEMA.names} for r in old], OLD_SCHEMA, cut))
    index = SnapshotIndex(tables, SCHEMA)
    groups = [rows for t in tables for rows in ROWS[id(t)][1]]
    ROWS.clear()
    for keep, rows in zip(prune(Wanted(index, predicate, off=off)).tolist(), groups, strict=True):
        assert keep or not any(satisfies(r, predicate) for r in rows)


ALL_BUT_KEY = frozenset(PROOFS) - {"prune_key"}
SMALL = TableSchema((Column("k", "int"), Column("f", "double"), Column("s", "string")), ("k",))


def small_index() -> SnapshotIndex:
    rows = [{"k": k, "f": k / 2, "s": chr(97 + k)} for k in range(6)]
    rows += [{"k": 6, "f": math.nan, "s": None}, {"k": 7, "f": None, "s": None}, {"k": 8, "f": None, "s": "z"}]
    return SnapshotIndex([write(rows, SMALL, 1)], SMALL)


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (Range("f", 2.0), [4, 5, 6]),  # NaN is larger than every number
        (Range("f", 2.0, None, lo_open=True), [5, 6]),
        (Range("f", None, 0.5), [0, 1, 6]),  # all that is known of group 6 is that it may hold NaN
        (OneOf("f", frozenset([math.nan])), [6]),
        (OneOf("f", frozenset([0.5, 1.7, 2.5])), [1, 5, 6]),
        (Range("f"), [0, 1, 2, 3, 4, 5, 6]),
        (IsNull("s"), [6, 7]),
        (NotNull("f"), [0, 1, 2, 3, 4, 5, 6]),
        (Range("s", "b", "d", hi_open=True), [1, 2]),
        (Range("s", "bb", "bc"), []),
        (OneOf("s", frozenset(["c", "cc", "y"])), [2]),
        (And((Range("k", 2, 4), NotNull("s"))), [2, 3, 4]),
        (Or((OneOf("k", frozenset([8])), IsNull("f"))), [7, 8]),
        (And(()), list(range(9))),
        (Or(()), []),
        (Nothing(), []),
    ],
)
def test_each_kind_of_condition_skips_what_it_can(predicate: Predicate, kept: list[int]) -> None:
    keep = set(np.flatnonzero(prune(Wanted(small_index(), predicate))).tolist())
    # Groups 6 and 7 have no known bounds beyond their null counts and NaN flag.
    assert keep == set(kept)


def test_each_proof_skips_by_itself() -> None:
    predicate = And((Range("k", 2, None), Range("f", 2.0), NotNull("s")))
    assert np.flatnonzero(prune(Wanted(small_index(), predicate))).tolist() == [4, 5]
    alone = {"prune_key": [2, 3, 4, 5, 6, 7, 8], "prune_minmax": [4, 5, 6, 7, 8], "prune_nulls": [0, 1, 2, 3, 4, 5]}
    for proof, kept in alone.items():
        wanted = Wanted(small_index(), predicate, off=set(PROOFS) - {proof})
        assert np.flatnonzero(prune(wanted)).tolist() == kept, proof


def test_null_counts_say_more_of_an_or_together_with_min_and_max() -> None:
    wanted = Wanted(small_index(), Or((Range("f", 2.5, 2.6), IsNull("f"))), off={"prune_key"})
    assert np.flatnonzero(prune(wanted)).tolist() == [5, 6, 7, 8]


def test_values_that_cannot_be_compared_might_match() -> None:
    for value in ("x", Decimal("1.5"), datetime(2020, 1, 1)):
        assert prune(Wanted(small_index(), OneOf("k", frozenset([value])))).all()
    assert prune(Wanted(small_index(), Range("s", 5))).sum() == 7  # only those without any string go


def test_a_value_between_two_decimals_is_compared_exactly() -> None:
    for kind in ("decimal(9,2)", "decimal(30,2)"):
        schema = TableSchema((Column("k", "int"), Column("d", kind)), ("k",))
        index = SnapshotIndex([write([{"k": i, "d": Decimal(i) / 100} for i in range(4)], schema, 1)], schema)
        assert prune(Wanted(index, Range("d", Decimal("0.011")))).tolist() == [False, False, True, True]
        assert prune(Wanted(index, Range("d", None, Decimal("0.011")))).tolist() == [True, True, False, False]
        assert not prune(Wanted(index, OneOf("d", frozenset([Decimal("0.011")])))).any()


def test_more_key_ranges_than_row_groups_are_looked_up_the_other_way_round() -> None:
    wanted = frozenset(range(-50, 3)) | frozenset(range(7, 60))
    assert np.flatnonzero(prune(Wanted(small_index(), OneOf("k", wanted), off=ALL_BUT_KEY))).tolist() == [0, 1, 2, 7, 8]


def test_a_row_group_may_hold_several_blocks() -> None:
    rows = [{"k": k, "f": 0.0, "s": "x"} for k in range(12)]
    index = SnapshotIndex([write(rows, SMALL, 9, blocks=4)], SMALL)  # blocks 0, 3, 6 of three rows each; then 9
    assert index.blocks == (0, 1, 2, 3, 4, 5, 6, 9)
    found = [prune(Wanted(index, OneOf("k", frozenset([k])), off=ALL_BUT_KEY)).tolist() for k in (1, 7, 20)]
    assert found == [[True, False], [True, True], [True, False]]


def test_an_empty_snapshot_prunes_to_nothing() -> None:
    assert len(prune(Wanted(SnapshotIndex([], SMALL), And((Range("f", 1.0), IsNull("s"), Range("s", "a")))))) == 0
