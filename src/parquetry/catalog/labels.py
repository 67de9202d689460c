"""Labels: which batches were ingested before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.errors import LabelConflict
from parquetry.model.state import AddDelta, Edit, Label

LABEL = tuple(sql.labels.c[f.name] for f in fields(Label))


def not_yet_ingested(conn: sa.Connection, edits: Sequence[Edit]) -> tuple[list[Edit], Label | None]:
    """The edits without the batches whose label is there with the same data, and the last such label.

    The same label with other data is a conflict: nobody can tell which of the two was meant.
    """
    remaining: list[Edit] = []
    repeated = None
    for edit in edits:
        known = find_label(conn, edit.table_id, edit.label) if isinstance(edit, AddDelta) else None
        if known is None or not isinstance(edit, AddDelta):
            remaining.append(edit)
        elif (known.digest, known.rows_in) == (edit.digest, edit.rows_in):
            repeated = known
        else:
            name = conn.execute(sa.select(sql.tables.c.name).where(sql.tables.c.table_id == edit.table_id)).scalar()
            raise LabelConflict(str(name), edit.label)
    return remaining, repeated


def find_label(conn: sa.Connection, table_id: int, label: str) -> Label | None:
    wanted = sa.select(*LABEL).where(sql.labels.c.table_id == table_id, sql.labels.c.label == label)
    row = conn.execute(wanted).mappings().one_or_none()
    return None if row is None else Label(**row)
