"""Warehouses that several tests begin with: each is filled once and copied for everybody."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import parquetry
from parquetry.warehouse import Warehouse


class Templates:
    """Filled warehouses by name, under a folder of their own."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self._folder, self._spark = folder, spark

    @contextmanager
    def copied(self, name: str, to: Path, fill: Callable[[Warehouse], None]) -> Iterator[Warehouse]:
        """An open copy of what ``fill`` made of an empty warehouse when the name was first asked for."""
        template = self._folder / name
        if not template.exists():
            draft = self._folder / f"{name}-draft"
            with parquetry.connect(draft, spark=self._spark) as wh:
                fill(wh)
            draft.rename(template)
        shutil.copytree(template, to)
        with parquetry.connect(to, spark=self._spark) as wh:
            yield wh
