"""Robust trees (paper 002): protocols RB-E1 and RB-E2, rows in blocks read when no query was known beforehand; RB-E4
and RB-E5, blocks read by hyper joins.

Costs of the former are shares of the table's rows, skipping by the tree alone. That no row of an answer lies in a
skipped block is checked for every query.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks._denormalised import COLUMNS, denormalised, templates
from benchmarks._harness import Goals
from benchmarks._report import save, table, verdicts
from benchmarks.papers._allocations import allocations
from benchmarks.papers._hyper_join import grouping, join_levels, judge_joins
from benchmarks.papers._measure import WrongAnswer
from benchmarks.papers._replicas import learn_replicas
from parquetry.layouts.learners.allocation import FANOUT
from parquetry.layouts.learners.grow import CutAt, Part, grow, median_cut
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import encode
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import Cut, Leaf, TreeLayout, children
from parquetry.model.predicate import And, OneOf, Or, Predicate, Range
from parquetry.workload.boxes import to_boxes

SAMPLE_ROWS = 400_000
RANGES = 20  # per column
RANGE2 = (("o_orderdate", 6), ("r_name", 2), ("c_mktsegment", 2), ("l_quantity", 99))  # column and levels
LEAST = 0.75  # of an even share: a least size of all of it would forbid every cut of the last level that is not exact
FEW = ("l_quantity", "l_extendedprice", "l_shipdate", "l_commitdate", "o_orderdate", "p_size", "p_type", "p_brand")
"""Fewer columns than levels, so that not even the root takes more than its share, and values enough to cut anywhere."""

Rows = list[dict[str, Any]]


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, eq=False)
class Data:
    rows: pa.Table
    sample: pa.Table
    depth: int

    def options(self, **how: Any) -> LearnOptions:
        rate = self.sample.num_rows / self.rows.num_rows
        share = self.rows.num_rows / 2**self.depth
        # As printed, the size of a block is the largest one.
        rows = math.ceil(share) if how.get("variant") == "paper" else int(LEAST * share)
        return LearnOptions(block_rows=rows, sample_rate=rate, **{"columns": COLUMNS, **how})

    def learn(self, name: str, **how: Any) -> TreeLayout:
        spec = learn(name, self.sample, (), self.options(**how))
        assert isinstance(spec, TreeLayout)
        return spec


@dataclass(frozen=True, eq=False)
class Query:
    predicate: Predicate
    answer: np.ndarray  # the rows that match, by a plain scan


class Layout:
    """A layout over the whole table: its blocks' sizes and regions."""

    def __init__(self, data: Data, spec: TreeLayout) -> None:
        self.spec = spec
        self.blocks = route_numpy(spec, data.rows)
        self.sizes = np.bincount(self.blocks, minlength=spec.blocks)
        self.known = RegionTable(regions(spec))

    def read(self, query: Query) -> float:
        """The share of rows in the blocks that the query reads."""
        match = self.known.might_match(to_boxes(query.predicate).boxes)
        if not match[self.blocks[query.answer]].all():
            raise WrongAnswer(f"{self.spec.learner} skips rows of {query.predicate}")
        return float(self.sizes[match].sum() / self.sizes.sum())

    def allocations(self) -> dict[str, float]:
        share = (self.sizes / self.sizes.sum()).tolist()
        return allocations(self.spec, lambda block: share[block])


def last_level(spec: TreeLayout, share: Sequence[float]) -> float:
    """The largest allocation of a node right above blocks."""
    found = 0.0
    for node in spec.nodes:
        below = [spec.nodes[c] for c in children(node)]
        if below and all(isinstance(n, Leaf) for n in below):
            found = max(found, FANOUT * sum(share[n.block] for n in below if isinstance(n, Leaf)))
    return found


def range2(data: Data) -> TreeLayout:
    """A fixed column on each level, cut at medians; a level that cannot cut passes on to the next."""
    encoded = encode(data.sample, (), data.options(), extended=False)
    order = [encoded.columns.index(c) for c, levels in RANGE2 for _ in range(levels)]
    least = data.options().sample_block_rows

    def decide(part: Part) -> CutAt | None:
        for column in dict.fromkeys(order[part.level :]):
            position = median_cut(part.places[column], least) if part.rows >= 2 * least else None
            if position is not None:
                return CutAt(column, position)
        return None

    return grow(encoded, "range2", decide, {})


def tenths(data: Data, column: str, seed: int) -> list[Query]:
    """Ranges that hold a tenth of the rows, or what duplicates make of that."""
    encoded = encode(data.sample, (), LearnOptions(block_rows=1, columns=(column,)), extended=False)
    places, line = np.sort(encoded.places[0]), encoded.lines[0]
    rng = random.Random(seed)
    found = []
    for _ in range(RANGES):
        at = rng.randrange(len(places) * 9 // 10)
        i = line.interval(int(places[at]), int(places[at + len(places) // 10]))
        found.append(asked(data, Range(column, i.lo, i.hi, i.lo_open, i.hi_open)))
    return found


def asked(data: Data, predicate: Predicate) -> Query:
    return Query(predicate, np.flatnonzero(np.asarray(_holds(data.rows, predicate).to_numpy(zero_copy_only=False))))


def _holds(rows: pa.Table, predicate: Predicate) -> Any:
    """The predicate on every row by Arrow's own comparisons."""
    match predicate:
        case And(parts) | Or(parts):
            found = [_holds(rows, p) for p in parts]
            for other in found[1:]:
                found[0] = pc.and_(found[0], other) if isinstance(predicate, And) else pc.or_(found[0], other)
            return found[0]
        case OneOf(column, values):
            kind = rows.schema.field(column).type
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            return _by_value(rows[column], lambda a: pc.is_in(a, pa.array(sorted(values), plain)))
        case Range(column, lo, hi, lo_open, hi_open):
            above, below = (pc.greater if lo_open else pc.greater_equal), (pc.less if hi_open else pc.less_equal)

            def inside(a: Any) -> Any:
                both = pc.is_valid(a)
                both = both if lo is None else pc.and_(both, above(a, pa.scalar(lo, a.type)))
                return both if hi is None else pc.and_(both, below(a, pa.scalar(hi, a.type)))

            return _by_value(rows[column], inside)
    raise TypeError(f"no template has {predicate}")


def _by_value(column: pa.ChunkedArray, test: Any) -> Any:
    chunk = column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = chunk.chunk(0)
    return test(chunk.dictionary).take(chunk.indices) if pa.types.is_dictionary(chunk.type) else test(chunk)


def robustness(data: Data, seeds: Sequence[int], queries: Mapping[str, list[Query]]) -> dict[str, Any]:
    """RB-E1: (a) a tenth of each column, (b) the templates; per method the mean over trees of different seeds."""
    shuffled = []
    for seed in seeds:
        columns = list(COLUMNS)
        random.Random(seed).shuffle(columns)
        shuffled.append(tuple(columns))
    made = {
        "robust": [data.learn("robust", seed=s) for s in seeds],
        "robust as printed": [data.learn("robust", seed=s, variant="paper") for s in seeds],
        "k-d": [data.learn("kdtree", columns=columns) for columns in shuffled],
        "range": [data.learn("kdtree", columns=("o_orderdate",))],
        "range2": [range2(data)],
    }
    single: Rows = []
    whole: Rows = []
    trees: Rows = []
    for method, specs in made.items():
        layouts = [Layout(data, spec) for spec in specs]
        for i, layout in enumerate(layouts):
            reads = {c: mean(layout.read(q) for q in queries[c]) for c in COLUMNS}
            per_template = {t: mean(layout.read(q) for q in queries[t]) for t in queries if t not in COLUMNS}
            worst = max(layout.read(q) for t in per_template for q in queries[t])
            got = layout.allocations()
            below = [got[c] for c in got if c != root_column(layout.spec)] or [0.0]
            trees.append(
                {
                    "method": method,
                    "tree": i,
                    "blocks": layout.spec.blocks,
                    "least column": min(reads.values()),
                    "median column": median(reads.values()),
                    "worst column": max(reads.values()),
                    "worst / least": max(reads.values()) / min(reads.values()),
                    "columns at 1": sum(v > 0.999 for v in reads.values()),
                    "templates": mean(per_template.values()),
                    "worst template query": worst,
                    "allocations but the root's, spread": max(below) - min(below),
                }
            )
            single.append({"method": method, "tree": i, **reads})
            whole.append({"method": method, "tree": i, **per_template})
            note(f"E1 {trees[-1]}")
    shared = [allocated(data, seed, variant) for variant in ("even", "paper") for seed in seeds]
    return {"trees": trees, "columns": single, "templates": whole, "allocation": shared}


def root_column(spec: TreeLayout) -> str:
    root = spec.nodes[0]
    return root.column if isinstance(root, Cut) else ""


def allocated(data: Data, seed: int, variant: str) -> dict[str, Any]:
    """What each of a few columns gets, as the learner counts it: by the rows of the sample, or by halves as printed."""
    spec = data.learn("robust", seed=seed, columns=FEW, variant=variant)
    blocks = route_numpy(spec, data.sample)
    share = (np.bincount(blocks, minlength=spec.blocks) / len(blocks)).tolist()
    literal = variant == "paper"
    got = allocations(spec) if literal else allocations(spec, lambda block: share[block])
    last = FANOUT / 2 ** (int(spec.options["levels"]) - 1) if literal else last_level(spec, share)
    row = {"variant": variant, "seed": seed, **got, "spread": max(got.values()) - min(got.values()), "last node": last}
    note(f"E1 allocation {row}")
    return row


def replicated(data: Data, seeds: Sequence[int], queries: Mapping[str, list[Query]], most: int = 3) -> Rows:
    """RB-E2: each query goes to the copy that reads least; complementary trees against independent ones."""
    found: Rows = []
    for seed in seeds:
        independent = [Layout(data, data.learn("robust", seed=1000 * seed + i)) for i in range(most)]
        for r in range(1, most + 1):
            specs = learn_replicas(data.sample, data.options(seed=seed), r)
            ways = {"complementary": [Layout(data, s) for s in specs], "independent": independent[:r]}
            for way, layouts in ways.items():
                reads = {name: mean(min(x.read(q) for x in layouts) for q in qs) for name, qs in queries.items()}
                best = {c: max(x.allocations().get(c, 0.0) for x in layouts) / FANOUT for c in COLUMNS}
                found.append(
                    {
                        "seed": seed,
                        "copies": r,
                        "trees": way,
                        "columns": mean(reads[c] for c in COLUMNS),
                        "worst column": max(reads[c] for c in COLUMNS),
                        "templates": mean(v for name, v in reads.items() if name not in COLUMNS),
                        "share cut, least": min(best.values()),
                        "share cut, mean": mean(best.values()),
                        "covered / formula": len(COLUMNS) * mean(best.values()) / (r * data.depth),
                    }
                )
                note(f"E2 {found[-1]}")
    return found


def average(rows: Rows, by: Sequence[str]) -> Rows:
    """The mean of every figure over the rows that agree in ``by``."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in by), []).append(row)
    figures = [k for k in rows[0] if k not in (*by, "seed", "tree")]
    return [
        {**dict(zip(by, key, strict=True)), **{k: mean(float(r[k]) for r in group) for k in figures}}
        for key, group in groups.items()
    ]


def judge(results: Mapping[str, Any]) -> Goals:
    """The figures to reach (section 2.3), of the worst tree unless a mean is named."""
    goals = Goals()
    if e1 := results.get("E1"):
        trees: dict[str, Rows] = {}
        for tree in e1["trees"]:
            trees.setdefault(tree["method"], []).append(tree)
        for method in ("robust", "robust as printed"):
            goals.at_most(f"E1 {method}: worst column", max(t["worst column"] for t in trees[method]), 0.99)
            goals.at_most(f"E1 {method}: worst query", max(t["worst template query"] for t in trees[method]), 0.99)
            ratio = mean(t["worst / least"] for t in trees[method])
            goals.at_most(f"E1 {method}: worst / least column, mean over trees", ratio, 1.6)
        worst = max(t["worst / least"] for t in trees["robust"])
        goals.at_most("E1 robust: worst / least column, worst tree", worst, 1.6)
        for method in ("k-d", "range"):
            goals.at_least(f"E1 {method}: columns that skip nothing", min(t["columns at 1"] for t in trees[method]), 1)
        for variant in ("even", "paper"):
            spread = max(r["spread"] / r["last node"] for r in e1["allocation"] if r["variant"] == variant)
            goals.at_most(f"E1 {variant}, {len(FEW)} columns: spread of allocations / a last-level node", spread, 1.0)
    if e2 := results.get("E2"):
        by = {(r["copies"], r["trees"]): r for r in average(e2, ("copies", "trees"))}
        for what in ("columns", "templates"):
            for r in (2, 3):
                ratio = by[r, "complementary"][what] / by[r - 1, "complementary"][what]
                goals.at_most(f"E2 {what}: {r} copies / {r - 1}", ratio, 0.999)
                ratio = by[r, "complementary"][what] / by[r, "independent"][what]
                goals.at_most(f"E2 {what}: {r} complementary copies / independent ones", ratio, 0.999)
        covered = [by[r, "complementary"]["covered / formula"] for r in (1, 2, 3)]
        goals.at_least("E2 columns covered / (r/c) depth, least", min(covered), 0.9)
        goals.at_most("E2 columns covered / (r/c) depth, most", max(covered), 1.1)
    judge_joins(dict(results), goals)
    return goals


def draw(results: Mapping[str, Any], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    if e1 := results.get("E1"):
        for kind in ("columns", "templates"):
            rows = average(e1[kind], ("method",))
            names = [k for k in rows[0] if k != "method"]
            figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
            for i, row in enumerate(rows):
                at = np.arange(len(names)) + i / (len(rows) + 1)
                axes.bar(at, [row[n] for n in names], 1 / (len(rows) + 1), label=row["method"])
            axes.set_xticks(np.arange(len(names)) + 0.4, names, rotation=60, ha="right", fontsize=7)
            axes.set(ylabel="share of the rows read", ylim=(0, 1.02))
            axes.legend(fontsize=7)
            figure.savefig(out / f"robust_{kind}.png", dpi=130)
            plt.close(figure)
    if e2 := results.get("E2"):
        figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
        for way in ("complementary", "independent"):
            own = [r for r in average(e2, ("copies", "trees")) if r["trees"] == way]
            for what, line in (("columns", "-"), ("templates", "--")):
                axes.plot([r["copies"] for r in own], [r[what] for r in own], line, marker="o", label=f"{way}, {what}")
        axes.set(xlabel="copies", ylabel="share of the rows read", xticks=[1, 2, 3])
        axes.legend(fontsize=7)
        figure.savefig(out / "robust_replicas.png", dpi=130)
        plt.close(figure)


def write(results: Mapping[str, Any], goals: Goals, out: Path) -> None:
    parts = ["# Robust trees, paper 002", "Shares of the table's rows.", verdicts(goals.checks)]
    if e1 := results.get("E1"):
        rows = average(e1["trees"], ("method",))
        parts += ["## E1, mean over trees", table(rows, list(rows[0]))]
        for kind in ("columns", "templates"):
            rows = average(e1[kind], ("method",))
            parts += [f"## E1 by {kind}", table(rows, list(rows[0]))]
        parts += [f"## E1 allocations of {len(FEW)} columns", table(e1["allocation"], list(e1["allocation"][0]))]
    if e2 := results.get("E2"):
        rows = average(e2, ("copies", "trees"))
        parts += ["## E2, mean over seeds", table(rows, list(rows[0]))]
    if e4 := results.get("E4"):
        parts += ["## E4, probe blocks read", table(e4, list(e4[0]))]
    if e5 := results.get("E5"):
        parts += ["## E5, blocks read", table(e5, list(e5[0]))]
    draw(results, out)
    save(out, "robust", results, goals.checks, "\n\n".join(parts))


def _read(scale: float, depth: int) -> tuple[Data, dict[str, list[Query]]]:
    path = denormalised(scale)
    strings = [f.name for f in pq.read_schema(path) if pa.types.is_large_string(f.type) or pa.types.is_string(f.type)]
    rows = pq.read_table(path, columns=list(COLUMNS), read_dictionary=strings).unify_dictionaries().combine_chunks()
    chosen = np.sort(np.random.default_rng(0).permutation(rows.num_rows)[:SAMPLE_ROWS])
    data = Data(rows, rows.take(chosen), depth)
    note(f"{rows.num_rows:,} rows, {len(COLUMNS)} columns, depth {depth}")
    queries = {c: tenths(data, c, 0) for c in COLUMNS}
    return data, queries | {name: [asked(data, p) for p in made] for name, made in templates(10, 0).items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="scale 0.1 and 2 seeds")
    parser.add_argument("--scale", type=float, default=None, help="TPC-H scale factor; 1 unless --quick")
    parser.add_argument("--depth", type=int, default=10, help="levels of a balanced tree")
    parser.add_argument("--seeds", type=int, default=None, help="trees per method; 5 unless --quick")
    parser.add_argument("--only", default="E1,E2,E4,E5", help="protocols to run")
    parser.add_argument("--out", type=Path, default=Path(".cache/bench/robust"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    seeds = range(args.seeds or (2 if args.quick else 5))
    wanted = args.only.split(",")
    results: dict[str, Any] = {"settings": {"depth": args.depth, "seeds": len(seeds)}}
    if {"E1", "E2"} & set(wanted):
        data, queries = _read(args.scale or (0.1 if args.quick else 1), args.depth)
        results["settings"]["rows"] = data.rows.num_rows
        if "E1" in wanted:
            results["E1"] = robustness(data, seeds, queries)
        if "E2" in wanted:
            results["E2"] = replicated(data, seeds, queries)
    if "E4" in wanted:
        results["E4"] = grouping(seeds)
    if "E5" in wanted:
        results["E5"] = join_levels(0)
    goals = judge(results)
    write(results, goals, args.out)
    return 1 if goals.missed else 0


if __name__ == "__main__":
    sys.exit(main())
