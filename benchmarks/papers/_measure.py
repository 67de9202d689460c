"""Measures layouts by the rows in blocks that queries read, and checks every answer against a plain scan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks._workloads import Setting, as_box, as_logged, generate
from parquetry.layouts.learners.extra import ExtraBlock
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.pruning.descriptors import BoxTable, describe
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.extra_blocks import rows_of
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.box import Box
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery


class Dataset:
    """A table as columns of doubles, and its block size: 586 blocks, as the paper has, whatever the rows."""

    def __init__(self, name: str, table: pa.Table, blocks: int = 586) -> None:
        self.name, self.table = name, table
        self.rows = table.num_rows
        self.block_rows = max(1, round(self.rows / blocks))
        self.values = [table[c].to_numpy() for c in table.column_names]
        self.domain = np.array([[v.min(), v.max()] for v in self.values])
        self.ids = np.arange(self.rows, dtype=np.uint64)

    def columns(self, dims: int) -> tuple[str, ...]:
        return tuple(self.table.column_names[:dims])

    def thin(self, rows: int) -> Dataset:
        """Every n-th row, for many runs in little time; the number of blocks stays."""
        step = max(1, round(self.rows / rows)) if rows else 1
        return self if step == 1 else Dataset(self.name, self.table.take(np.arange(0, self.rows, step)))


@dataclass(frozen=True)
class Answer:
    count: int
    checksum: int


def scan(data: Dataset, query: np.ndarray, rows: np.ndarray | None = None) -> Answer:
    """The answer of a query over the given rows, or over all."""
    for d, (lo, hi) in enumerate(query.tolist()):
        values = data.values[d] if rows is None else data.values[d][rows]
        inside = np.flatnonzero((values >= lo) & (values <= hi))
        rows = inside if rows is None else rows[inside]
    assert rows is not None
    return Answer(len(rows), int((data.ids[rows] * np.uint64(0x9E3779B97F4A7C15)).sum()))


class Workload:
    """A setting's queries on a dataset with their true answers."""

    def __init__(self, data: Dataset, setting: Setting, seed: int) -> None:
        self.data, self.setting, self.seed = data, setting, seed
        self.columns = data.columns(setting.dims)
        history, self.future = generate(setting, data.domain[: setting.dims], seed)
        self.logged: list[LoggedQuery] = as_logged(history, self.columns)
        self.answers = [scan(data, q) for q in self.future]
        counts = np.array([a.count for a in self.answers], np.float64)
        self.exact = float(counts.mean()) / data.rows
        self.bound = float(np.maximum(counts, data.block_rows).mean()) / data.rows  # LBblk (3.5-2)


class Layout:
    """A learned layout with its rows in block order."""

    def __init__(self, data: Dataset, spec: LayoutSpec) -> None:
        self.data, self.spec = data, spec
        blocks = route_numpy(spec, data.table)
        self.sizes = np.bincount(blocks, minlength=spec.blocks)
        self.order = np.argsort(blocks.astype(np.uint16), kind="stable")
        self.ends = np.cumsum(self.sizes)
        self.known = RegionTable(regions(spec))

    def rows(self, blocks: np.ndarray) -> np.ndarray:
        parts = [self.order[self.ends[b] - self.sizes[b] : self.ends[b]] for b in np.flatnonzero(blocks)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def boxes(self, columns: Sequence[str], count: int, method: str) -> BoxTable:
        found = []
        for b in range(self.spec.blocks):
            rows = self.order[self.ends[b] - self.sizes[b] : self.ends[b]]
            block = pa.table({c: v[rows] for c, v in zip(columns, self.data.values, strict=False)})
            found.append(describe(block, columns, count, method))
        return BoxTable(found)


class WrongAnswer(AssertionError):
    pass


def pick_extra_block(extra: Sequence[ExtraBlock], query: Sequence[Box], normal_rows: float) -> int | None:
    """The smallest extra block that holds the whole query and is cheaper than the normal route, or None (PW-23)."""
    holding = [i for i, e in enumerate(extra) if e.rows < normal_rows and all(e.box.covers(b) for b in query)]
    return min(holding, key=lambda i: extra[i].rows, default=None)


def cost(
    layout: Layout, workload: Workload, precise: BoxTable | None = None, extra: Sequence[ExtraBlock] = ()
) -> float:
    """Share of the table's rows in the blocks that the future queries read, on average (PW-02, PW-29)."""
    read = 0.0
    for query, truth in zip(workload.future, workload.answers, strict=True):
        box = as_box(query, workload.columns)
        match = layout.known.might_match([box])
        if precise is not None:
            match &= precise.might_match([box])
        normal = float(layout.sizes[match].sum())
        chosen = pick_extra_block(extra, [box], normal)
        if chosen is None:
            found = scan(workload.data, query, layout.rows(match))
            read += normal
        else:
            (inside,) = rows_of(workload.data.table, [extra[chosen].box])
            found = scan(workload.data, query, inside)
            read += extra[chosen].rows
        if found != truth:
            raise WrongAnswer(f"{layout.spec.learner}, seed {workload.seed}: {found} instead of {truth} for {box}")
    return read / len(workload.future) / workload.data.rows


@dataclass(frozen=True)
class Method:
    name: str
    learner: str
    options: dict[str, object]


METHODS = (
    Method("Qd-tree", "qdtree", {}),
    Method("Qd-tree on Q_F*", "qdtree", {"variant": "extended"}),
    Method("PAW as printed", "paw", {"refine": False, "variant": "paper"}),
    Method("PAW", "paw", {"refine": False}),
    Method("PAW refined", "paw", {}),
    Method("k-d stop", "kdtree", {"variant": "stop"}),
    Method("k-d skip", "kdtree", {}),
)
BY_NAME = {m.name: m for m in METHODS}
_data_aware: dict[tuple[int, int, str], Layout] = {}  # k-d trees see no queries: one per dataset and number of columns


def make(workload: Workload, method: Method, **changes: object) -> tuple[Layout, float]:
    """The layout that a method learns from the workload's history, and the seconds it took."""
    data = workload.data
    key = (id(data), workload.setting.dims, method.name)
    if key in _data_aware:
        return _data_aware[key], 0.0
    how: dict[str, object] = {"delta": workload.setting.delta, **method.options, **changes}
    options = LearnOptions(block_rows=data.block_rows, columns=workload.columns, **how)  # type: ignore[arg-type]
    start = time.perf_counter()
    spec = learn(method.learner, data.table, workload.logged, options)
    seconds = time.perf_counter() - start
    layout = Layout(data, spec)
    if method.learner == "kdtree":
        _data_aware[key] = layout
    return layout, seconds


def compare(workload: Workload, methods: Sequence[Method], note: Callable[[str], None]) -> dict[str, float]:
    """The cost of every method on one workload, with the lower bounds, in percent of the table."""
    found = {"LBexact": 100 * workload.exact, "LBblk": 100 * workload.bound}
    for method in methods:
        found[method.name] = 100 * cost(make(workload, method)[0], workload)
    note(" ".join(f"{k} {v:.3f}" for k, v in found.items()))
    return found
