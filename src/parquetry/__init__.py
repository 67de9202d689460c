"""Parquetry: a warehouse layer for Spark whose data layout learns from the queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parquetry.errors import ParquetryError

if TYPE_CHECKING:
    from parquetry.model.schema import Column, TableSchema
    from parquetry.model.settings import Settings
    from parquetry.warehouse import Warehouse, connect

__version__ = "0.1.0"
__all__ = ["Column", "ParquetryError", "Settings", "TableSchema", "Warehouse", "connect"]

_HOME = {
    "connect": "parquetry.warehouse",
    "Warehouse": "parquetry.warehouse",
    "TableSchema": "parquetry.model.schema",
    "Column": "parquetry.model.schema",
    "Settings": "parquetry.model.settings",
}


def __getattr__(name: str) -> Any:
    """The public names load on first use, so that importing the package stays instant."""
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'parquetry' has no attribute '{name}'")
