from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import rows
from tests.fuzz.cases import Budget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A long run may take as long as it was told to; what hangs is noticed by the tests themselves."""
    seconds = config.getoption("--fuzz-seconds")
    for item in items:
        if seconds is not None and "budget" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(600 + 2 * seconds))


_QUICK = {
    "spark.sql.session.timeZone": "UTC",
    # Every text is new and its rows are few: to generate and compile code for it takes longer than to run it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def quick_session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for name, value in _QUICK.items():
        session.conf.set(name, value)
    return session


@pytest.fixture(scope="session")
def quick(spark: SparkSession) -> SparkSession:
    """A session for many small queries, each of which is run once."""
    return quick_session(spark)


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
    session = quick_session(spark)
    for name, table in rows.visible().items():
        session.createDataFrame(table).createOrReplaceTempView(name)
    return session
