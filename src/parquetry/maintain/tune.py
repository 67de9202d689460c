"""A database's profile as settings of its tables and views, and their adaptation to what is read (NA-01, NA-22)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from parquetry.catalog import Catalog
from parquetry.model.profile import Profile, profile_of
from parquetry.model.state import ChangeProfile, ChangeSettings, Edit, State

_NEWEST_QUERIES = 1_000  # they tell how often a table is read


def _read(state: State, query: Mapping[str, Any]) -> set[str]:
    """The lowered names of the tables and views that a logged query really read."""
    view = state.tables.get(str((query["stats"] or {}).get("view")))
    covered = set() if view is None or view.view is None else {s.table_id for s in view.view.spec.sources}
    return {n.lower() for n in query["tables"]} - {
        t.name.lower() for t in state.tables.values() if t.table_id in covered
    }


def set_profile(catalog: Catalog, name: str | None, targets: Mapping[str, Any]) -> Profile:
    """Keeps the profile and compiles it into the settings of all tables and views, in one commit."""
    state = catalog.state()
    profile = profile_of(name, targets, state.profile)
    edits = [ChangeProfile(profile), *tuned(state, profile, catalog.queries(_NEWEST_QUERIES))]
    catalog.commit(edits, kind="profile", detail={"profile": profile.name})
    return profile


def tune(catalog: Catalog) -> int:
    """Compiles the profile again with how often tables are read now; how many settings changed."""
    state = catalog.state()
    edits = [] if state.profile is None else tuned(state, state.profile, catalog.queries(_NEWEST_QUERIES))
    if edits:
        catalog.commit(edits, kind="tune", detail={"tables": len(edits)})
    return len(edits)


def tuned(state: State, profile: Profile, newest: Sequence[Mapping[str, Any]]) -> list[Edit]:
    """The settings that change under the profile, given the ``newest`` rows of the query log."""
    edits: list[Edit] = []
    read = Counter(name for q in newest for name in _read(state, q))
    for t in state.tables.values():
        reads = read[t.name.lower()] if newest else None
        settings = profile.compiled(t.settings, reads)
        if settings != t.settings:
            edits.append(ChangeSettings(t.table_id, settings))
    return edits
