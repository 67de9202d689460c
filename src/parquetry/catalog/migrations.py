"""The format of the catalog's tables, and how an older one becomes the current one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.errors import CatalogError

FIRST_FORMAT = 1


@dataclass(frozen=True)
class Migration:
    """Brings tables of the format before ``to`` to ``to``; ``apply`` runs inside the upgrade's transaction."""

    to: int
    why: str
    apply: Callable[[sa.Connection], None]


def _add_views(conn: sa.Connection) -> None:
    for table in (sql.views, sql.built):
        table.create(conn)


def _add_visible(conn: sa.Connection) -> None:
    conn.exec_driver_sql(f"ALTER TABLE {sql.clock.name} ADD COLUMN visible BIGINT NOT NULL DEFAULT 0")
    conn.execute(sql.clock.update().values(visible=sql.clock.c.version))


def _index_live_rows(conn: sa.Connection) -> None:
    for name in ("ix_parquetry_queryable_table_id", "ix_parquetry_labels_t", "parquetry_deltas_in_time"):
        conn.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
    for index in (*sql.one_live_row, sql.live_deltas, sql.schemas_of_table):
        index.create(conn, checkfirst=True)


def _add_ages(conn: sa.Connection) -> None:
    for table, column in ((sql.labels, "at"), (sql.pins, "since")):
        conn.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column} DOUBLE PRECISION")
    of_version = sa.select(sql.versions.c.at).where(sql.versions.c.version == sql.labels.c.version)
    conn.execute(sql.labels.update().values(at=of_version.scalar_subquery()))


# Ordered, without gaps, never edited once released.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(2, "views", _add_views),
    Migration(3, "readers need not look at commits that show them nothing", _add_visible),
    Migration(4, "commits and opening take as long whatever the history", _index_live_rows),
    Migration(5, "retention goes by age, and a pin tells since when it holds", _add_ages),
)


def newest_format() -> int:
    return MIGRATIONS[-1].to if MIGRATIONS else FIRST_FORMAT


def create_tables(db: Database) -> None:
    """Makes an empty catalog of the newest format, or nothing at all."""
    if db.sqlite:
        with db.single() as conn:
            conn.exec_driver_sql("PRAGMA journal_mode=WAL")
    with db.write() as conn:
        if stored_format(conn) is not None:
            raise CatalogError(f"there is a catalog in {db.where} already; open it, or choose another place")
        sql.metadata.create_all(conn, checkfirst=False)
        conn.execute(sql.meta.insert(), [{"name": "format", "value": newest_format()}, {"name": "horizon", "value": 0}])
        conn.execute(sql.clock.insert().values(one=1, version=0, t=0, visible=0))
        conn.execute(sql.versions.insert().values(version=0, at=db.now(conn), t=0, kind="create catalog"))
        conn.execute(sql.queryable.insert().values(table_id=0, qt=0, added_version=0))


def upgrade(db: Database) -> None:
    """Checks that this is a catalog we can read and applies what it lacks, all in one transaction."""
    with db.read() as conn:
        if _checked_format(conn, db) == newest_format():
            return
    with db.write() as conn:
        db.take_time(conn)
        conn.execute(sa.select(sql.clock.c.version).with_for_update())
        stored = _checked_format(conn, db)
        for migration in MIGRATIONS:
            if migration.to > stored:
                migration.apply(conn)
                conn.execute(sql.meta.update().where(sql.meta.c.name == "format").values(value=migration.to))


def stored_format(conn: sa.Connection) -> int | None:
    """The format of the catalog in this database; None when it holds none."""
    if not sa.inspect(conn).has_table(sql.meta.name):
        return None
    return conn.execute(sa.select(sql.meta.c.value).where(sql.meta.c.name == "format")).scalar()


def _checked_format(conn: sa.Connection, db: Database) -> int:
    stored = stored_format(conn)
    if stored is None:
        raise CatalogError(f"{db.where} holds no Parquetry catalog; make one with 'parquetry init', or check the URL")
    if stored > newest_format():
        raise CatalogError(
            f"the catalog {db.where} has format {stored}, this Parquetry reads up to {newest_format()}; "
            "install a newer Parquetry"
        )
    return stored
