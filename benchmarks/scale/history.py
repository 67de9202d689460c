"""A year of commits: what opening and committing take beside an empty catalog, and whether retention bounds the size.

A warehouse of 50 tables and 20 views with a batch a minute for each table makes some 58 million commits a year. Three
catalogs in SQLite are compared:

- ``empty``: the same tables and views, no history;
- ``kept``: what retention leaves of a year, a share of it given by ``--share`` (1 with ``--full``): a week of commits,
  30 days of labels, a day of replaced QTs, the whole log. 30 days are written in bulk, as if all replaced deltas were
  vacuumed, and trimmed by the product's own code;
- ``untrimmed``: ``--backlog`` commits (10 million with ``--full``) that nobody trimmed, written in bulk, compared, and
  then trimmed without the pauses that are for writers.

Besides, ``--minutes`` of that warehouse are run commit by commit, with the wall clock set forward and retention scaled
down to minutes: the number of rows must stop growing. No data file is written anywhere.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._harness import Goals, interleaved, median
from benchmarks._report import save, verdicts
from benchmarks.scale._history import Shape, add_history, add_queries, advance, compact, ingest, made, refresh
from parquetry.catalog import Catalog, retention
from parquetry.model.retention import Retention

YEAR_COMMITS = 58_000_000
DAY_S = 24 * 3600
EVERY_S = 365 * DAY_S / YEAR_COMMITS
SHAPE = Shape()


def url_of(folder: Path, name: str) -> str:
    return f"sqlite:///{folder / name}.db"


def size_of(folder: Path, name: str) -> int:
    return sum(p.stat().st_size for p in folder.glob(f"{name}.db*"))


def beside(catalog: Catalog, url: str) -> dict[str, Callable[[], Any]]:
    """The acts that are timed, each leaving the catalog ready for the next."""
    turn = [0]

    def opened() -> None:
        again = Catalog.open(url)
        again.state()
        again.close()

    def batch() -> None:
        turn[0] += 1
        ingest(catalog, SHAPE.table(turn[0] % SHAPE.views))

    return {
        "open": opened,
        "ingest": batch,
        "refresh": lambda: refresh(catalog, SHAPE.view(turn[0] % SHAPE.views)),
        "advance": lambda: advance(catalog),
    }


def compared(catalogs: dict[str, tuple[Catalog, str]], rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of each act in each catalog, taken in turns."""
    arms = {(act, name): run for name, (c, url) in catalogs.items() for act, run in beside(c, url).items()}
    acts = ("open", "ingest", "refresh", "advance")
    ordered = {f"{act} {name}": arms[act, name] for act in acts for name in catalogs}
    times = interleaved(ordered, rounds)
    return {act: {name: median(times[f"{act} {name}"]) * 1e3 for name in catalogs} for act in acts}


def live(catalog: Catalog, minutes: int, goals: Goals) -> dict[str, Any]:
    """Runs the warehouse minute by minute under retention scaled to minutes; its size must stop growing."""
    now = time.time()
    catalog._db.now = lambda conn: now  # type: ignore[method-assign]
    kept = Retention(grace_s=minutes * 6, history_s=minutes * 15, labels_s=DAY_S)
    rows: list[int] = []
    commits = catalog.version()
    for minute in range(minutes):
        now += 60
        for i in range(SHAPE.tables):
            ingest(catalog, SHAPE.table(i))
        for i in range(SHAPE.views):
            refresh(catalog, SHAPE.view(i))
        advance(catalog)
        for i in range(SHAPE.tables if minute % 2 else 0):
            compact(catalog, SHAPE.table(i))
        for i in range(SHAPE.views if minute % 2 else 0):
            compact(catalog, SHAPE.view(i))
        if minute % 4 == 3:
            horizon = catalog.lift_horizon(now - kept.grace_s)
            catalog.forget([d.delta_id for d in catalog.garbage(horizon)], horizon)
            retention.trim(catalog._db, kept, horizon, after=lambda _: None)
            with catalog._db.read() as conn:
                names = ("versions", "changes", "queryable", "built", "deltas", "files")
                count = " + ".join(f"(SELECT count(*) FROM parquetry_{n})" for n in names)
                rows.append(int(conn.exec_driver_sql(f"SELECT {count}").scalar_one()))
    commits = catalog.version() - commits
    half = len(rows) // 2
    goals.at_most("rows after the second half of the run / after the first", max(rows[half:]) / max(rows[:half]), 1.1)
    return {"commits": commits, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all that retention keeps, 10 million untrimmed")
    parser.add_argument("--share", type=float, default=0.1, help="of what retention keeps of a year")
    parser.add_argument("--backlog", type=int, default=500_000, help="commits that nobody trimmed")
    parser.add_argument("--minutes", type=int, default=24, help="run commit by commit")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(".cache/bench"))
    args = parser.parse_args()
    share, backlog = (1.0, 10_000_000) if args.full else (args.share, args.backlog)
    goals, kept, now = Goals(), Retention(), time.time()
    results: dict[str, Any] = {"share": share, "backlog": backlog}
    with tempfile.TemporaryDirectory(prefix="parquetry-history-") as place:
        folder = Path(place)
        catalogs = {name: (made(url_of(folder, name), SHAPE), url_of(folder, name)) for name in ("empty", "kept")}
        full = catalogs["kept"][0]
        # 30 days, of which all but the labels is trimmed again to a week: labels outlive their commits.
        started = time.perf_counter()
        add_history(full, int(share * kept.labels_s / EVERY_S), until=now, every_s=EVERY_S / share)
        add_queries(full, int(share * kept.queries_rows), until=now, every_s=10.0)
        horizon = full.lift_horizon(now - kept.grace_s)
        retention.trim(full._db, kept, horizon, after=lambda _: None)
        results["filled_s"] = time.perf_counter() - started
        results["kept_bytes"] = size_of(folder, "kept")
        print(f"kept: {share:g} of what retention leaves, {results['kept_bytes'] / 1e6:.0f} MB")
        results["kept_ms"] = compared(catalogs, args.rounds)
        for act, found in results["kept_ms"].items():
            print(f"  {act}: empty {found['empty']:.2f} ms, kept {found['kept']:.2f} ms")
            goals.at_most(f"{act} with a year behind it / empty", found["kept"] / found["empty"], 1.5)
        full.close()

        late = made(url_of(folder, "untrimmed"), SHAPE)
        add_history(late, backlog, until=now - 365 * DAY_S, every_s=EVERY_S)
        before = size_of(folder, "untrimmed")
        catalogs = {"empty": catalogs["empty"], "untrimmed": (late, url_of(folder, "untrimmed"))}
        results["untrimmed_ms"] = compared(catalogs, args.rounds)
        for act, found in results["untrimmed_ms"].items():
            goals.at_most(f"{act} with {backlog:,} untrimmed / empty", found["untrimmed"] / found["empty"], 1.5)
        started = time.perf_counter()
        gone = retention.trim(late._db, kept, late.lift_horizon(now - kept.grace_s), after=lambda _: None)
        took = time.perf_counter() - started
        results |= {"trimmed": gone.commits, "trim_s": took, "untrimmed_bytes": before}
        goals.at_least("commits trimmed a second / commits made a second", gone.commits / took * EVERY_S, 10)
        goals.at_least("share of the backlog that is gone", gone.commits / backlog, 0.99)
        late.close()
        catalogs["empty"][0].close()

        running = made(url_of(folder, "live"), SHAPE)
        results["live"] = live(running, args.minutes, goals)
        running.close()
    save(args.out, "history", results, goals.checks, verdicts(goals.checks))
    return 1 if goals.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
