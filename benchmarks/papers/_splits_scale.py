"""How planning grows: the bookkeeping of PP-E4, and whole plans over simulated tables up to a petabyte."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import numpy as np

from benchmarks._harness import Goals
from benchmarks.papers._sized_tree import SizedTrees, grow
from benchmarks.papers._splits_data import as_keys
from parquetry.splits.candidates import Candidates, accumulate, cut_pairs
from parquetry.splits.cut import cut_into_splits
from parquetry.splits.entries import Entries, concat, make_entries
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish

Rows = list[dict[str, Any]]
PETABYTE = 1e15


def bookkeeping(goals: Goals) -> Rows:
    """PP-E4: finding what points cut by the mapping M against per-key lists of entries (PP-37, PP-38)."""
    found: Rows = []
    rng = np.random.default_rng(0)
    for deltas in (10, 50, 200):
        for splits in (10, 100, 1000, 2000):
            entries = concat([_entries(rng, d, splits) for d in range(deltas)])
            total = _best(lambda e=entries: accumulate(e))
            c = accumulate(entries)
            points = np.unique(rng.integers(0, c.count, splits))
            mapped = _best(lambda c=c, p=points: cut_pairs(c, p))
            listed = built = np.nan
            if len(c.keys) * deltas <= 50_000_000:
                started = time.perf_counter()
                lists = _lists(entries, c, deltas)
                built = time.perf_counter() - started
                listed = _best(lambda m=lists, p=points: m[p])
                _, cut = cut_pairs(c, points)
                if int((lists[points] >= 0).sum()) != len(cut):
                    raise AssertionError("the mapping and the lists disagree")
            found.append(
                {
                    "D": deltas,
                    "P": splits,
                    "entries": len(entries),
                    "M bytes": 16 * len(entries),
                    "list bytes": 4 * len(c.keys) * deltas,
                    "M ms": mapped * 1e3,
                    "lists built ms": built * 1e3,
                    "list ms": listed * 1e3,
                    "accumulate ms": total * 1e3,
                }
            )
    per_entry = [r["M bytes"] / (r["P"] * r["D"]) for r in found]
    goals.at_most("E4 bytes of M per P * D: largest / smallest", max(per_entry) / min(per_entry), 1.5)
    return found


def _entries(rng: np.random.Generator, delta: int, count: int) -> Entries:
    numbers = np.unique(rng.integers(0, 1 << 60, count + 1, np.uint64))
    keys = as_keys(numbers)
    return make_entries(delta, 1, 0, rng.random(len(keys) - 1), keys[:-1], keys[1:])


def _lists(e: Entries, c: Candidates, deltas: int) -> np.ndarray:
    """Of every key and delta the entry that covers it, -1 where none does: what the paper tried first."""
    found = np.full((len(c.keys), deltas), -1, np.int32)
    for d in range(deltas):
        own = np.flatnonzero(e.delta == d)
        at = np.searchsorted(c.start_at[own], np.arange(len(c.keys)), "right") - 1
        covered = (at >= 0) & (np.arange(len(c.keys)) < c.end_at[own][at])
        found[covered, d] = own[at[covered]]
    return found


def _best(run: Any, times: int = 5) -> float:
    best = np.inf
    for _ in range(times):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return float(best)


def simulated(blocks: int, deltas: int = 30, seed: int = 0) -> SizedTrees:
    """One petabyte in so many data blocks of uneven sizes, in deltas that halve in size."""
    rng = np.random.default_rng(seed)
    shares = 0.5 ** np.arange(1, deltas + 1)
    trees = []
    for share in shares / shares.sum():
        n = max(1, int(blocks * share))
        numbers = np.sort(rng.integers(0, 1 << 63, n, np.uint64))
        sizes = rng.lognormal(0, 0.5, n)
        starts = as_keys(numbers)
        ends = np.append(starts[1:], as_keys(numbers[-1:] + np.uint64(1)))
        trees.append(grow(starts, ends, sizes * (share * PETABYTE / sizes.sum())))
    return SizedTrees(trees)


def petabytes(goals: Goals, quick: bool) -> Rows:
    """Whole plans, warm: nodes, rounds, milliseconds and memory by blocks, deltas and splits."""
    found: Rows = []
    eight = KeyRanges([_range(i << 58, (i << 58) + (1 << 56)) for i in range(0, 32, 4)])
    for blocks in (80_000, 800_000) if quick else (80_000, 800_000, 8_000_000):
        for deltas in (10, 30):
            index = simulated(blocks, deltas)
            for splits in (10, 100, 1000):
                for name, query in (("all", KeyRanges.everything()), ("8 ranges", eight)):
                    best = _best(lambda q=query, p=splits, i=index: cut_into_splits(i, q, Wish(p)))
                    tracemalloc.start()
                    plan = cut_into_splits(index, query, Wish(splits))
                    memory = tracemalloc.get_traced_memory()[1]
                    tracemalloc.stop()
                    found.append(
                        {
                            "blocks": blocks,
                            "D": deltas,
                            "P": splits,
                            "query": name,
                            "splits": len(plan),
                            "skew": plan.skew,
                            "rounds": plan.rounds,
                            "nodes": plan.nodes,
                            "entries": plan.entries,
                            "ms": best * 1e3,
                            "MB": memory / 1e6,
                        }
                    )
    largest = [r for r in found if r["D"] == 30 and r["P"] == 1000 and r["blocks"] == max(r["blocks"] for r in found)]
    for r in largest:
        goals.at_most(f"petabyte of {r['blocks']:,} blocks, P=1,000, {r['query']}: ms to plan, warm", r["ms"], 100)
        goals.at_least(f"petabyte of {r['blocks']:,} blocks, P=1,000, {r['query']}: splits", r["splits"], 980)
    per = [
        max(r["nodes"] / (r["P"] * r["D"]) for r in found if r["blocks"] == b and r["P"] == 1000)
        for b in {r["blocks"] for r in found}
    ]
    goals.at_most("petabyte, P=1,000: index nodes per P * D, worst", max(per), 1.0)
    return found


def _range(lo: int, hi: int) -> tuple[bytes, bytes]:
    a, b = as_keys(np.array([lo, hi], np.uint64))
    return a, b
