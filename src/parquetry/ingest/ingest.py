"""One batch into one delta: check, sort, write, commit. Never waits for compaction, views or readers (NA-14, NA-18)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry import failpoints
from parquetry.catalog import Catalog, LeaseKeeper
from parquetry.errors import CatalogError, LabelConflict, ParquetryError, SchemaError, StorageError
from parquetry.ingest.conform import conform, digest_of
from parquetry.ingest.here import digest_here, fitted_here
from parquetry.ingest.in_parts import readable_in_parts, write_in_parts
from parquetry.ingest.sources import Files, as_frame, taken_in, write_tasks
from parquetry.layouts.write_rows import routes_here, write_rows
from parquetry.model.state import AddDelta, Commit, TableState
from parquetry.storage.delta_writer import DeltaJob, delta_directory, new_delta_id
from parquetry.storage.explain_failure import explain_failure
from parquetry.storage.store import Store
from parquetry.storage.write_attempt import attempt, clean_up, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXECUTORS = ("auto", "spark")


@dataclass(frozen=True)
class Ingested:
    """What became of a batch. ``repeated``: its label was there already, nothing was changed."""

    table: str
    label: str
    t: int
    version: int
    rows: int
    repeated: bool


def ingestable(catalog: Catalog, table: str) -> str:
    """The name of the table that batches go into; a view takes none."""
    found = catalog.state().table(table)
    if found.view is not None:
        raise SchemaError(f"'{found.name}' is a view: ingest into the tables it reads instead")
    return found.name


def ingest(
    catalog: Catalog,
    store: Store,
    spark: Callable[[], SparkSession],
    table: str,
    source: Any,
    *,
    label: str | None = None,
    tasks: int | None = None,
    executor: str = "auto",
) -> Ingested:
    """Commits ``source`` as one delta of ``table``, exactly once for each ``label``.

    A small batch is written in the process, unless ``executor`` is ``spark`` or several ``tasks`` are asked for.
    """
    if executor not in EXECUTORS:
        raise ParquetryError(f"unknown executor '{executor}' of an ingest; choose one of {', '.join(EXECUTORS)}")
    state = catalog.state().table(table)
    name = state.name
    label = label if label is not None else f"auto-{uuid.uuid4().hex}"
    try:
        taken = taken_in(source, state.schema, name)
        fitted = None if executor == "spark" or tasks not in (None, 1) else _fitted_here(taken, state)
        before = catalog.label(state.table_id, label)
        # A batch that is there already is only counted and hashed.
        if fitted is None and (before is not None or not readable_in_parts(taken, state)):
            fitted = conform(as_frame(spark(), taken, state.schema, name), state.schema, name)
        if before is not None:
            if _digest(fitted) != (before.rows_in, before.digest):
                raise LabelConflict(name, label)
            return Ingested(name, label, before.t, before.version, before.rows_in, repeated=True)
        delta_id = new_delta_id()
        with attempt(catalog, delta_id, label) as kept:
            failpoints.reach("ingest.start")
            try:
                written = None
                if fitted is None:
                    assert isinstance(taken, Files)
                    written = write_in_parts(spark(), store, state, taken, delta_id, tasks)
                if written is None:
                    if fitted is None:
                        fitted = conform(as_frame(spark(), taken, state.schema, name), state.schema, name)
                    written = write_rows(fitted, store, _job(state, delta_id, fitted, tasks))
                failpoints.reach("ingest.before_commit")
                edit = AddDelta(state.table_id, label, written.digest, written.rows_in, written.delta)
                detail = {"table": name, "label": label}
                commit = _committed(catalog, edit, kept, detail)
            except BaseException:
                clean_up(catalog, store, state.table_id, delta_id)
                raise
            # From here on the batch is in: nothing may look like a failure, or who has no label ingests it again.
            if commit.repeated:  # another writer committed the same label first
                with suppress(StorageError):  # vacuum will
                    store.delete_dir(delta_directory(state.table_id, delta_id))
            failpoints.reach("ingest.committed")
    except ParquetryError:
        raise
    except Exception as e:
        raise explain_failure(e, name) from e
    assert commit.label is not None
    return Ingested(name, label, commit.label.t, commit.version, written.rows_in, commit.repeated)


def _fitted_here(taken: Any, table: TableState) -> pa.Table | None:
    if not routes_here(table.layout) or not isinstance(taken, pa.Table | Files):
        return None
    return fitted_here(taken, table.schema, table.name, table.settings.in_process_bytes)


def _digest(fitted: Any) -> tuple[int, str]:
    return digest_here(fitted) if isinstance(fitted, pa.Table) else digest_of(fitted)


def _job(table: TableState, delta_id: str, fitted: Any, tasks: int | None) -> DeltaJob:
    return DeltaJob(table, delta_id, 1 if isinstance(fitted, pa.Table) else write_tasks(fitted, tasks))


def _committed(catalog: Catalog, edit: AddDelta, kept: LeaseKeeper, detail: dict[str, Any]) -> Commit:
    """Commits. Where the catalog's answer is lost, the batch's label tells whether it was done."""
    try:
        return catalog.commit([edit], kind="ingest", lease=kept.lease, detail=detail)
    except CatalogError:
        found = _done_all_the_same(catalog, edit)
        if found is None:
            raise
        return found


def _done_all_the_same(catalog: Catalog, edit: AddDelta) -> Commit | None:
    if edit.delta is None:
        return None  # no delta says whose the label is
    with suppress(CatalogError):
        settle(catalog)
        if edit.delta.delta_id in catalog.known_delta_ids():
            label = catalog.label(edit.table_id, edit.label)
            assert label is not None, "it came with the delta"
            return Commit(label.version, label.t, label)
    return None
