"""Random operations against a plain in-memory model, on both catalogs.

PARQUETRY_MACHINE_STEPS sets how many steps each run takes, PARQUETRY_MACHINE_SEED which ones. A failure prints both
and the steps taken, so that it can be repeated.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.machine.machine import Machine
from tests.postgres import postgres, postgres_url  # noqa: F401  fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = int(os.environ.get("PARQUETRY_MACHINE_STEPS", "120"))
SEED = int(os.environ.get("PARQUETRY_MACHINE_SEED", "1"))


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * STEPS)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_warehouse_answers_as_the_model_does(
    catalog: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if catalog == "postgres" else None
    # Its own numbers for each catalog: the same law on more paths.
    machine = Machine(random.Random(f"{catalog} {seed}"), tmp_path / "warehouse", url, spark)
    try:
        machine.run(STEPS)
    except Exception as e:
        e.add_note(f"repeat with PARQUETRY_MACHINE_SEED={seed} PARQUETRY_MACHINE_STEPS={STEPS}, -k {catalog}")
        raise
    finally:
        machine.close()
