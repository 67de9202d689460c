"""Makes views, and performs the SQL statements about views and the profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parquetry.catalog import Catalog, definitions
from parquetry.maintain.tune import set_profile
from parquetry.model.settings import Settings
from parquetry.query.planning.definition import compile_definition
from parquetry.views.create import create_view_edit
from parquetry.views.parse_statement import CreateView, SetProfile, Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_view(
    catalog: Catalog,
    spark: Callable[[], SparkSession],
    name: str,
    query: str,
    order: Sequence[str] = (),
    settings: Settings | Mapping[str, Any] | None = None,
) -> None:
    """Commits the view's definition; maintenance fills it."""
    state = catalog.state()
    made = definitions.settings_under(state.profile, settings, view=True)
    edit = create_view_edit(spark, state, name, query, order, made, compile_definition)
    catalog.commit([edit], kind="create view", detail={"table": name, "sql": query})


def perform(catalog: Catalog, spark: Callable[[], SparkSession], statement: Statement) -> str:
    """Does what the statement says and tells what was done, in one line."""
    if isinstance(statement, SetProfile):
        made = set_profile(catalog, statement.name, statement.targets)
        return f"profile '{made.name}': {made.to_json()}"
    there = {t.name.lower() for t in catalog.state().tables.values()}
    if isinstance(statement, CreateView):
        if statement.if_not_exists and statement.name.lower() in there:
            return f"'{statement.name}' is there already"
        create_view(catalog, spark, statement.name, statement.sql, statement.order)
        return f"made the view '{statement.name}'; maintain fills it"
    if statement.if_exists and statement.name.lower() not in there:
        return f"there is no view '{statement.name}'"
    definitions.drop_view(catalog, statement.name)
    return f"dropped the view '{statement.name}'"
