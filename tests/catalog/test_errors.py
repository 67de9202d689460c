"""A catalog that cannot be used says so in one line that tells what to do, and never shows a password."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from parquetry.catalog import Catalog, migrations
from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.catalog.migrations import Migration
from parquetry.errors import CatalogError
from tests.catalog.building import create


def refusal(action: Callable[[str], Catalog], url: str) -> str:
    with pytest.raises(CatalogError) as caught:
        action(url)
    message = str(caught.value)
    assert "\n" not in message
    assert "secret" not in message
    return message


@pytest.mark.parametrize("action", [Catalog.open, Catalog.create])
def test_an_unreachable_database(action: Callable[[str], Catalog]) -> None:
    message = refusal(action, "postgresql+psycopg://me:secret@127.0.0.1:1/warehouse")
    assert message.startswith("cannot reach the catalog 'postgresql://127.0.0.1:1/warehouse'")
    assert message.endswith("check that the database runs and the URL is right")
    assert refusal(action, "postgres://me@127.0.0.1:1/warehouse?password=secret").startswith("cannot reach")


@pytest.mark.parametrize("bad", ["", "nonsense", "sqlite://", "mysql://me:secret@host/db", "postgresql://h:port/x"])
def test_a_url_that_is_none_of_ours(bad: str) -> None:
    assert "sqlite:///FILE" in refusal(Catalog.open, bad)


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    assert "parquetry init" in refusal(Catalog.open, f"sqlite:///{tmp_path / 'catalog.db'}")
    assert list(tmp_path.iterdir()) == []
    assert "folder exists" in refusal(Catalog.create, f"sqlite:///{tmp_path / 'missing' / 'catalog.db'}")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_text("id,price\n1,2\n" * 1000)
    assert "not a Parquetry catalog" in refusal(Catalog.open, f"sqlite:///{path}")


def test_a_database_without_a_catalog(url: str) -> None:
    db = Database(url)
    with db.write() as conn:
        conn.execute(sa.text("CREATE TABLE other (a int)"))
    db.close()
    assert "holds no Parquetry catalog" in refusal(Catalog.open, url)


def test_a_half_deleted_catalog(catalog: Catalog) -> None:
    with catalog._db.write() as conn:
        conn.execute(sa.text("DROP TABLE parquetry_deltas"))
    with pytest.raises(CatalogError, match="incomplete"):
        create(catalog)


def test_a_busy_sqlite_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parquetry.catalog.database.BUSY_SECONDS", 0.1)
    catalog = Catalog.create(f"sqlite:///{tmp_path / 'catalog.db'}")
    other = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CatalogError, match="busy"):
        create(catalog)
    other.execute("ROLLBACK")
    other.close()
    create(catalog)
    catalog.close()


def test_a_newer_format_is_refused(catalog: Catalog, url: str) -> None:
    with catalog._db.write() as conn:
        conn.execute(sql.meta.update().where(sql.meta.c.name == "format").values(value=99))
    assert "install a newer Parquetry" in refusal(Catalog.open, url)


def add_owner(conn: sa.Connection) -> None:
    conn.execute(sa.text("ALTER TABLE parquetry_tables ADD COLUMN owner text"))


def fail(conn: sa.Connection) -> None:
    conn.execute(sa.text("SELECT * FROM nowhere"))


def test_an_older_format_is_brought_up_to_date_or_left_as_it_was(
    catalog: Catalog, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog)
    state = catalog.state()

    def columns() -> set[str]:
        return {c["name"] for c in sa.inspect(catalog._db.engine).get_columns("parquetry_tables")}

    first = migrations.newest_format() + 1
    upgrades = (Migration(first, "tables have owners", add_owner), Migration(first + 1, "never works", fail))
    monkeypatch.setattr(migrations, "MIGRATIONS", upgrades)
    refusal(Catalog.open, url)
    assert "owner" not in columns()

    monkeypatch.setattr(migrations, "MIGRATIONS", upgrades[:1])
    for _ in range(2):  # the second time there is nothing left to do
        upgraded = Catalog.open(url)
        assert upgraded.state() == state
        upgraded.close()
    assert "owner" in columns()
    with catalog._db.read() as conn:
        assert migrations.stored_format(conn) == first

    monkeypatch.setattr(migrations, "MIGRATIONS", ())
    assert f"format {first}" in refusal(Catalog.open, url)
