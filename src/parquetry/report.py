"""What there is in a warehouse, as plain rows for printing and for JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from parquetry.catalog import Catalog
from parquetry.maintain.pick import Advance, pick
from parquetry.model.freshness import pending, queryable, ready, sources_of
from parquetry.model.state import State, TableState
from parquetry.storage.index_reader import open_index
from parquetry.storage.store import Store


def tables(state: State) -> list[dict[str, Any]]:
    return [
        {
            "table": t.name,
            "model": t.schema.model,
            "key": list(t.schema.key),
            "columns": {c.name: c.type for c in t.readable.columns},
            "values": dict(t.schema.values),
            "deltas": len(t.deltas),
            "rows": sum(d.rows for d in t.deltas),
            "bytes": sum(d.bytes for d in t.deltas),
            "qt": t.qt,
            "settings": t.settings.to_json(),
        }
        for t in sorted(state.tables.values(), key=lambda t: t.name)
    ]


def views(state: State) -> list[dict[str, Any]]:
    found = []
    for t in sorted(state.tables.values(), key=lambda t: t.name):
        if t.view is None:
            continue
        found.append(
            {
                "view": t.name,
                "sql": t.view.spec.sql,
                "over": [s.name for s in sources_of(state, t)],
                "key": list(t.schema.key),
                "kept_by": t.view.spec.how,
                "deltas": len(t.deltas),
                "rows": sum(d.rows for d in t.deltas),
                "bytes": sum(d.bytes for d in t.deltas),
                "built": t.view.built,
                "ready": ready(state, t),
                "waiting_deltas": len(pending(state, t)),
            }
        )
    return found


def deltas(state: State, table: str) -> list[dict[str, Any]]:
    return [
        {
            "delta": d.delta_id,
            "t_lo": d.t_lo,
            "t_hi": d.t_hi,
            "level": d.level,
            "rows": d.rows,
            "extra_rows": d.extra_rows,
            "bytes": d.bytes,
            "files": len(d.files),
            "visible": d.t_hi <= state.qt,
        }
        for d in state.table(table).deltas
    ]


def blocks(state: State, store: Store, table: str) -> list[dict[str, Any]]:
    """Every unit of skipping with its sizes and the ranges of the key columns; extra blocks are left out."""
    found = []
    t = state.table(table)
    for d in t.deltas:
        groups = open_index(store, d.index).row_groups().batch.to_pylist()
        for g in groups:
            if d.files[g["file"]].extra:
                continue
            found.append(
                {
                    "delta": d.delta_id,
                    "block": g["block"],
                    "file": d.files[g["file"]].path,
                    "row_group": g["row_group"],
                    "rows": g["rows"],
                    "bytes": g["bytes"],
                    "key_ranges": {k: [g.get(f"min.{k}"), g.get(f"max.{k}")] for k in t.schema.key},
                }
            )
    return found


def layout(t: TableState) -> dict[str, Any]:
    if t.layout is None:
        return {
            "table": t.name,
            "learner": "key",
            "columns": list(t.schema.key),
            "blocks": 1,
            "deltas_in_it": len(t.deltas),
        }
    told = {k: t.layout[k] for k in ("learner", "columns", "blocks", "options")}
    told |= {"extra_blocks": len(t.layout.get("extra", ())), "extra_rows": sum(d.extra_rows for d in t.deltas)}
    return {"table": t.name, **told, "deltas_in_it": sum(d.layout_id == t.layout_id for d in t.deltas)}


def freshness(catalog: Catalog) -> dict[str, Any]:
    """QTs, the lag, and what each waits for: work that someone does (``slow``), or that nobody does (``stalled``)."""
    state = catalog.state()
    waiting = [s for s in pick(state) if not isinstance(s, Advance)]
    at_work = catalog.live_resources("refresh:") | catalog.live_resources("rewrite:")
    rows = []
    for t in sorted(state.tables.values(), key=lambda t: t.name):
        own = t.deltas if t.view is None else pending(state, t)
        hidden = [d for d in own if d.t_hi > state.qt or t.view is not None]
        stage = next((str(s) for s in waiting if s.table == t.name), "")
        blocked = stage or "run maintain" if hidden and (stage or t.last_t > state.qt) else ""
        busy = {f"refresh:{t.table_id}", f"rewrite:{t.table_id}"} & at_work
        rows.append(
            {
                "table": t.name,
                "kind": "table" if t.view is None else "view",
                "qt": queryable(state, t),
                "gates": ready(state, t),
                "hidden_deltas": len(hidden),
                "hidden_rows": sum(d.rows for d in hidden),
                "waits_for": blocked,
                "progress": "" if not blocked else "slow" if busy else "stalled",
            }
        )
    since = catalog.hidden_since(state.qt)
    lag = 0.0 if since is None else round(max(0.0, catalog.now() - since), 3)
    return {
        "qt": state.qt,
        "clock": state.clock,
        "lag_s": lag,
        "target_lag_s": state.profile.target_lag_s if state.profile else None,
        "late": bool(state.profile and state.profile.target_lag_s and lag > state.profile.target_lag_s),
        "blocked_by": str(waiting[0]) if waiting and state.qt < state.clock else "",
        "tables": rows,
    }


def history(catalog: Catalog, table: str | None, limit: int) -> list[dict[str, Any]]:
    table_id = None if table is None else catalog.state().table(table).table_id
    return [
        {
            "version": r.version,
            "at": datetime.fromtimestamp(r.at, UTC).isoformat(timespec="seconds"),
            "t": r.t,
            "kind": r.kind,
            "detail": dict(r.detail),
        }
        for r in catalog.history(table_id, limit)
    ]
