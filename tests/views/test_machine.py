"""Ingestion, maintenance, views made and dropped, and crashes in a random order: each view equals its definition.

The options --steps and --machine-seed say how many steps each run takes besides the crashes, and which ones. The two
runs meet a crash at every failpoint between them; with the next seed each catalog meets the other half.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parquetry.failpoints import FAILPOINTS
from parquetry.views import refresh
from tests.postgres import postgres, postgres_url  # noqa: F401  fixtures
from tests.views.view_crashes import CRASHES, share
from tests.views.view_machine import ViewMachine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 5
BEGIN = ({"prefix", "exact", "joined", "view"}, {"merged", "upserted", "joined", "view"})
"""The kinds of views that a run begins with, by its seed."""


def test_there_is_a_crash_at_every_failpoint() -> None:
    assert {point for _, point in CRASHES} == {name for name, _ in FAILPOINTS}
    assert sorted(share(1, 2) + share(2, 2)) == sorted(CRASHES)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("catalog", "which"), [("sqlite", 0), pytest.param("postgres", 1, marks=pytest.mark.postgres)])
def test_views_equal_their_definitions_at_every_qt(
    catalog: str,
    which: int,
    steps: int | None,
    machine_seed: int,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many, seed = steps or STEPS, machine_seed + which
    url = str(request.getfixturevalue("postgres_url")) if catalog == "postgres" else None
    if catalog == "postgres":
        monkeypatch.setattr(refresh, "AT_ONCE_ROWS", 0)  # as large deltas are taken in
    machine = ViewMachine(random.Random(f"views {catalog} {seed}"), tmp_path / "warehouse", url, spark)
    try:
        machine.run(many, share(seed, 2), first_kind=seed % 2 * 4)
    except Exception as e:
        e.add_note(f"repeat with --machine-seed {machine_seed} --steps {many} -k {catalog}")
        raise
    finally:
        machine.close()
    for what, times in sorted(machine.met.items()):
        print(f"{times:5d} {what}")  # shown with pytest -s
    kinds = {what.removeprefix("kind: ").split()[0] for what in machine.met if what.startswith("kind: ")}
    assert kinds >= BEGIN[seed % 2]
    assert machine.met["checked"] > many
