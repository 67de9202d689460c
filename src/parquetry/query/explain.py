"""What a query would do, step by step, for people and for programs."""

from __future__ import annotations

from typing import Any

from parquetry.query.plan import Plan


class Explanation:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "version": plan.snapshot.state.version,
            "qt": plan.snapshot.qt,
            "executor": plan.executor,
            "plan_ms": round(plan.plan_ms, 3),
            "steps": [{"rule": d.rule, "decided": d.decided, "why": d.why} for d in plan.decisions],
            "tables": {
                name: {
                    "deltas": len(t.deltas),
                    "blocks_total": t.groups_total,
                    "blocks_read": t.groups_read,
                    "skipped_by": t.skipped_by,
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
        width = max(len(d.rule) for d in self.plan.decisions)
        lines = [f"{d.rule:<{width}}  {d.decided}" + (f"  ({d.why})" if d.why else "") for d in self.plan.decisions]
        return "\n".join(lines)
