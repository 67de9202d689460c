"""The warehouse: everything that the command line, programs and other front ends do goes through this class."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry import report
from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, QueryError, SchemaError, WarehouseError
from parquetry.ingest.ingest import Ingested, ingest
from parquetry.ingest.sources import check_paths
from parquetry.ingest.stream import start_stream
from parquetry.layouts.price import Asked
from parquetry.maintain.advice import Advice
from parquetry.maintain.advise import advise, kept, winning_options
from parquetry.maintain.compare import PAYS_BACK_WITHIN, SAMPLE_ROWS, AdviseOptions
from parquetry.maintain.pick import Stage, pick
from parquetry.maintain.relayout import Phase, Relaid, RelayoutOptions, relayout
from parquetry.maintain.relayout_ranges import relayout_ranges
from parquetry.maintain.run import Maintainer
from parquetry.maintain.vacuum import DEFAULT_GRACE_S, Vacuumed, vacuum
from parquetry.maintain.verify import Problem, verify
from parquetry.maintain.what_if import Checked, WhatIf, check, last_rewrite, what_if
from parquetry.model.profile import Profile, profile_of
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import ChangeProfile, ChangeSchema, ChangeSettings, CreateTable, DropTable, Edit
from parquetry.model.types import arrow_type, parse_columns, type_name
from parquetry.model.workload import LoggedQuery
from parquetry.progress import Listener, watch_tasks
from parquetry.query.engine import Engine
from parquetry.query.explain import Explanation
from parquetry.query.picture import draw_table
from parquetry.query.result import Result, Told
from parquetry.query.workload import (
    Imported,
    asked_in_file,
    asked_queries,
    import_queries,
    logged_workload,
    part_of_query,
    ran_since,
    split_statements,
    workload_of,
)
from parquetry.storage.store import Store
from parquetry.views.create import create_view_edit
from parquetry.views.estimate import group_estimator, sampled_groups
from parquetry.views.statements import CreateView, SetProfile, Statement, parse_statement
from parquetry.views.suggest import Suggested, Suggestion, shape_of, suggest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMAT = 1
_DESCRIPTION = "parquetry.json"
_CATALOG = "catalog.db"
_ROOT = "data"
_LAYOUT_QUERIES = 10_000  # the newest ones that a layout is learned from
_TUNING_QUERIES = 1_000  # the newest ones that tell how often a table is read
AUTO = "auto"
ADVISED_QUERIES = 2_000


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
        self.catalog.commit(
            [CreateTable(name, schema, self._settings(settings))], kind="create table", detail={"table": name}
        )

    def _settings(self, given: Settings | Mapping[str, Any] | None) -> Settings:
        """Settings as given, where nothing is said as the database's profile has them."""
        if isinstance(given, Settings):
            return given
        profile = self.catalog.state().profile
        start = Settings() if profile is None else profile.compiled(Settings())
        return Settings.from_json({**start.to_json(), **(given or {})})

    def drop_table(self, name: str) -> None:
        """Removes the table from the newest version; vacuum removes its files later."""
        t = self.catalog.state().table(name)
        kind = "drop table" if t.view is None else "drop view"
        self.catalog.commit([DropTable(t.table_id)], kind=kind, detail={"table": t.name})

    def create_view(
        self,
        name: str,
        query: str,
        *,
        order: Sequence[str] = (),
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        """Makes a view that always equals ``query`` over its tables at the QT; ``maintain`` fills it and keeps it up.

        ``order`` is the order of its groups on disk, by default that of the query. What cannot be maintained from
        deltas is refused with the reason.
        """
        chosen = self._settings(settings)
        edit = create_view_edit(lambda: self.spark, self.catalog.state(), name, query, order, chosen)
        self.catalog.commit([edit], kind="create view", detail={"table": name, "sql": query})

    def drop_view(self, name: str) -> None:
        """Removes a view from the newest version; vacuum removes its files later."""
        t = self.catalog.state().table(name)
        if t.view is None:
            raise SchemaError(f"'{t.name}' is a table, not a view; use drop-table")
        self.drop_table(name)

    def suggest_views(self, table: str | None = None, *, most: int | None = None, queries: int = 2_000) -> Suggested:
        """The views that the newest logged queries ask for, the best first, and those that no query used.

        ``most`` is by default what the database's profile allows, without a profile 5.
        """
        self._engine.log.flush()
        state = self.catalog.state()
        most = most or (state.profile.views if state.profile else 5)
        newest = self.catalog.queries(queries)
        found: list[Suggestion] = []
        for t in [state.table(table)] if table is not None else state.tables.values():
            asked = (shape_of(q["sql"], t.readable) for q in newest if t.name.lower() in q["tables"])
            shapes = [s for s in asked if s is not None]
            rows = sum(d.rows for d in t.deltas)
            if t.view is None and shapes and rows:
                expressions = sorted({g for s in shapes for g in s.groups})
                sample = sampled_groups(self.spark, self.store, t, expressions)
                found += suggest(t.name, shapes, rows, group_estimator(sample, expressions, rows), most)
        found.sort(key=lambda s: s.rows_after - s.rows_before)
        used = {name for q in newest for name in [*q["tables"], str((q["stats"] or {}).get("view")).lower()]}
        below = {s.table_id for v in state.tables.values() if v.view for s in v.view.spec.sources}
        idle = [v.name for v in state.tables.values() if v.view and v.table_id not in below]
        there = {v.view.spec.sql for v in state.tables.values() if v.view is not None}
        return Suggested(
            views=tuple(s for s in found[:most] if s.sql not in there),
            drop=tuple(n for n in idle if newest and n.lower() not in used),
            queries=len(newest),
        )

    def views(self) -> list[dict[str, Any]]:
        """Every view: its definition, size, and how far it is filled."""
        return report.views(self.catalog.state())

    def add_column(self, table: str, name: str, type: str, merge: str | None = None) -> None:
        """Adds a nullable column; rows stored before read as null. Aggregate tables need its ``merge``."""
        t = self.catalog.state().table(table)
        if t.view is not None:
            raise SchemaError(f"'{t.name}' is a view: its columns are those of its definition; make a new view instead")
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
        if self.catalog.state().table(table).view is not None:
            raise SchemaError(f"'{table}' is a view: ingest into the tables it reads instead")
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

    def set_profile(self, name: str | None = None, **targets: Any) -> Profile:
        """States what the database is to be: ``freshness``, ``speed`` or ``cost``, or explicit targets.

        It is compiled into the settings of all tables and views, in one commit with the profile itself.
        """
        state = self.catalog.state()
        profile = profile_of(name, targets, state.profile)
        self.catalog.commit(
            [ChangeProfile(profile), *self._tuned(profile)], kind="profile", detail={"profile": profile.name}
        )
        return profile

    def tune(self) -> int:
        """Adapts the delta bounds to how often tables are read (NA-22), under the stated profile; how many changed."""
        profile = self.catalog.state().profile
        edits = [] if profile is None else self._tuned(profile)
        if edits:
            self.catalog.commit(edits, kind="tune", detail={"tables": len(edits)})
        return len(edits)

    def _tuned(self, profile: Profile) -> list[Edit]:
        self._engine.log.flush()
        newest = self.catalog.queries(_TUNING_QUERIES)
        edits: list[Edit] = []
        for t in self.catalog.state().tables.values():
            reads = sum(t.name.lower() in q["tables"] for q in newest) if newest else None
            settings = profile.compiled(t.settings, reads)
            if settings != t.settings:
                edits.append(ChangeSettings(t.table_id, settings))
        return edits

    def wait(self, token: Ingested | int, *, timeout_s: float = 60.0, interval_s: float = 0.05) -> int:
        """Returns the QT once it shows the batch that ``ingest`` returned as token, or its timestamp."""
        t = token if isinstance(token, int) else token.t
        end = time.monotonic() + timeout_s
        while (qt := self.catalog.state().qt) < t:
            if time.monotonic() >= end:
                blocked = report.freshness(self.catalog)["blocked_by"] or "run maintain"
                raise QueryError(f"timestamp {t} is hidden after {timeout_s:g} s, QT is {qt}; it waits for: {blocked}")
            time.sleep(interval_s)
        return qt

    def vacuum(self, *, grace_s: float = DEFAULT_GRACE_S, dry_run: bool = False) -> Vacuumed:
        """Removes files that no version and no reader needs any more."""
        self._engine.snapshots.move()
        return vacuum(self.catalog, self.store, grace_s=grace_s, dry_run=dry_run)

    def verify(self, *, quick: bool = False) -> list[Problem]:
        """Checks invariants of the catalog, and every file against its checksum (``quick``: only its size)."""
        return verify(self.catalog, self.store, quick=quick)

    def _maintainer(self) -> Maintainer:
        return Maintainer(
            self.catalog, self.store, lambda: self.spark, self._engine.warm, self._engine.snapshots.take, self._newest
        )

    def _newest(self, table: str) -> Sequence[LoggedQuery]:
        return logged_workload(self.catalog, table, self._schemas(), _LAYOUT_QUERIES)

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
        queries: int = _LAYOUT_QUERIES,
        pays_back_within: int = PAYS_BACK_WITHIN,
        phase: Phase = lambda _: None,
        progress: Listener | None = None,
    ) -> Relaid:
        """Learns a layout from the newest logged queries, or those of the file ``workload``, and rewrites the table.

        ``auto`` asks the advisor and rewrites only if that saves its own cost within ``pays_back_within`` queries; the
        result tells whether it did.
        """
        if learner == AUTO:
            return self._relayout_auto(table, workload, options, queries, pays_back_within, phase, progress)
        t = self.catalog.state().table(table)
        self._engine.log.flush()
        if workload is not None:
            statements = [sql for _, sql in split_statements(Path(workload).read_text(encoding="utf-8"))]
            found = workload_of(statements, t.name, self._schemas())
        else:
            found = logged_workload(self.catalog, t.name, self._schemas(), queries)
        holder = f"relayout:{os.getpid()}"
        wanted = options or RelayoutOptions()
        run = relayout if wanted.range is None else relayout_ranges
        with watch_tasks(lambda: self._session, progress):
            return run(self.catalog, self.store, self.spark, t.name, learner, found, wanted, holder, phase)

    def _relayout_auto(
        self,
        table: str,
        workload: str | os.PathLike[str] | None,
        options: RelayoutOptions | None,
        queries: int,
        pays_back_within: int,
        phase: Phase,
        progress: Listener | None,
    ) -> Relaid:
        base = options or RelayoutOptions()
        shared = replace(base, sample_rows=min(base.sample_rows, SAMPLE_ROWS))
        wanted = AdviseOptions(pays_back_within=pays_back_within, layout=shared)
        log = self._asked(table, workload, min(queries, ADVISED_QUERIES))
        with watch_tasks(lambda: self._session, progress):
            state = self.catalog.state()
            advice = advise(lambda: self.spark, self.store, state, table, log, wanted, phase)
            if advice.winner is None:
                return kept(state, table, advice)
            winner = winning_options(advice, state.table(table), log, base)
            holder = f"relayout:{os.getpid()}"
            done = relayout(
                self.catalog,
                self.store,
                self.spark,
                table,
                winner.learner,
                [q.query for q in log if q.filters],
                winner.options,
                holder,
                phase,
                predicted=winner.predicted,
            )
        return replace(done, reason=advice.reason, predicted=winner.predicted)

    def advise(
        self,
        table: str,
        *,
        workload: str | os.PathLike[str] | None = None,
        options: AdviseOptions | None = None,
        queries: int = ADVISED_QUERIES,
        phase: Phase = lambda _: None,
        progress: Listener | None = None,
    ) -> Advice:
        """Compares layouts learned from the older logged queries on the newer ones; changes nothing."""
        log = self._asked(table, workload, queries)
        with watch_tasks(lambda: self._session, progress):
            return advise(
                lambda: self.spark, self.store, self.catalog.state(), table, log, options or AdviseOptions(), phase
            )

    def check_layout(
        self, table: str, *, queries: int = 1_000, phase: Phase = lambda _: None, progress: Listener | None = None
    ) -> Checked:
        """Compares what the newest queries read since the table was last rewritten with what was predicted."""
        self._engine.log.flush()
        state = self.catalog.state()
        t = state.table(table)
        rewrite = last_rewrite(self.catalog, t)
        ran = [] if rewrite is None else ran_since(self.catalog, t.name, self._schemas(), rewrite[1], queries)
        options = RelayoutOptions(sample_rows=SAMPLE_ROWS)
        with watch_tasks(lambda: self._session, progress):
            return check(lambda: self.spark, self.store, state, t.name, rewrite, ran, options, phase)

    def what_if(
        self,
        query: str,
        layout: str,
        *,
        table: str | None = None,
        options: RelayoutOptions | None = None,
        queries: int = ADVISED_QUERIES,
        phase: Phase = lambda _: None,
        progress: Listener | None = None,
    ) -> WhatIf:
        """What one query would read if ``table`` had the layout, learned from the log, and what it reads today."""
        state = self.catalog.state()
        name, asked = part_of_query(query, table, self._schemas())
        log = self._asked(name, None, queries)
        wanted = options or RelayoutOptions(sample_rows=SAMPLE_ROWS)
        with watch_tasks(lambda: self._session, progress):
            return what_if(lambda: self.spark, self.store, state, name, asked, log, layout, wanted, phase)

    def _asked(self, table: str, workload: str | os.PathLike[str] | None, queries: int) -> list[Asked]:
        t = self.catalog.state().table(table)
        self._engine.log.flush()
        if workload is None:
            return asked_queries(self.catalog, t.name, self._schemas(), queries)
        return asked_in_file(Path(workload), t.name, self._schemas())

    def layout(self, table: str) -> dict[str, Any]:
        """What is known of the table's present layout."""
        return report.layout(self.catalog.state().table(table))

    def draw_layout(self, table: str, columns: Sequence[str] | None = None, *, queries: int = 200) -> str:
        """An SVG picture of the table's blocks and its newest logged queries over two columns."""
        t = self.catalog.state().table(table)
        self._engine.log.flush()
        return draw_table(t, self.store, columns, logged_workload(self.catalog, t.name, self._schemas(), queries))

    def _schemas(self) -> dict[str, TableSchema]:
        return {t.name: t.readable for t in self.catalog.state().tables.values()}

    # -- queries ----------------------------------------------------------------------------------

    def sql(
        self, query: str, *, executor: str = "auto", off: Collection[str] = (), splits: int | None = None
    ) -> Result:
        """Plans the query at the QT; the result runs when its rows are first asked for.

        ``splits`` asks for so many scan workers on Spark; without it their number follows from size and cores.
        """
        statement = parse_statement(query)
        if statement is not None:
            return Told(self._perform(statement), self.catalog.state().qt)
        return self._engine.query(query, wanted=executor, off=off, wanted_splits=splits)

    def _perform(self, statement: Statement) -> str:
        if isinstance(statement, SetProfile):
            made = self.set_profile(statement.name, **statement.targets)
            return f"profile '{made.name}': {made.to_json()}"
        there = {t.name.lower() for t in self.catalog.state().tables.values()}
        if isinstance(statement, CreateView):
            if statement.if_not_exists and statement.name.lower() in there:
                return f"'{statement.name}' is there already"
            self.create_view(statement.name, statement.sql, order=statement.order)
            return f"made the view '{statement.name}'; maintain fills it"
        if statement.if_exists and statement.name.lower() not in there:
            return f"there is no view '{statement.name}'"
        self.drop_view(statement.name)
        return f"dropped the view '{statement.name}'"

    def explain(
        self,
        query: str,
        *,
        executor: str = "auto",
        off: Collection[str] = (),
        analyze: bool = False,
        splits: int | None = None,
    ) -> Explanation:
        """What each step of the query would do and why; ``analyze`` runs it and compares with the least possible."""
        return self._engine.explain(query, wanted=executor, off=off, analyze=analyze, wanted_splits=splits)

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
