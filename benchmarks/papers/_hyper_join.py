"""Protocols RB-E4 and RB-E5 of paper 002: groups of blocks for a hyper join, and what it reads against a shuffle.

Blocks come from two-phase trees over random rows. Costs are blocks read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks._harness import Goals
from benchmarks.papers._optimal_groups import optimal
from parquetry.joins.grouping import bottom_up, cost_of, group_blocks
from parquetry.joins.hyper import hyper_groups
from parquetry.joins.overlap import Ranges, overlap_vectors
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import TreeLayout

ROWS_PER_BLOCK = 64
SOLVED = ((12, 12, 4), (16, 12, 4), (16, 16, 5))  # build blocks, probe blocks, blocks per group
LARGE = ((64, 64, 8), (128, 128, 8), (256, 256, 8))
MIP_SECONDS = 40.0
SHUFFLE = 3  # read, write, read
GRID = ((256, 32, 16), (256, 32, 4), (512, 64, 16))  # lineitem's blocks, orders' blocks, blocks per group

Rows = list[dict[str, Any]]


def blocks_of(blocks: int, join_levels: int | None, seed: int) -> Ranges:
    """The ranges of the join column in the blocks of a two-phase tree over random rows."""
    rng = np.random.default_rng(seed)
    rows = blocks * ROWS_PER_BLOCK
    table = pa.table({"j": rng.permutation(rows * 4)[:rows] // 4} | {f"c{i}": rng.random(rows) for i in range(6)})
    how = LearnOptions(block_rows=ROWS_PER_BLOCK // 2 + 1, join="j", join_levels=join_levels)
    spec = learn("two_phase", table, (), how)
    assert isinstance(spec, TreeLayout)
    of, values = route_numpy(spec, table), table["j"].to_numpy()
    scaled = values * (10_000 * 512 // blocks)  # both sides over the same values, however many rows they have
    found = [(int(scaled[of == b].min()), int(scaled[of == b].max())) for b in range(spec.blocks) if (of == b).any()]
    return Ranges(np.array([lo for lo, _ in found], np.int64), np.array([hi for _, hi in found], np.int64))


def left(ranges: Ranges, n: int, seed: int) -> Ranges:
    """What filters leave: of a whole tree whose ranges nest, groups would be no problem."""
    kept = np.sort(np.random.default_rng(seed).permutation(len(ranges))[:n])
    return Ranges(ranges.lo[kept], ranges.hi[kept])


def _above(n: int) -> int:
    return 1 << int(np.log2(n) + 1)


def random_groups(n: int, most: int, seed: int) -> list[list[int]]:
    order = np.random.default_rng(seed).permutation(n).tolist()
    return [order[i : i + most] for i in range(0, n, most)]


def grouping(seeds: Sequence[int]) -> Rows:
    """RB-E4: the rules that can be afforded against the optimum, and against each other where there is none."""
    found: Rows = []
    for n, m, most in (*SOLVED, *LARGE):
        for seed in seeds:
            levels = int(np.log2(n)) // 2
            build = left(blocks_of(_above(n), levels, 2 * seed), n, seed)
            probe = left(blocks_of(_above(m), levels + 1, 2 * seed + 1), m, seed)
            met, sizes = overlap_vectors(build, probe), np.ones(len(build), np.int64)
            started = time.perf_counter()
            ours = group_blocks(met, build.order, sizes, most)
            spent = time.perf_counter() - started
            row: dict[str, Any] = {"build": len(build), "probe": len(probe), "group": most, "seed": seed}
            row |= {"ours": cost_of(ours, met), "greedy": cost_of(bottom_up(met, build.order, sizes, most), met)}
            row |= {"random": cost_of(random_groups(len(build), most, seed), met), "seconds": spent}
            if (n, m, most) in SOLVED:
                started = time.perf_counter()
                best = optimal(met, most, MIP_SECONDS)
                row["optimum"] = None if best is None else cost_of(best, met)
                row["optimum seconds"] = time.perf_counter() - started
            found.append(row)
            print(f"  E4 {row}", flush=True)
    return found


def join_cost(lineitem: Ranges, orders: Ranges, most: int) -> int:
    """The blocks that a hyper join reads: those of the build side once, of the other as groups meet them."""
    groups = hyper_groups(orders, np.ones(len(orders), np.int64), [lineitem], most, 1, whole_values=False)
    assert groups is not None
    return len(orders) + sum(len(g.probes[0]) for g in groups)


def join_levels(seed: int) -> Rows:
    """RB-E5: lineitem and orders with every number of join levels, against a join by shuffling."""
    found: Rows = []
    for n, m, most in GRID:
        depth = int(np.log2(n)), int(np.log2(m))
        large = [blocks_of(n, levels, seed) for levels in range(depth[0] + 1)]
        small = [blocks_of(m, levels, seed + 1) for levels in range(depth[1] + 1)]
        for i, lineitem in enumerate(large):
            for j, orders in enumerate(small):
                shuffle = SHUFFLE * (len(lineitem) + len(orders))
                hyper = join_cost(lineitem, orders, most)
                row: dict[str, Any] = {
                    "lineitem": n,
                    "orders": m,
                    "group": most,
                    "levels of lineitem": i,
                    "levels of orders": j,
                }
                row |= {"hyper": hyper, "shuffle": shuffle, "chosen": "hyper" if hyper < shuffle else "shuffle"}
                row["half"] = i == -(-depth[0] // 2) and j == -(-depth[1] // 2)
                found.append(row)
    return found


def judge_joins(results: dict[str, Any], goals: Goals) -> None:
    if e4 := results.get("E4"):
        solved = [r["ours"] / r["optimum"] for r in e4 if r.get("optimum")]
        goals.at_least("E4 instances that the integer program solves", len(solved), 3)
        goals.at_most("E4 groups / optimum, worst", max(solved), 1.1)
        for n, m, most in LARGE:
            own = [r for r in e4 if "optimum" not in r and r["build"] == n]
            ratio = sum(r["ours"] for r in own) / sum(r["greedy"] for r in own)
            goals.at_most(f"E4 groups / greedy rule, {n} x {m} blocks, {most} per group", ratio, 0.999)
    if e5 := results.get("E5"):
        for n, m, most in GRID:
            own = [r for r in e5 if (r["lineitem"], r["orders"], r["group"]) == (n, m, most)]
            (half,) = [r for r in own if r["half"]]
            named, best = f"{n} x {m}, {most} per group", min(r["hyper"] for r in own)
            if most >= 16:
                goals.at_least(f"E5 shuffle / hyper, half the levels, {named}", half["shuffle"] / half["hyper"], 2)
            goals.at_least(f"E5 half the levels / the best number, {named}", half["hyper"] / best, 1)
            worse = [r for r in own if r["hyper"] > r["shuffle"]]
            goals.at_least(f"E5 shuffle chosen where hyper is worse, {named}", _share(worse), 1)


def _share(rows: Rows) -> float:
    return sum(r["chosen"] == "shuffle" for r in rows) / len(rows) if rows else 1.0
