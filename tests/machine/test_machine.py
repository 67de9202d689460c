"""Random operations against a plain in-memory model, on both catalogs.

The options --steps and --machine-seed say how many steps each run takes and which ones. A failure prints both and the
steps taken, so that it can be repeated.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.machine.machine import Machine
from tests.postgres import postgres, postgres_url  # noqa: F401  fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 45


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_warehouse_answers_as_the_model_does(
    catalog: str,
    which: int,
    steps: int | None,
    machine_seed: int,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    many = steps or STEPS
    url = str(request.getfixturevalue("postgres_url")) if catalog == "postgres" else None
    # Its own numbers for each catalog: the same law on more paths.
    machine = Machine(random.Random(f"{catalog} {machine_seed + which}"), tmp_path / "warehouse", url, spark)
    try:
        machine.run(many)
    except Exception as e:
        e.add_note(f"repeat with --machine-seed {machine_seed} --steps {many} -k {catalog}-{which}")
        raise
    finally:
        machine.close()
