"""Parquetry: a warehouse layer for Spark whose data layout learns from the queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parquetry.errors import ParquetryError as ParquetryError

if TYPE_CHECKING:
    from parquetry.ingest.ingest import Ingested as Ingested
    from parquetry.ingest.like import schema_like as schema_like
    from parquetry.maintain.compare import AdviseOptions as AdviseOptions
    from parquetry.maintain.pick import Stage as Stage
    from parquetry.maintain.relayout import Relaid as Relaid
    from parquetry.maintain.retry import Failed as Failed
    from parquetry.maintain.retry import Left as Left
    from parquetry.maintain.vacuum import Vacuumed as Vacuumed
    from parquetry.maintain.verdict import Advice as Advice
    from parquetry.maintain.verdict import Measured as Measured
    from parquetry.maintain.verify import Problem as Problem
    from parquetry.maintain.what_if import Checked as Checked
    from parquetry.maintain.what_if import WhatIf as WhatIf
    from parquetry.model.layout_options import RelayoutOptions as RelayoutOptions
    from parquetry.model.profile import Profile as Profile
    from parquetry.model.retention import Retention as Retention
    from parquetry.model.schema import Column as Column
    from parquetry.model.schema import TableSchema as TableSchema
    from parquetry.model.settings import Settings as Settings
    from parquetry.priority import in_background as in_background
    from parquetry.query.demands import Imported as Imported
    from parquetry.query.explain import Explanation as Explanation
    from parquetry.query.result import Result as Result
    from parquetry.views.lattice import Suggested as Suggested
    from parquetry.warehouse import Warehouse as Warehouse
    from parquetry.warehouse import connect as connect

__version__ = "0.1.0"
_HOMES = {
    "ingest.ingest": ("Ingested",),
    "ingest.like": ("schema_like",),
    "maintain.compare": ("AdviseOptions",),
    "maintain.retry": ("Failed", "Left"),
    "maintain.pick": ("Stage",),
    "maintain.relayout": ("Relaid",),
    "maintain.vacuum": ("Vacuumed",),
    "maintain.verdict": ("Advice", "Measured"),
    "maintain.verify": ("Problem",),
    "maintain.what_if": ("Checked", "WhatIf"),
    "model.layout_options": ("RelayoutOptions",),
    "model.profile": ("Profile",),
    "model.retention": ("Retention",),
    "model.schema": ("Column", "TableSchema"),
    "model.settings": ("Settings",),
    "priority": ("in_background",),
    "query.demands": ("Imported",),
    "query.explain": ("Explanation",),
    "query.result": ("Result",),
    "views.lattice": ("Suggested",),
    "warehouse": ("Warehouse", "connect"),
}
_HOME = {name: f"parquetry.{module}" for module, names in _HOMES.items() for name in names}
__all__ = ["ParquetryError", *_HOME]


def __getattr__(name: str) -> Any:
    """The public names load on first use, so that importing the package stays instant."""
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'parquetry' has no attribute '{name}'")
