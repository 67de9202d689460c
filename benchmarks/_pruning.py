"""A table of 100,000 blocks without data: its layout with irregular blocks, and one row group for each block."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import parquetry
from benchmarks._harness import Goals, median, percentile
from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.layouts.pruning.prune import Wanted, prune
from parquetry.layouts.pruning.regions import Region, regions
from parquetry.model.box import Box, Interval
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.layout import Cut, Groups, Leaf, Node, TreeLayout
from parquetry.model.predicate import And, Range
from parquetry.model.state import AddDelta, AdvanceQT, PublishLayout
from parquetry.storage.index import RowGroup, build_index
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import checksum

_SIDE = 1 << 20  # both columns hold values below it
_ROWS = 10_240
_KEYS = 1 << 30
_PER_FILE = 1000
_WARM = 10


def measure_pruning(folder: Path, goals: Goals, blocks: int = 100_000, queries: int = 100) -> dict[str, Any]:
    """Milliseconds of one call of ``prune`` and of planning a query, every query a new one."""
    with _many_blocks(folder, blocks) as wh:
        t = wh.catalog.state().table("t")
        index, layouts = open_snapshot(wh.store, t.deltas, t.schema), known_layouts(t)
        rng = np.random.default_rng(0)
        results = {}
        for name, keyed in (("filters on the layout's columns", False), ("and on the key", True)):
            alone, planned, kept = [], [], []
            for _ in range(queries):
                low = rng.integers(0, _SIDE, 2)
                high = low + rng.integers(0, _SIDE // 10, 2)
                parts = [Range(c, int(lo), int(hi)) for c, lo, hi in zip("ab", low, high, strict=True)]
                k = int(rng.integers(0, _KEYS))
                parts += [Range("k", k, k + _KEYS // 10)] if keyed else []
                started = time.perf_counter()
                keep = prune(Wanted(index, And(tuple(parts)), layouts))
                alone.append((time.perf_counter() - started) * 1e3)
                where = " AND ".join(f"{p.column} BETWEEN {p.lo} AND {p.hi}" for p in parts)
                plan = wh.sql(f"SELECT count(*) AS n FROM t WHERE {where}").plan
                planned.append(plan.plan_ms)
                kept.append(int(keep.sum()))
                assert plan.tables["t"].groups_read == kept[-1]
            goals.at_most(f"prune {blocks:,} blocks, {name}: warm p50 in ms", median(alone[_WARM:]), 10)
            results[name] = {
                "prune_p50_ms": median(alone[_WARM:]),
                "prune_p99_ms": percentile(alone[_WARM:], 0.99),
                "first_ms": alone[0],
                "plan_p50_ms": median(planned[_WARM:]),
                "blocks_kept": float(np.mean(kept)),
                "last_skipped_by": dict(plan.tables["t"].skipped_by),
            }
    return results


def _many_blocks(folder: Path, blocks: int) -> parquetry.Warehouse:
    wh = parquetry.connect(folder)
    wh.create_table("t", "k bigint, a int, b int, s string", key=["k"])
    spec = _tree(blocks)
    wh.catalog.commit([PublishLayout(wh.catalog.state().table("t").table_id, spec)], kind="relayout")
    t = wh.catalog.state().table("t")
    index = build_index([_row_group(i, r) for i, r in enumerate(regions(spec))], t.schema, 10, 1000)
    path = f"{t.table_id}/delta/index.pqx"
    wh.store.write(path, index)
    files = tuple(
        StoredFile(f"{t.table_id}/delta/part-{n}.parquet", _PER_FILE << 19, "", _PER_FILE * _ROWS)
        for n in range(-(-blocks // _PER_FILE))
    )
    stored = StoredFile(path, len(index), checksum(index))
    rows = blocks * _ROWS
    delta = Delta("delta", t.table_id, 0, 0, 0, rows, blocks << 19, t.schema_id, t.layout_id, stored, files)
    wh.catalog.commit([AddDelta(t.table_id, "all", "", rows, delta)], kind="ingest")
    clock = wh.catalog.state().clock
    wh.catalog.commit([AdvanceQT({t.table_id: clock}, clock)], kind="advance")
    return wh


def _row_group(i: int, region: Region) -> RowGroup:
    """The row group of block ``i``, full to the edges of its box: only the region knows of the holes."""
    first, last = encode_keys([pa.array([i, _KEYS + i], pa.int64())]).to_pylist()
    a, b = (region.box.intervals.get(c, Interval()) for c in "ab")
    return RowGroup(
        file=i // _PER_FILE,
        row_group=i % _PER_FILE,
        rows=_ROWS,
        bytes=1 << 19,
        block=i,
        starts=(block_prefix(i) + first,),
        start_rows=(_ROWS,),
        last=block_prefix(i) + last,
        mins={"k": i, "a": a.lo or 0, "b": b.lo or 0, "s": f"s{i % 977:05}"},
        maxs={"k": _KEYS + i, "a": a.hi or _SIDE, "b": b.hi or _SIDE, "s": f"s{i % 977 + 10:05}"},
        nulls=dict.fromkeys("kabs", 0),
    )


def _tree(blocks: int) -> TreeLayout:
    """A tree of cuts in the middle; three blocks that are left over become two boxes and an irregular block."""
    nodes: list[Node] = []
    numbers = iter(range(blocks))

    def grow(count: int, low: tuple[int, int], high: tuple[int, int]) -> int:
        place = len(nodes)
        if count == 1:
            nodes.append(Leaf(next(numbers)))
            return place
        nodes.append(Leaf(0))  # its place; replaced once the children are known
        if count == 3:
            third = [(h - lo) // 3 for lo, h in zip(low, high, strict=True)]
            boxes = tuple(
                Box({c: Interval(lo + n * w, lo + (n + 1) * w - 1) for c, lo, w in zip("ab", low, third, strict=True)})
                for n in (0, 1)
            )
            children = tuple(grow(1, low, high) for _ in boxes)
            nodes[place] = Groups(boxes, children, grow(1, low, high))
            return place
        d = int(high[1] - low[1] > high[0] - low[0])
        at = low[d] + (high[d] - low[d]) * (count // 2) // count
        left = grow(count // 2, low, (at, high[1]) if d == 0 else (high[0], at))
        right = grow(count - count // 2, (at, low[1]) if d == 0 else (low[0], at), high)
        nodes[place] = Cut("ab"[d], "<", at, left, right)
        return place

    grow(blocks, (0, 0), (_SIDE, _SIDE))
    return TreeLayout("synthetic", ("a", "b"), tuple(nodes))
