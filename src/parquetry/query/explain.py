"""What a query would do, step by step, for people and for programs."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from parquetry.query.local.reader import ways_to_read
from parquetry.query.planning.plan import Decision, Plan


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
        read = (
            f"{self.stats['rows_scanned']:,} rows, {self.stats['bytes_read']:,} bytes in {self.stats['elapsed_ms']} ms"
        )
        workers = []
        if scan := self.stats.get("scan"):
            found = f"skew of rows {scan['row_skew']}, of CPU time {scan['time_skew']}"
            skew = f"{found}; estimated {scan['estimated_skew']}"
            workers.append(Decision("scan_workers", f"{scan['workers']} of {scan['wanted']} workers had rows", skew))
        if self.matching is None:
            return [Decision("ran", read, "the lower bound is known for one SELECT over one table, understood whole"), *workers]
        (t,) = self.plan.tables.values()
        least = max(self.matching, min(self._block_rows(), sum(d.rows for d in t.deltas)))
        width = t.bytes * t.column_share / t.rows if t.rows else 0.0
        least_bytes = int(least * width)
        bound = f"{self.matching:,} rows match; one block is the least: {least:,} rows, about {least_bytes:,} bytes"
        ratio = "nothing had to be read"
        if least:
            ratio = f"{self.stats['rows_scanned'] / least:.2f} x the rows of the bound"
        if least_bytes:
            ratio += f", {self.stats['bytes_read'] / least_bytes:.2f} x its bytes"
        return [Decision("ran", read, ratio), *workers, Decision("lower bound", bound)]

    def _block_rows(self) -> int:
        (t,) = self.plan.tables.values()
        options = {} if t.state.layout is None else t.state.layout.options
        return int(options.get("block_rows", t.state.settings.row_group_rows))

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "version": plan.snapshot.state.version,
            "qt": plan.snapshot.qt,
            "executor": plan.executor,
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
        kept = f"{name}: {t.groups_read} of {t.groups_total} row groups in {len(t.files)} of {t.files_total} files"
        if not t.rows:
            found.append(Decision("read", kept, about=name))
            continue
        if plan.executor == "spark" and not plan.in_workers:
            rows = t.kept.rows_in_files if t.kept else 0
            decided = f"{kept}; whole files of {rows:,} rows for {t.rows:,}: {rows / t.rows:.2f} x the plan's"
            why = "Spark skips below the file by Parquet's min/max alone" if rows > t.rows else ""
        elif plan.executor == "spark":
            decided, why = kept, ""
        else:
            ways = ways_to_read(t.scan({c for r in t.refs for c in r.columns}), pick=plan.picks)
            decided = f"{kept}; {ways.rows:,} rows for {t.rows:,}: {ways.rows / t.rows:.2f} x the plan's"
            counts = {"whole": len(ways.whole), "by row numbers": len(ways.numbered), "picked": len(ways.picked)}
            why = f"files: {', '.join(f'{n} {how}' for how, n in counts.items() if n)}"
        figures = {"row_groups": t.groups_read, "of": t.groups_total, "files": len(t.files), "rows": t.rows}
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
