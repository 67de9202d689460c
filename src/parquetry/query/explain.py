"""What a query would do, step by step, for people and for programs."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from parquetry.model.layout import block_rows
from parquetry.query.local.reader import ways_to_read
from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.rules.cut_splits import SCAN_WORKERS
from parquetry.query.rules.join_workers import JOIN_WORKERS
from parquetry.storage.scan.spark import rows_to_read


class Explanation:
    """A plan in words. ``stats`` and ``matching`` are there when the query was run as well."""

    def __init__(self, plan: Plan, stats: dict[str, Any] | None = None, matching: int | None = None) -> None:
        self.plan, self.stats, self.matching = plan, stats, matching

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return (*self.plan.decisions, *how_read(self.plan), *self._compared())

    def _compared(self) -> list[Decision]:
        """What was read against the least possible: the matching rows, and at least one block of them (3.5-2)."""
        if self.stats is None:
            return []
        ran = {name: self.stats[name] for name in ("rows_scanned", "bytes_read", "elapsed_ms")}
        read = f"{ran['rows_scanned']:,} rows, {ran['bytes_read']:,} bytes in {ran['elapsed_ms']} ms"
        if self.matching is None:
            why = "the lower bound is known for one SELECT over one table that is understood whole"
            return [Decision("ran", read, why, figures=ran), *self._in_workers()]
        (t,) = self.plan.tables.values()
        least = max(self.matching, min(self._block_rows(), sum(d.rows for d in t.deltas)))
        width = t.bytes * t.column_share / t.rows if t.rows else 0.0
        least_bytes = int(least * width)
        bound = f"{self.matching:,} rows match; one block is the least: {least:,} rows, about {least_bytes:,} bytes"
        ratio = "nothing had to be read"
        if least:
            ran["times_rows"] = ran["rows_scanned"] / least
            ratio = f"{ran['times_rows']:.2f} x the rows of the bound"
        if least_bytes:
            ran["times_bytes"] = ran["bytes_read"] / least_bytes
            ratio += f", {ran['times_bytes']:.2f} x its bytes"
        figures = {"matching": self.matching, "rows": least, "bytes": least_bytes}
        return [
            Decision("ran", read, ratio, figures=ran),
            *self._in_workers(),
            Decision("lower bound", bound, figures=figures),
        ]

    def _in_workers(self) -> list[Decision]:
        """How even the work was, if workers did it."""
        assert self.stats is not None
        if "scan" not in self.stats:
            return []
        shared = {n: self.stats["scan"][n] for n in ("workers", "wanted", "row_skew", "time_skew", "estimated_skew")}
        rule = SCAN_WORKERS if self.plan.join is None else JOIN_WORKERS
        decided = f"{shared['workers']} of {shared['wanted']} workers had rows"
        skew = f"skew of rows {shared['row_skew']}, of CPU time {shared['time_skew']}"
        return [Decision(rule.name, decided, f"{skew}; estimated {shared['estimated_skew']}", figures=shared)]

    def _block_rows(self) -> int:
        (t,) = self.plan.tables.values()
        said = None if t.state.layout is None else block_rows(t.state.layout)
        return t.state.settings.row_group_rows if said is None else said

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "version": plan.snapshot.state.version,
            "qt": plan.snapshot.qt,
            "executor": plan.executor,
            "view": plan.view,
            "picks": plan.picks,
            "holds": plan.holds,
            "plan_ms": round(plan.plan_ms, 3),
            "steps": [{**vars(d), "figures": dict(d.figures)} for d in self.decisions],
            "stats": self.stats,
            "matching_rows": self.matching,
            "tables": {
                name: {
                    "deltas": len(t.deltas),
                    "blocks_total": t.groups_total,
                    "blocks_read": t.groups_read,
                    "skipped_by": dict(t.skipped_by),
                    "files_total": t.files_total,
                    "files_read": len(t.files),
                    "rows": t.rows,
                    "bytes": t.bytes,
                    "merge": t.merge,
                    "columns": sorted({c for r in t.refs for c in r.columns}),
                }
                for name, t in plan.tables.items()
            },
        }

    def __str__(self) -> str:
        width = max(len(d.rule) for d in self.decisions)
        return "\n".join(f"{d.rule:<{width}}  {d.decided}" + (f"  ({d.why})" if d.why else "") for d in self.decisions)


def how_read(plan: Plan) -> list[Decision]:
    """What is read of each table's files, and by how much that is more than the plan keeps."""
    found = []
    for name, t in plan.tables.items():
        decided = f"{name}: {t.groups_read} of {t.groups_total} row groups in {len(t.files)} of {t.files_total} files"
        figures = {"row_groups": t.groups_read, "of": t.groups_total, "files": len(t.files), "rows": t.rows}
        figures["of_files"] = t.files_total
        why = ""
        if t.rows and not plan.in_workers:
            if plan.executor == "spark":
                read = rows_to_read(t.kept, pick=plan.picks)
                decided += f"; {read:,} rows for {t.rows:,}"
                why = "Spark skips below the file by Parquet's min/max alone" if read > t.rows else ""
            else:
                ways = ways_to_read(t.scan({c for r in t.refs for c in r.columns}), pick=plan.picks)
                read = ways.rows
                decided += f"; {read:,} rows for {t.rows:,}"
                files = {"whole": len(ways.whole), "by row numbers": len(ways.numbered), "picked": len(ways.picked)}
                why = f"files: {', '.join(f'{n} {how}' for how, n in files.items() if n)}"
                figures |= {how.replace(" ", "_"): n for how, n in files.items()}
            decided += f": {read / t.rows:.2f} x the plan's"
            figures["rows_read"] = read
        found.append(Decision("read", decided, why, name, figures=figures))
    return found


def matching_rows_query(plan: Plan) -> str | None:
    """A query that counts the rows which satisfy the WHERE of a SELECT over one table; None for anything more, and
    where the text was not understood whole."""
    bound, query = plan.bound, plan.bound.tree
    if plan.view is not None or bound.doubt or len(bound.refs) != 1 or not isinstance(query, exp.Select):
        return None
    source, where = query.args.get("from_"), query.args.get("where")
    more = any(query.args.get(part) for part in ("joins", "laterals", "with_"))
    if more or source is None or not isinstance(source.this, exp.Table):
        return None
    counting = exp.select("count(*) AS n").from_(source.this.copy())
    if where is not None:
        counting = counting.where(where.this.copy())
    return counting.sql(dialect="spark")
