"""Small things to put into a catalog."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from parquetry.catalog import Catalog
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.layout import Cut, Leaf, TreeLayout
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import AddDelta, Commit, CreateTable, ReplaceDeltas, TableState

SCHEMA = TableSchema((Column("id", "bigint", False), Column("price", "decimal(15,2)")), ("id",))
_numbers = itertools.count()


def create(catalog: Catalog, name: str = "sales") -> TableState:
    catalog.commit([CreateTable(name, SCHEMA, Settings())], kind="create table")
    return catalog.state().table(name)


def delta(table: TableState, t_lo: int = 0, t_hi: int = 0, *, files: int = 1, level: int = 0, layout: int = 0) -> Delta:
    delta_id = f"delta-{next(_numbers)}"
    folder = f"data/{table.table_id}/{delta_id}"
    return Delta(
        delta_id=delta_id,
        table_id=table.table_id,
        t_lo=t_lo,
        t_hi=t_hi,
        level=level,
        rows=10,
        bytes=1000,
        schema_id=table.schema_id,
        layout_id=layout,
        index=StoredFile(f"{folder}/index.pqx", 100, "c0"),
        files=tuple(StoredFile(f"{folder}/part-{i}.parquet", 1000, f"c{i}", 10) for i in range(files)),
    )


def cut_at(value: int) -> TreeLayout:
    return TreeLayout("kdtree", ("id",), (Cut("id", "<", value, 1, 2), Leaf(0), Leaf(1)))


def add(table: TableState, label: str, digest: str = "d", *, rows_in: int = 10) -> AddDelta:
    return AddDelta(table.table_id, label, digest, rows_in, delta(table))


def ingest(catalog: Catalog, table: TableState, *labels: str) -> Commit:
    for label in labels:
        done = catalog.commit([add(table, label)], kind="ingest")
    return done


def compact(old: Sequence[Delta], table: TableState, *, layout: int = 0) -> ReplaceDeltas:
    lo, hi = min(d.t_lo for d in old), max(d.t_hi for d in old)
    level = 1 + max(d.level for d in old)
    return ReplaceDeltas(
        table.table_id, tuple(d.delta_id for d in old), delta(table, lo, hi, level=level, layout=layout)
    )
