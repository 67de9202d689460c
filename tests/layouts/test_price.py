"""Simulated row groups are those that the writer makes, and prices are what pruning keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.layouts.cells import with_cells
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.pricing.column_bytes import ColumnBytes
from parquetry.layouts.pricing.price import Asked, cut_row_groups, simulate
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.storage.checked_file import CheckedFile, footer_of
from parquetry.storage.merge import BLOCK
from parquetry.storage.row_group_numbers import ROW_GROUP
from parquetry.storage.store import Store
from parquetry.storage.writer import RunWriter

ROWS = 20_000
SMALL = Settings(block_group_rows=100, row_group_rows=2_000)
COLUMNS = ("a", "b", "s", "d", "x")
NOTHING_KNOWN = ColumnBytes({})


def data(rows: int = ROWS, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = [None if n == 7 else f"w{n:02}" for n in rng.integers(0, 40, rows)]
    return pa.table(
        {
            "k": pa.array(rng.permutation(rows), pa.int64()),
            "a": pa.array(rng.integers(0, 5_000, rows), pa.int32()),
            "b": pa.array(rng.integers(0, 300, rows), pa.int64()),
            "s": pa.array(words),
            "d": pa.array([date(2020, 1, 1) + timedelta(int(n)) for n in rng.integers(0, 900, rows)]),
            "x": pa.array(np.where(rng.random(rows) < 0.05, np.nan, rng.normal(size=rows))),
        }
    )


def schema_of(table: pa.Table) -> TableSchema:
    return TableSchema.from_arrow(table.schema, ["k"], "append", None, None)


def boxes(count: int, seed: int) -> list[LoggedQuery]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        a, b = int(rng.integers(0, 4_500)), int(rng.integers(0, 270))
        found.append(LoggedQuery(And((Range("a", a, a + 400), Range("b", b, b + 40)))))
    return found


def learned(table: pa.Table, learner: str = "paw", rate: float = 1.0) -> LayoutSpec:
    options = LearnOptions(block_rows=1_000, sample_rate=rate, columns=("a", "b"), delta=0.01)
    workload = boxes(20, 1)
    return with_cells(learn(learner, table, workload, options), table, workload, options, 4)


def sampled(table: pa.Table, rows: int | None = None, how: Settings = SMALL) -> SampledTable:
    return SampledTable(table, schema_of(table), how, rows or table.num_rows)


@pytest.fixture(scope="module")
def whole() -> pa.Table:
    return data()


@pytest.mark.parametrize("learner", ["paw", "qdtree", "kdtree", "zorder", "key"])
def test_without_sampling_the_simulated_row_groups_are_the_writers(
    whole: pa.Table, learner: str, tmp_path: Path
) -> None:
    spec = None if learner == "key" else learned(whole, learner)
    written = write(whole, spec, tmp_path)
    simulated = simulate(sampled(whole), spec, COLUMNS, NOTHING_KNOWN)
    batch = simulated.index.tables[0].batch
    assert batch["rows"].to_pylist() == [g.rows for g in written.groups]
    for column in ("a", "b", "s", "d"):
        assert batch[f"min.{column}"].to_pylist() == [g.mins[column] for g in written.groups]
        assert batch[f"max.{column}"].to_pylist() == [g.maxs[column] for g in written.groups]
        assert batch[f"nulls.{column}"].to_pylist() == [g.nulls[column] for g in written.groups]
    assert batch["nan.x"].to_pylist() == [g.nans["x"] for g in written.groups]


@pytest.mark.parametrize("learner", ["paw", "zorder", "key"])
def test_predicted_bytes_are_close_to_those_of_the_written_chunks(
    whole: pa.Table, learner: str, tmp_path: Path
) -> None:
    spec = None if learner == "key" else learned(whole, learner)
    written = write(whole, spec, tmp_path)
    priced = simulate(sampled(whole), spec, COLUMNS, NOTHING_KNOWN)
    sizes = {column: size for column, size in written.column_bytes.items() if column != ROW_GROUP}
    for column, size in sizes.items():
        assert priced.sizes.of([column], priced.groups, ROWS) == pytest.approx(size, rel=0.15), column


def test_a_sample_predicts_what_all_rows_cost() -> None:
    table = data(120_000)
    spec = learned(table)
    rng = np.random.default_rng(3)
    part = table.filter(pa.array(rng.random(table.num_rows) < 0.2))
    asked = [Asked(q, ("a", "b", "x")) for q in boxes(200, 9)]
    exact = simulate(sampled(table), spec, COLUMNS, NOTHING_KNOWN).price_all(asked)
    guess = simulate(sampled(part, table.num_rows), spec, COLUMNS, NOTHING_KNOWN).price_all(asked)
    errors = [abs(g.bytes / e.bytes - 1) for g, e in zip(guess, exact, strict=True) if e.bytes]
    assert np.median(errors) < 0.15
    assert sum(g.rows for g in guess) == pytest.approx(sum(e.rows for e in exact), rel=0.1)


PREDICATES: list[Predicate] = [
    Range("a", 100, 900),
    Range("a", 100, 900, lo_open=True, hi_open=True),
    Range("a", lo=4_000),
    Range("x", lo=2.0),
    Range("s", "w05", "w11x"),
    OneOf("b", frozenset({3, 77, 9_999})),
    OneOf("s", frozenset({"w01", "w39"})),
    IsNull("s"),
    NotNull("s"),
    And((Range("a", 100, 900), Or((Range("b", hi=10), IsNull("s"))))),
    Or((Range("d", hi=date(2020, 2, 1)), Range("a", lo=4_990))),
    And(()),
    Or(()),
    Nothing(),
    Anything(),
]


@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_matching_rows_and_pruned_row_groups_agree_with_brute_force(whole: pa.Table, predicate: Predicate) -> None:
    table = sampled(whole)
    truth = np.array([holds(predicate, row) for row in whole.to_pylist()])
    assert (table.matches(predicate) == truth).all()
    spec = learned(whole)
    priced = simulate(table, spec, COLUMNS, NOTHING_KNOWN)
    price = priced.price(Asked(LoggedQuery(predicate), ("a",)))
    assert price.rows >= truth.sum()
    assert price.rows >= rows_of_groups_with_a_match(table, spec, truth)


def test_what_no_leaf_understands_counts_as_matching(whole: pa.Table) -> None:
    table = sampled(whole)
    assert table.matches(Range("a", "not a number")).all()
    assert table.matches(Range("nowhere", 1, 2)).all()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 50), st.integers(50, 200))
@settings(max_examples=100, deadline=None)
def test_row_groups_end_at_blocks_unless_too_large(sizes: list[int], least: int, largest: int) -> None:
    blocks = np.repeat(np.arange(len(sizes)), sizes)
    how = Settings(block_group_rows=least, row_group_rows=largest)
    starts = cut_row_groups(blocks, how, 1.0, single=False)
    counts = np.diff(np.append(starts, len(blocks)))
    assert counts.sum() == len(blocks)
    assert counts.max() <= largest
    ends = set(np.cumsum(sizes).tolist())
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        assert start + count in ends or count == largest
        assert count >= least or start + count == len(blocks) or count == largest


def test_an_empty_sample_prices_at_nothing() -> None:
    empty = data(10).slice(0, 0)
    priced = simulate(sampled(empty), None, COLUMNS, NOTHING_KNOWN)
    assert priced.price(Asked(LoggedQuery(Range("a", 1, 2)), ("a",))).bytes == 0


# -- the truth ----------------------------------------------------------------------------------------------------


class Written:
    def __init__(self, groups: list[Any], column_bytes: dict[str, int]) -> None:
        self.groups, self.column_bytes = groups, column_bytes


def write(table: pa.Table, spec: LayoutSpec | None, folder: Path) -> Written:
    """The rows as the real writer puts them into files, without Spark."""
    import pickle

    if spec is not None:
        table = table.append_column(BLOCK, pa.array(route_numpy(spec, table), pa.int32()))
    order = ([(BLOCK, "ascending")] if spec is not None else []) + [("k", "ascending")]
    ordered = table.take(pc.sort_indices(table, sort_keys=order)).combine_chunks()
    store = Store(str(folder))
    writer = RunWriter(store, "t", schema_of(data(1)), SMALL)
    results = [row for batch in writer(batches(ordered)) for row in batch.to_pylist()]
    groups = [g for r in results for g in pickle.loads(r["groups"])]
    sizes: dict[str, int] = {}
    for r in results:
        footer: pq.FileMetaData = footer_of(store, CheckedFile(r["path"], r["bytes"], r["checksum"]))
        for g in range(footer.num_row_groups):
            for i in range(footer.num_columns):
                chunk = footer.row_group(g).column(i)
                sizes[chunk.path_in_schema] = sizes.get(chunk.path_in_schema, 0) + chunk.total_compressed_size
    return Written(groups, sizes)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=777)


def holds(predicate: Predicate, row: dict[str, Any]) -> bool:
    match predicate:
        case And(parts):
            return all(holds(p, row) for p in parts)
        case Or(parts):
            return any(holds(p, row) for p in parts)
        case Range(column, lo, hi, lo_open, hi_open):
            value = row[column]
            if value is None:
                return False
            if value != value:  # NaN is the largest
                return hi is None
            above = lo is None or value > lo or (value == lo and not lo_open)
            return above and (hi is None or value < hi or (value == hi and not hi_open))
        case OneOf(column, values):
            return row[column] in values
        case IsNull(column):
            return row[column] is None
        case NotNull(column):
            return row[column] is not None
    return isinstance(predicate, Anything)


def rows_of_groups_with_a_match(table: SampledTable, spec: LayoutSpec, truth: Any) -> int:
    blocks = route_numpy(spec, table.sample).astype(np.int64)
    order = np.argsort(blocks * len(blocks) + table.key_rank)
    starts = cut_row_groups(blocks[order], SMALL, 1.0, single=False)
    counts = np.diff(np.append(starts, len(blocks)))
    return int(counts[np.add.reduceat(truth[order], starts, dtype=np.int64) > 0].sum())
