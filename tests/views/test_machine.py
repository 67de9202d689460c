"""Ingestion, maintenance, views made and dropped in a random order: at every QT each view equals its definition.

PARQUETRY_MACHINE_STEPS sets how many steps each run takes, PARQUETRY_MACHINE_SEED which ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.views.view_machine import ViewMachine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = int(os.environ.get("PARQUETRY_MACHINE_STEPS", "40"))
SEED = int(os.environ.get("PARQUETRY_MACHINE_SEED", "1"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * STEPS)
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_views_equal_their_definitions_at_every_qt(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    machine = ViewMachine(random.Random(f"views {seed}"), tmp_path / "warehouse", spark)
    try:
        machine.run(STEPS)
        assert machine.checked
    except Exception as e:
        e.add_note(f"repeat with PARQUETRY_MACHINE_SEED={seed} PARQUETRY_MACHINE_STEPS={STEPS}")
        raise
    finally:
        machine.close()
