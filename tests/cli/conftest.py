from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import parquetry
from tests.cli.calling import Shell


@pytest.fixture(scope="package", autouse=True)
def one_application() -> Iterator[None]:
    """A process calls the command once; here it is built once for all calls, which takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def nowhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """A command line whose warehouse does not exist."""
    return Shell(capsys, tmp_path / "warehouse")


@pytest.fixture(scope="session")
def with_sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sales") / "warehouse"
    with parquetry.connect(folder) as wh:
        wh.create_table("sales", "id bigint, day date, price decimal(9,2)", key=["id"])
    return folder


@pytest.fixture
def shell(nowhere: Shell, with_sales: Path) -> Shell:
    """A command line in front of an empty warehouse with one table, ``sales``."""
    shutil.copytree(with_sales, nowhere.warehouse)
    return nowhere
