from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import rows
from tests.fuzz.cases import Budget
from tests.fuzz.quick import made_quick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def quick(spark: SparkSession) -> SparkSession:
    """A session for many small queries, each of which is run once."""
    return made_quick(spark.newSession())


@pytest.fixture(scope="session")
def budget(request: pytest.FixtureRequest) -> Budget:
    option = request.config.getoption
    return Budget(option("--fuzz-seed"), option("--fuzz-seconds"), option("--fuzz-case"))


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed warehouse with the tables of ``rows``; to be copied by whoever changes it."""
    folder = tmp_path_factory.mktemp("fuzz") / "warehouse"
    rows.fill(folder)
    return folder


@pytest.fixture(scope="session")
def plain(spark: SparkSession) -> SparkSession:
    """Plain Spark over the rows that the tables should show."""
    session = made_quick(spark.newSession())
    for name, table in rows.visible().items():
        session.createDataFrame(table).createOrReplaceTempView(name)
    return session
