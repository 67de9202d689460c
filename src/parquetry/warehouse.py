"""The warehouse: everything that the command line, programs and other front ends do goes through this class."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry import report
from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, SchemaError, WarehouseError
from parquetry.ingest.ingest import Ingested, ingest
from parquetry.ingest.sources import check_paths
from parquetry.ingest.stream import start_stream
from parquetry.maintain.pick import Stage, pick
from parquetry.maintain.relayout import Phase, Relaid, RelayoutOptions, relayout
from parquetry.maintain.run import Maintainer
from parquetry.maintain.vacuum import DEFAULT_GRACE_S, Vacuumed, vacuum
from parquetry.maintain.verify import Problem, verify
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import ChangeSchema, ChangeSettings, CreateTable, DropTable
from parquetry.model.types import arrow_type, parse_columns, type_name
from parquetry.progress import Listener, watch_tasks
from parquetry.query.engine import Engine
from parquetry.query.explain import Explanation
from parquetry.query.picture import draw_table
from parquetry.query.result import Result
from parquetry.query.workload import Imported, import_queries, logged_workload, split_statements, workload_of
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMAT = 1
_DESCRIPTION = "parquetry.json"
_CATALOG = "catalog.db"
_ROOT = "data"


def connect(
    path: str | os.PathLike[str] = "warehouse",
    *,
    catalog: str | None = None,
    create: bool = True,
    spark: SparkSession | None = None,
) -> Warehouse:
    """Opens the warehouse in folder ``path``; makes one there if the folder is missing or empty and ``create`` is set.

    ``catalog`` is the address of the catalog's database (``postgresql://…``), by default SQLite in the folder;
    the environment variable PARQUETRY_CATALOG overrides the address that the warehouse remembers.
    ``spark`` is the session to use; without one the first operation that needs Spark starts it.
    """
    folder = Path(path)
    description = folder / _DESCRIPTION
    if not description.exists():
        if folder.exists() and not folder.is_dir():
            raise WarehouseError(f"'{folder}' is a file; name a folder for the warehouse")
        if create:
            _remove_unfinished(folder)
        leftovers = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
        if _CATALOG in leftovers or _ROOT in leftovers:
            raise WarehouseError(
                f"the warehouse '{folder}' is damaged: {_DESCRIPTION} is missing; restore it from a backup"
            )
        if not create:
            raise WarehouseError(
                f"there is no warehouse at '{folder}'; make one with 'parquetry init', or check the path"
            )
        if leftovers:
            raise WarehouseError(f"'{folder}' is not empty and not a warehouse; choose another folder")
        return _create(folder, catalog, spark)
    try:
        told = json.loads(description.read_text())
        form, address = int(told["format"]), str(told["catalog"])
    except (ValueError, KeyError, TypeError, OSError) as e:
        raise WarehouseError(f"cannot read '{description}'; restore it from a backup") from e
    if form > FORMAT:
        raise WarehouseError(f"'{folder}' was made by a newer Parquetry (format {form}); upgrade Parquetry")
    address = catalog or os.environ.get("PARQUETRY_CATALOG") or address
    if address == _CATALOG and not (folder / _CATALOG).exists():
        raise WarehouseError(f"the warehouse '{folder}' is damaged: {_CATALOG} is missing; restore it from a backup")
    if not (folder / _ROOT).is_dir():
        raise WarehouseError(f"the warehouse '{folder}' is damaged: its folder '{_ROOT}' is missing; restore it")
    return Warehouse(folder, Catalog.open(_url(folder, address)), spark)


def _create(folder: Path, catalog: str | None, spark: SparkSession | None) -> Warehouse:
    address = catalog or os.environ.get("PARQUETRY_CATALOG") or _CATALOG
    description = folder / _DESCRIPTION
    temporary = description.with_suffix(".tmp")
    try:
        (folder / _ROOT).mkdir(parents=True, exist_ok=True)
        opened = Catalog.create(_url(folder, address))
        temporary.write_text(json.dumps({"format": FORMAT, "catalog": address}) + "\n")
        temporary.chmod(0o600)  # a catalog's address may hold a password
        os.replace(temporary, description)
    except BaseException as e:
        _remove_unfinished(folder)
        if isinstance(e, OSError):
            raise WarehouseError(
                f"cannot make a warehouse at '{folder}': {e.strerror}; check the path and space"
            ) from e
        raise
    return Warehouse(folder, opened, spark)


def _remove_unfinished(folder: Path) -> bool:
    """Takes away what an interrupted ``_create`` left, and nothing that holds data; False when there is more."""
    root = folder / _ROOT
    ours = {_DESCRIPTION, f"{Path(_DESCRIPTION).stem}.tmp", _ROOT, _CATALOG, f"{_CATALOG}-wal", f"{_CATALOG}-shm"}
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    if not names <= ours or (root.is_dir() and any(root.iterdir())) or not _never_used(folder):
        return False
    for name in names - {_ROOT}:
        (folder / name).unlink()
    if root.is_dir():
        root.rmdir()
    return True


def _never_used(folder: Path) -> bool:
    if not (folder / _CATALOG).exists():
        return True
    try:
        opened = Catalog.open(_url(folder, _CATALOG))
    except CatalogError:
        return False
    try:
        return opened.version() == 0
    finally:
        opened.close()


def _url(folder: Path, address: str) -> str:
    return f"sqlite:///{(folder / _CATALOG).absolute()}" if address == _CATALOG else address


class Warehouse:
    """An open warehouse. Use it in a ``with`` block or call ``close``; it may be shared between threads."""

    def __init__(self, folder: Path, catalog: Catalog, spark: SparkSession | None = None) -> None:
        self.folder = folder
        self.catalog = catalog
        self.store = Store(str((folder / _ROOT).absolute()))
        self._session = spark
        self._engine = Engine(catalog, self.store, lambda: self.spark)

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._engine.close()
        self.catalog.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session in use; started now if there is none."""
        if self._session is None:
            from parquetry.spark import session

            self._session = session()
        return self._session

    # -- tables -----------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: TableSchema | pa.Schema | str,
        key: Sequence[str] = (),
        model: str = "append",
        values: Mapping[str, str] | None = None,
        *,
        sequence: str | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        """Makes an empty table. ``schema`` is Spark's way to write columns, an Arrow schema, or a whole TableSchema."""
        if isinstance(schema, str):
            columns = tuple(Column(n, t, nullable) for n, t, nullable in parse_columns(schema))
            schema = TableSchema(columns, tuple(key), model, dict(values or {}), sequence)
        elif isinstance(schema, pa.Schema):
            schema = TableSchema.from_arrow(schema, key, model, values, sequence)
        if not isinstance(settings, Settings):
            settings = Settings.from_json(settings or {})
        self.catalog.commit([CreateTable(name, schema, settings)], kind="create table", detail={"table": name})

    def drop_table(self, name: str) -> None:
        """Removes the table from the newest version; vacuum removes its files later."""
        t = self.catalog.state().table(name)
        self.catalog.commit([DropTable(t.table_id)], kind="drop table", detail={"table": t.name})

    def add_column(self, table: str, name: str, type: str, merge: str | None = None) -> None:
        """Adds a nullable column; rows stored before read as null. Aggregate tables need its ``merge``."""
        t = self.catalog.state().table(table)
        if t.schema.model == "aggregate" and merge is None:
            raise SchemaError(
                f"'{t.name}' is an aggregate table: say how '{name}' merges (sum, min, max, count, replace)"
            )
        changed = t.schema.add_column(Column(name, type_name(arrow_type(type))), merge)
        edit = ChangeSchema(t.table_id, t.schema_id, changed)
        self.catalog.commit([edit], kind="add column", detail={"table": t.name, "column": name, "type": type})

    def change_settings(self, table: str, **changes: Any) -> None:
        """Changes some of a table's settings; they count from the next operation on."""
        t = self.catalog.state().table(table)
        settings = Settings.from_json({**t.settings.to_json(), **changes})
        self.catalog.commit(
            [ChangeSettings(t.table_id, settings)], kind="settings", detail={"table": t.name, **changes}
        )

    # -- data in ----------------------------------------------------------------------------------

    def ingest(
        self,
        table: str,
        source: Any,
        label: str | None = None,
        *,
        tasks: int | None = None,
        progress: Listener | None = None,
    ) -> Ingested:
        """Commits a batch as one delta, exactly once per label. Queries see it once ``maintain`` moves the QT to it.

        ``source``: paths of Parquet, CSV or JSON files, or a Spark, pandas, polars or Arrow frame.
        """
        self.catalog.state().table(table)
        check_paths(source)  # like a wrong name, a missing file fails before Spark starts
        with watch_tasks(lambda: self._session, progress):
            return ingest(self.catalog, self.store, self.spark, table, source, label=label, tasks=tasks)

    def stream(
        self, table: str, frame: DataFrame, *, name: str, checkpoint: str, trigger: Mapping[str, Any] | None = None
    ) -> StreamingQuery:
        """Ingests a streaming frame batch by batch, each exactly once; by default all that is there now, then stops."""
        t = self.catalog.state().table(table)
        return start_stream(
            frame,
            lambda batch, label: ingest(self.catalog, self.store, batch.sparkSession, t.name, batch, label=label),
            name=name,
            checkpoint=checkpoint,
            trigger=dict(trigger or {"availableNow": True}),
        )

    # -- maintenance ------------------------------------------------------------------------------

    def maintain(self, *, progress: Listener | None = None) -> list[Stage]:
        """Brings everything up to date: compaction, then the QT. Gives the stages it performed."""
        return list(self.maintaining(progress=progress))

    def maintaining(self, *, progress: Listener | None = None) -> Iterator[Stage]:
        """Like ``maintain``, but yields each stage right before it runs."""
        yield from self._watched(self._maintainer().run(), progress)

    def watch(
        self, stop: threading.Event, *, interval_s: float = 1.0, progress: Listener | None = None
    ) -> Iterator[Stage]:
        """Maintains until ``stop`` is set."""
        yield from self._watched(self._maintainer().watch(stop, interval_s), progress)

    def explain_maintain(self) -> list[Stage]:
        """The stages that ``maintain`` would perform now."""
        return pick(self.catalog.state())

    def vacuum(self, *, grace_s: float = DEFAULT_GRACE_S, dry_run: bool = False) -> Vacuumed:
        """Removes files that no version and no reader needs any more."""
        self._engine.snapshots.move()
        return vacuum(self.catalog, self.store, grace_s=grace_s, dry_run=dry_run)

    def verify(self, *, quick: bool = False) -> list[Problem]:
        """Checks invariants of the catalog, and every file against its checksum (``quick``: only its size)."""
        return verify(self.catalog, self.store, quick=quick)

    def _maintainer(self) -> Maintainer:
        return Maintainer(self.catalog, self.store, lambda: self.spark, self._engine.warm)

    def _watched(self, stages: Iterator[Stage], progress: Listener | None) -> Iterator[Stage]:
        while True:
            with watch_tasks(lambda: self._session, progress):  # the stage yielded last runs in here
                stage = next(stages, None)
            if stage is None:
                return
            yield stage

    # -- layouts ----------------------------------------------------------------------------------

    def import_workload(self, path: str | os.PathLike[str]) -> Imported:
        """Adds a file of SQL queries to the query log; what cannot be used is reported with its line."""
        return import_queries(self.catalog, self._schemas(), Path(path))

    def relayout(
        self,
        table: str,
        learner: str,
        *,
        workload: str | os.PathLike[str] | None = None,
        options: RelayoutOptions | None = None,
        queries: int = 10_000,
        phase: Phase = lambda _: None,
        progress: Listener | None = None,
    ) -> Relaid:
        """Learns a layout from the newest logged queries, or those of the file ``workload``, and rewrites the table."""
        t = self.catalog.state().table(table)
        self._engine.log.flush()
        if workload is not None:
            statements = [sql for _, sql in split_statements(Path(workload).read_text(encoding="utf-8"))]
            found = workload_of(statements, t.name, self._schemas())
        else:
            found = logged_workload(self.catalog, t.name, self._schemas(), queries)
        holder = f"relayout:{os.getpid()}"
        with watch_tasks(lambda: self._session, progress):
            return relayout(
                self.catalog,
                self.store,
                self.spark,
                t.name,
                learner,
                found,
                options or RelayoutOptions(),
                holder,
                phase,
            )

    def layout(self, table: str) -> dict[str, Any]:
        """What is known of the table's present layout."""
        return report.layout(self.catalog.state().table(table))

    def draw_layout(self, table: str, columns: Sequence[str] | None = None, *, queries: int = 200) -> str:
        """An SVG picture of the table's blocks and its newest logged queries over two columns."""
        t = self.catalog.state().table(table)
        self._engine.log.flush()
        return draw_table(t, self.store, columns, logged_workload(self.catalog, t.name, self._schemas(), queries))

    def _schemas(self) -> dict[str, TableSchema]:
        return {t.name: t.schema for t in self.catalog.state().tables.values()}

    # -- queries ----------------------------------------------------------------------------------

    def sql(self, query: str, *, executor: str = "auto", off: Collection[str] = ()) -> Result:
        """Plans the query at the QT; the result runs when its rows are first asked for."""
        return self._engine.query(query, wanted=executor, off=off)

    def explain(
        self, query: str, *, executor: str = "auto", off: Collection[str] = (), analyze: bool = False
    ) -> Explanation:
        """What each step of the query would do and why; ``analyze`` runs it and compares with the least possible."""
        return self._engine.explain(query, wanted=executor, off=off, analyze=analyze)

    def table(self, name: str) -> DataFrame:
        """The whole table at the QT as a Spark frame."""
        return self._engine.frame(name)

    # -- what there is ----------------------------------------------------------------------------

    def tables(self) -> list[dict[str, Any]]:
        return report.tables(self.catalog.state())

    def deltas(self, table: str) -> list[dict[str, Any]]:
        return report.deltas(self.catalog.state(), table)

    def blocks(self, table: str) -> list[dict[str, Any]]:
        return report.blocks(self.catalog.state(), self.store, table)

    def freshness(self) -> dict[str, Any]:
        """The database's and every table's QT, how far it lags, and what holds it back."""
        return report.freshness(self.catalog)

    def history(self, table: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        return report.history(self.catalog, table, limit)

    def queries(self, limit: int = 100, table: str | None = None) -> list[dict[str, Any]]:
        """The newest queries first, with what each one read."""
        self._engine.log.flush()
        return self.catalog.queries(limit, table)
