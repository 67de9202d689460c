"""Every test that takes ``url`` or ``catalog`` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from parquetry.catalog import Catalog
from tests.postgres import postgres, postgres_url  # noqa: F401  fixtures


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    made = Catalog.create(url)
    yield made
    made.close()
