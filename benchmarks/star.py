"""Star queries: bytes read of the fact table under the layout of `relayout auto`, in key order, and sorted by date.

The layout is learned from the log of queries with other parameters; filters are on dimensions, and reach the facts
through the joins alone. Every answer is compared with DuckDB's over the raw files first.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import duckdb
import pyarrow.parquet as pq
import sqlglot

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals
from benchmarks._report import save, table, verdicts
from benchmarks._star_queries import TPCDS, TPCDS_KEYS, TPCH, Template
from benchmarks._tpcds import tpcds
from benchmarks.joins import _rows
from parquetry.model.layout_options import RelayoutOptions
from parquetry.query.planning.plan import TablePlan
from parquetry.storage.scan.arrow import row_group_sizes
from tests.differential.raw_files import TPCH_KEYS


@dataclass(frozen=True)
class Star:
    name: str
    files: Mapping[str, Path]
    keys: Mapping[str, Sequence[str]]
    fact: str
    date: str  # what one would sort the facts by
    templates: Sequence[Template]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="scale factor of both benchmarks' data")
    parser.add_argument("--logged", type=int, default=16, help="queries of each template that are learned from")
    parser.add_argument("--asked", type=int, default=4, help="queries of each template that are measured")
    parser.add_argument("--only", choices=["tpch", "tpcds"], help="one of the stars")
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    stars = [
        Star("tpch", {t: tpch(t, options.scale) for t in TPCH_KEYS}, TPCH_KEYS, "lineitem", "l_shipdate", TPCH),
        Star(
            "tpcds",
            {t: tpcds(t, options.scale) for t in TPCDS_KEYS},
            TPCDS_KEYS,
            "store_sales",
            "ss_sold_date_sk",
            TPCDS,
        ),
    ]
    found: list[dict[str, Any]] = []
    for star in stars:
        if options.only in (None, star.name):
            found += measure(star, options)
    against_key = [row["key"] / row["auto"] for row in found]
    against_date = [row["date"] / row["auto"] for row in found]
    text = table(found, list(found[0]))
    print(text)
    goals = Goals()
    goals.at_least("bytes of the fact table in key order against auto, geometric mean", geometric_mean(against_key), 3)
    goals.at_least("bytes of the fact table sorted by date against auto", geometric_mean(against_date), 1.5)
    name = "star" if options.only is None else f"star-{options.only}"
    save(options.out, name, {"scale": options.scale, "templates": found}, goals.checks, text + verdicts(goals.checks))
    print(f"results: {options.out / name}.json")
    return 1 if goals.missed else 0


def measure(star: Star, options: Any) -> list[dict[str, Any]]:
    """A row for each template: megabytes of the fact table per query, under each layout."""
    work = CACHE / "bench" / f"star-{star.name}"
    shutil.rmtree(work, ignore_errors=True)
    texts = {t.name: t.draw(options.logged + options.asked, seed=0) for t in star.templates}
    asked = {name: drawn[options.logged :] for name, drawn in texts.items()}
    logged = [sql for drawn in texts.values() for sql in drawn[: options.logged]]
    random.Random(0).shuffle(logged)
    expected = _expected(star, [sql for drawn in asked.values() for sql in drawn])
    read: dict[str, dict[str, float]] = {}
    try:
        with parquetry.connect(work) as wh:
            for name, path in star.files.items():
                wh.create_table(name, pq.read_schema(path), key=star.keys[name])
                wh.ingest(name, path)
            wh.maintain()

            def measured(arm: str) -> None:
                read[arm] = {
                    name: geometric_mean([_bytes(wh, star.fact, sql, expected[sql]) for sql in sqls])
                    for name, sqls in asked.items()
                }
                print(f"{star.name}: " + ", ".join(f"{n} {b / 1e6:.2f} MB" for n, b in read[arm].items()), flush=True)

            measured("key")
            for sql in logged:
                wh.sql(sql).arrow()
            for arm, learner, how in (("auto", "auto", None), ("date", "range", RelayoutOptions(columns=[star.date]))):
                started = time.perf_counter()
                # The newest of the log: those with other parameters.
                done = wh.relayout(star.fact, learner, options=how, queries=len(logged))
                cut = ", ".join(wh.layout(star.fact).get("columns", ()))
                seconds = time.perf_counter() - started
                print(f"{star.name} {arm}: {done.learner}, {done.blocks:,} blocks, {seconds:.0f} s; {cut}", flush=True)
                measured(arm)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rows = []
    for name in asked:
        mb = {arm: read[arm][name] / 1e6 for arm in ("key", "date", "auto")}
        rows.append({"template": name, **mb, "key/auto": mb["key"] / mb["auto"], "date/auto": mb["date"] / mb["auto"]})
    return rows


def _expected(star: Star, sqls: Sequence[str]) -> dict[str, Any]:
    duck = duckdb.connect()
    for name, path in star.files.items():
        duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
    return {
        s: _rows(duck.execute(sqlglot.transpile(s, read="spark", write="duckdb")[0]).to_arrow_table()) for s in sqls
    }


def _bytes(wh: parquetry.Warehouse, fact: str, sql: str, expected: Any) -> float:
    """What the query reads of the fact table: its columns in the row groups that the plan keeps."""
    result = wh.sql(sql)
    answer = _rows(result.arrow())
    assert answer == expected, f"{sql}: {answer[:2]} instead of {expected[:2]}"
    return max(1, _column_bytes(wh, result.plan.tables[fact]))


def _column_bytes(wh: parquetry.Warehouse, t: TablePlan) -> int:
    if t.index is None or t.kept is None:
        return 0
    columns = tuple(sorted({c for r in t.refs for c in r.columns}))
    total = 0
    for path, groups in t.kept.row_groups().items():
        _, sizes = row_group_sizes(wh.store, t.index.file(path), columns)
        total += sum(sizes[g] for g in groups)
    return total


if __name__ == "__main__":
    raise SystemExit(main())
