"""What there is in a warehouse, as plain rows for printing and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError
from parquetry.maintain.pick import Advance, Compact, Refresh, pick
from parquetry.maintain.retry import cannot_show
from parquetry.model.delta import Delta
from parquetry.model.layout import cut_columns
from parquetry.model.queryable import candidate, pending, queryable, ready, sources_of
from parquetry.model.state import State, TableState
from parquetry.storage.index_reader import open_index
from parquetry.storage.leased import taken_by
from parquetry.storage.store import Store

_NEW_S = 60.0  # so long a batch may wait for a worker before nobody seems to come


def tables(state: State) -> list[dict[str, Any]]:
    return [
        {
            "table": t.name,
            "model": t.schema.model,
            "key": list(t.schema.key),
            "columns": {c.name: c.type for c in t.readable.columns},
            "values": dict(t.schema.values),
            "deltas": len(t.deltas),
            "rows": t.rows,
            "bytes": t.bytes,
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
                "rows": t.rows,
                "bytes": t.bytes,
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
    told: dict[str, Any] = {"table": t.name, "learner": t.learner, "columns": list(t.schema.key), "blocks": t.blocks}
    if t.layout is None:
        return {**told, "deltas_in_it": len(t.deltas)}
    told |= {"columns": list(cut_columns(t.layout)), "options": dict(t.layout.options)}
    told |= {"extra_blocks": len(t.layout.extra), "extra_rows": sum(d.extra_rows for d in t.deltas)}
    return {**told, "deltas_in_it": sum(d.layout_id == t.layout_id for d in t.deltas)}


def freshness(catalog: Catalog, store: Store) -> dict[str, Any]:
    """QTs, the lag, and what each table waits for: work that someone does (``slow``), that nobody does yet (``new``),
    that nobody does after a while or ever can (``stalled``)."""
    state = catalog.state()
    now = catalog.now()
    stages = {s.table: s for s in reversed(pick(state)) if not isinstance(s, Advance)}
    broken = cannot_show(store, state)
    at_work = taken_by(catalog)
    patience = max(_NEW_S, state.profile.target_lag_s if state.profile else 0.0)

    def overdue(hidden: Sequence[Delta]) -> bool:
        since = catalog.hidden_since(min(d.t_lo for d in hidden) - 1) if hidden else None
        return since is None or now - since > patience

    rows = []
    for t in sorted(state.tables.values(), key=lambda t: t.name):
        hidden = [d for d in t.deltas if d.t_hi > state.qt] if t.view is None else pending(state, t)
        reason = broken.get(t.table_id)
        waits = str(reason or stages.get(t.name) or "") if hidden or reason else ""
        waits = waits or ("run maintain" if hidden and t.last_t > state.qt else "")
        rows.append(
            {
                "table": t.name,
                "kind": "table" if t.view is None else "view",
                "qt": t.qt if reason else queryable(state, t),
                "gates": ready(state, t),
                "hidden_deltas": len(hidden),
                "hidden_rows": sum(d.rows for d in hidden),
                "waits_for": waits,
                "progress": _progress(overdue(hidden), t.table_id in at_work, reason) if waits else "",
            }
        )
    since = catalog.hidden_since(state.qt)
    lag = 0.0 if since is None else round(max(0.0, now - since), 3)
    return {
        "qt": state.qt,
        "clock": state.clock,
        "lag_s": lag,
        "target_lag_s": state.profile.target_lag_s if state.profile else None,
        "late": bool(state.profile and state.profile.target_lag_s and lag > state.profile.target_lag_s),
        "blocked_by": _blocked_by(state, stages, broken) if state.qt < state.clock else "",
        "tables": rows,
    }


def _progress(overdue: bool, at_work: bool, broken: Exception | None) -> str:
    if broken is not None:
        return "stalled"
    return "slow" if at_work else "stalled" if overdue else "new"


def _blocked_by(state: State, stages: Mapping[str, Compact | Refresh], broken: Mapping[int, Exception]) -> str:
    """What holds the database's QT back: what cannot be read, else the work on the table whose own QT is lowest."""
    if broken and candidate(state, broken) < state.clock:
        names = {t.table_id: t.name for t in state.tables.values()}
        return str(broken[min(broken, key=lambda i: names[i])])
    lowest = sorted((queryable(state, t), t.name) for t in state.tables.values() if ready(state, t))
    waiting = [stages[name] for qt, name in lowest if qt < state.clock and name in stages]
    return str(next(iter(waiting or stages.values()), ""))


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (TypeError, ValueError, OverflowError, OSError):
        raise CatalogError(f"the catalog is damaged: {at!r} is no time; restore it from a copy") from None


def history(catalog: Catalog, table: str | None, limit: int) -> list[dict[str, Any]]:
    table_id = None if table is None else catalog.state().table(table).table_id
    return [
        {
            "version": r.version,
            "at": _moment(r.at),
            "t": r.t,
            "kind": r.kind,
            "detail": dict(r.detail),
        }
        for r in catalog.history(table_id, limit)
    ]
