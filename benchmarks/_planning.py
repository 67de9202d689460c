"""Warehouses without data: catalogs and indexes of a chosen size, to measure planning alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import parquetry
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.state import AddDelta, AdvanceQT
from parquetry.storage.index import RowGroup, build_index
from parquetry.storage.store import checksum

_ROWS = 122_880


def many_deltas(folder: Path) -> parquetry.Warehouse:
    """A table of 1,000 deltas, all visible."""
    return _made(folder, deltas=1000, groups=1)


def many_row_groups(folder: Path) -> parquetry.Warehouse:
    """A table of 100,000 row groups in 10 deltas."""
    return _made(folder, deltas=10, groups=10_000)


def _made(folder: Path, deltas: int, groups: int) -> parquetry.Warehouse:
    wh = parquetry.connect(folder)
    settings = {"max_query_deltas": max(2, deltas), "compaction_width": 10_000}
    wh.create_table("t", "k bigint, d date, v int, s string", key=["k"], settings=settings)
    t = wh.catalog.state().table("t")
    for i in range(deltas):
        delta_id = f"delta{i}"
        index = build_index(_groups(groups, i), t.schema, 10, 1000)
        path = f"{t.table_id}/{delta_id}/index.pqx"
        wh.store.write(path, index)
        files = tuple(
            StoredFile(f"{t.table_id}/{delta_id}/part-{n}.parquet", 100 << 20, "", 100 * _ROWS)
            for n in range(-(-groups // 100))
        )
        delta = Delta(delta_id, t.table_id, 0, 0, 0, groups * _ROWS, groups << 20, t.schema_id, 0,
                      StoredFile(path, len(index), checksum(index)), files)  # fmt: skip
        wh.catalog.commit([AddDelta(t.table_id, f"label{i}", "", groups * _ROWS, delta)], kind="ingest")
    clock = wh.catalog.state().clock
    wh.catalog.commit([AdvanceQT({t.table_id: clock}, clock)], kind="advance")
    return wh


def _groups(count: int, salt: int) -> list[RowGroup]:
    starts = [n * 100_000 + salt for n in range(count)]
    keys = [block_prefix(0) + k for k in encode_keys([pa.array(starts, pa.int64())]).to_pylist()]
    lasts = [block_prefix(0) + k for k in encode_keys([pa.array([s + 99_000 for s in starts], pa.int64())]).to_pylist()]
    return [
        RowGroup(
            file=n // 100,
            row_group=n % 100,
            rows=_ROWS,
            bytes=1 << 20,
            block=0,
            starts=(keys[n],),
            start_rows=(_ROWS,),
            last=lasts[n],
            mins={"k": starts[n], "v": n % 1000, "s": f"s{n % 977:05}"},
            maxs={"k": starts[n] + 99_000, "v": n % 1000 + 100, "s": f"s{n % 977 + 10:05}"},
            nulls={"k": 0, "d": 0, "v": 0, "s": 0},
        )
        for n in range(count)
    ]
