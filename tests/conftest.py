"""What all tests share: one Spark session, and marks that let the pure tests run without a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.fed import compacted, fed_folder, raw_files, reference, uncompacted  # noqa: F401  fixtures
from tests.templates import Templates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
# Most queries of the suite are run once over few rows: to generate and compile code takes longer than to run them.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz", "random texts and damage (tests/fuzz)")
    group.addoption("--fuzz-seconds", type=float, help="how long all parts take together; by default few, fixed cases")
    group.addoption("--fuzz-seed", type=int, default=1, help="which cases; the suite's are those of 1")
    group.addoption("--fuzz-case", type=int, help="only this case, to repeat a failure")
    group = parser.getgroup("machines", "random steps (tests/machine, tests/views/test_machine.py)")
    group.addoption("--steps", type=int, help="how many steps each machine takes; by default few")
    group.addoption("--machine-seed", type=int, default=1, help="which steps")
    parser.addoption("--random-joins", type=int, help="how many random joins tests/differential asks; by default few")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "join_seed" in metafunc.fixturenames:
        many = metafunc.config.getoption("--random-joins") or metafunc.module.RANDOM
        metafunc.parametrize("join_seed", range(metafunc.module.FIRST_SEED, metafunc.module.FIRST_SEED + many))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the run: two local cores, two shuffle partitions."""
    from parquetry.spark import session

    # Python workers unpickle functions by the name of their module, which may be a test.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), *([before] if before else [])])
    # Little runs often enough here for the JVM's best compiler, which took two fifths of its time.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    started = session("local[2]", {"spark.sql.shuffle.partitions": "2", **INTERPRETED})
    yield started
    started.stop()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session", autouse=True)
def patient() -> None:
    """No plan of a test depends on how busy the machine is."""
    from parquetry.query.rules import prune_join

    prune_join._MOST_SECONDS = 600.0


@pytest.fixture(scope="session")
def steps(request: pytest.FixtureRequest) -> int | None:
    """How many steps a machine should take; None: as many as it takes by itself."""
    wanted: int | None = request.config.getoption("--steps")
    return wanted


@pytest.fixture(scope="session")
def machine_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--machine-seed"))


@pytest.fixture(scope="session")
def templates(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Templates:
    return Templates(tmp_path_factory.mktemp("templates"), spark)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every test that uses the fixture `spark`, so that `-m 'not spark'` never starts a JVM.

    Runs that were asked to be long may be.
    """
    steps, seconds = config.getoption("--steps"), config.getoption("--fuzz-seconds")
    for item in items:
        uses = getattr(item, "fixturenames", ())
        if "spark" in uses:
            item.add_marker(pytest.mark.spark)
        if "steps" in uses and steps is not None:
            item.add_marker(pytest.mark.timeout(600 + 20 * steps))
        if "budget" in uses and seconds is not None:
            item.add_marker(pytest.mark.timeout(600 + 2 * seconds))
