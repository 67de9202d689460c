from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.calling import Shell


@pytest.fixture
def nowhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """A command line whose warehouse does not exist."""
    return Shell(capsys, tmp_path / "warehouse")


@pytest.fixture
def shell(nowhere: Shell) -> Shell:
    """A command line in front of an empty warehouse with one table, ``sales``."""
    assert nowhere("init").code == 0
    made = nowhere("create-table", "sales", "--schema", "id bigint, day date, price decimal(9,2)", "--key", "id")
    assert made.code == 0, made.err
    return nowhere
