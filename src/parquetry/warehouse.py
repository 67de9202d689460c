"""The warehouse: everything that the command line, programs and other front ends do goes through this class."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from parquetry import report
from parquetry.catalog import Catalog, definitions
from parquetry.errors import QueryError
from parquetry.folder import data_root, open_folder
from parquetry.folder import local_folder as local_folder
from parquetry.ingest.ingest import Ingested, ingest, ingestable
from parquetry.ingest.sources import check_source
from parquetry.ingest.stream import start_stream
from parquetry.maintain.advise import advise
from parquetry.maintain.compare import PAYS_BACK_WITHIN, SAMPLE_ROWS, AdviseOptions
from parquetry.maintain.perform_statement import create_view, perform
from parquetry.maintain.pick import Stage, pick
from parquetry.maintain.relayout import Phase, Relaid, relayout
from parquetry.maintain.relayout_auto import relayout_auto
from parquetry.maintain.relayout_ranges import relayout_ranges
from parquetry.maintain.retry import Failed, Left
from parquetry.maintain.run import Maintainer
from parquetry.maintain.tune import set_profile, tune
from parquetry.maintain.vacuum import Vacuumed, vacuum
from parquetry.maintain.verdict import Advice
from parquetry.maintain.verify import Problem, verify
from parquetry.maintain.what_if import Checked, WhatIf, check, what_if
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.profile import Profile
from parquetry.model.retention import Retention
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.progress import Listener, watch_tasks
from parquetry.query.demands import Imported, asked_queries, import_queries, logged_workload, part_of_query
from parquetry.query.engine import Engine
from parquetry.query.explain import Explanation
from parquetry.query.picture import draw_table
from parquetry.query.planning.definition import compile_definition
from parquetry.query.planning.speeds import Speeds
from parquetry.query.result import Result, Told
from parquetry.query.rules import RULES
from parquetry.storage.store import Store
from parquetry.views.lattice import Suggested
from parquetry.views.parse_statement import parse_statement
from parquetry.views.suggest import suggested_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LAYOUT_QUERIES = 10_000  # the newest ones that a layout is learned from
_Step = TypeVar("_Step")
AUTO = "auto"
ADVISED_QUERIES = 2_000


def connect(
    path: str | os.PathLike[str] = "warehouse",
    *,
    catalog: str | None = None,
    create: bool = True,
    spark: SparkSession | None = None,
    trusted: bool = False,
) -> Warehouse:
    """Opens the warehouse in folder ``path``; makes one there if the folder is missing or empty and ``create`` is set.

    ``catalog`` is the address of the catalog's database (``postgresql://…``), by default SQLite in the folder;
    the environment variable PARQUETRY_CATALOG overrides the address that the warehouse remembers.
    ``spark`` is the session to use; without one the first operation that needs Spark starts it.
    Queries may call Spark's pure functions only; with ``trusted`` also those that run code or read files, functions
    that were registered on ``spark``, and other relations than the warehouse's own.
    """
    folder = local_folder(path)
    return Warehouse(folder, open_folder(folder, catalog, create), spark, trusted)


class Warehouse:
    """An open warehouse. Use it in a ``with`` block or call ``close``; it may be shared between threads."""

    def __init__(
        self, folder: Path, catalog: Catalog, spark: SparkSession | None = None, trusted: bool = False
    ) -> None:
        self.folder = folder
        self.catalog = catalog
        self.store = Store(data_root(folder))
        self._session = spark
        self._engine = Engine(catalog, self.store, lambda: self.spark, trusted, Speeds(folder / "speeds.json"))

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._engine.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session in use; started now if there is none."""
        if self._session is None:
            from parquetry.spark import session

            self._session = session()
        return self._session

    def _watched(self, progress: Listener | None) -> AbstractContextManager[None]:
        """Tells ``progress`` of Spark's tasks while the block runs."""
        return watch_tasks(lambda: self._session, progress)

    def _logged(self) -> Catalog:
        """The catalog with every query so far in its log."""
        self._engine.log.flush()
        return self.catalog

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
        made = definitions.schema_of(schema, key, model, values, sequence)
        definitions.create_table(self.catalog, name, made, settings)

    def drop_table(self, name: str) -> None:
        """Removes the table from the newest version; vacuum removes its files later."""
        definitions.drop_table(self.catalog, name)

    def create_view(
        self, name: str, query: str, *, order: Sequence[str] = (), settings: Settings | Mapping[str, Any] | None = None
    ) -> None:
        """Makes a view that always equals ``query`` over its tables at the QT; ``maintain`` fills it and keeps it up.

        ``order`` is the order of its groups on disk, by default that of the query. What cannot be maintained from
        deltas is refused with the reason.
        """
        create_view(self.catalog, lambda: self.spark, name, query, order, settings)

    def drop_view(self, name: str) -> None:
        """Removes a view from the newest version; vacuum removes its files later."""
        definitions.drop_view(self.catalog, name)

    def suggest_views(self, table: str | None = None, *, most: int | None = None, queries: int = 2_000) -> Suggested:
        """The views that the newest logged queries ask for, the best first, and those that no query needs then.

        ``most`` is by default what the database's profile leaves to the views that there are, without a profile 5.
        """
        newest, made, state = self._logged().queries(queries), self.catalog.made_at(), self.catalog.state()
        spark, compiles = lambda: self.spark, compile_definition
        return suggested_views(spark, self.store, state, newest, table, most, made, compiles)

    def views(self) -> list[dict[str, Any]]:
        """Every view: its definition, size, and how far it is filled."""
        return report.views(self.catalog.state())

    def add_column(self, table: str, name: str, type: str, merge: str | None = None) -> None:
        """Adds a nullable column; rows stored before read as null. Aggregate tables need its ``merge``."""
        definitions.add_column(self.catalog, table, name, type, merge)

    def settings(self, table: str) -> Settings:
        return self.catalog.state().table(table).settings

    def change_settings(self, table: str, **changes: Any) -> None:
        """Changes some of a table's settings; they count from the next operation on."""
        definitions.change_settings(self.catalog, table, changes)

    # -- data in ----------------------------------------------------------------------------------

    def ingest(
        self,
        table: str,
        source: Any,
        label: str | None = None,
        *,
        tasks: int | None = None,
        executor: str = "auto",
        progress: Listener | None = None,
    ) -> Ingested:
        """Commits a batch as one delta, exactly once per label. Queries see it once ``maintain`` moves the QT to it.

        ``source``: paths of Parquet, CSV or JSON files, a list of dicts, or a Spark, pandas, polars or Arrow frame.
        A batch of at most the table's ``in_process_bytes`` is written without Spark, unless ``executor`` is ``spark``
        or several ``tasks`` of it are asked for.
        """
        target = ingestable(self.catalog, table)
        check_source(source, table)  # like a wrong name, a missing file fails before Spark starts
        with self._watched(progress):
            return ingest(
                self.catalog,
                self.store,
                lambda: self.spark,
                target,
                source,
                label=label,
                tasks=tasks,
                executor=executor,
            )

    def stream(
        self, table: str, frame: DataFrame, *, name: str, checkpoint: str, trigger: Mapping[str, Any] | None = None
    ) -> StreamingQuery:
        """Ingests a streaming frame batch by batch, each exactly once; by default all that is there now, then stops."""
        how = trigger or {"availableNow": True}
        return start_stream(self.catalog, self.store, table, frame, name=name, checkpoint=checkpoint, trigger=how)

    # -- maintenance ------------------------------------------------------------------------------

    def maintain(self, *, progress: Listener | None = None) -> list[Stage | Left]:
        """Brings everything up to date: views, compaction, the QT. Gives the stages it performed.

        Work that another worker has taken is waited for, about a minute; what that one is still at then ends the list,
        as ``Left``. A failure on one table is raised after the work on all others is done."""
        return list(self.maintaining(progress=progress))

    def maintaining(self, *, progress: Listener | None = None) -> Iterator[Stage | Left]:
        """Like ``maintain``, but yields each stage right before it runs."""
        yield from self._each(self._maintainer().run(), progress)

    def watch(
        self, stop: threading.Event, *, interval_s: float = 1.0, progress: Listener | None = None
    ) -> Iterator[Stage | Failed]:
        """Maintains until ``stop`` is set. What fails is told after its stage and tried again, ever less often."""
        yield from self._each(self._maintainer().watch(stop, interval_s), progress)

    def explain_maintain(self) -> list[Stage]:
        """The stages that ``maintain`` would perform now."""
        return pick(self.catalog.state())

    @property
    def qt(self) -> int:
        """The database's queryable timestamp: a query sees all that was committed up to it, and nothing after it."""
        return self.catalog.state().qt

    @property
    def profile(self) -> Profile | None:
        """What the database is to be, when someone said so."""
        return self.catalog.state().profile

    def set_profile(self, name: str | None = None, **targets: Any) -> Profile:
        """States what the database is to be: ``freshness``, ``speed`` or ``cost``, or explicit targets.

        It is compiled into the settings of all tables and views, in one commit with the profile itself.
        """
        return set_profile(self._logged(), name, targets)

    def tune(self) -> int:
        """Adapts the delta bounds to how often tables are read (NA-22), under the stated profile; how many changed."""
        return tune(self._logged())

    def wait(self, token: Ingested | int, *, timeout_s: float = 60.0, interval_s: float = 0.05) -> int:
        """Returns the QT once it shows the batch that ``ingest`` returned as token, or its timestamp."""
        t = token if isinstance(token, int) else token.t
        end = time.monotonic() + timeout_s
        while (qt := self.catalog.state().qt) < t:
            if time.monotonic() >= end:
                blocked = self.freshness()["blocked_by"] or "run maintain"
                raise QueryError(f"timestamp {t} is hidden after {timeout_s:g} s, QT is {qt}; it waits for: {blocked}")
            time.sleep(interval_s)
        return qt

    def retention(self, **changes: int) -> Retention:
        """How long the catalog remembers what no reader needs; with ``changes`` from now on as they say."""
        kept = self.catalog.retention()
        if changes:
            kept = kept.changed(changes)
            self.catalog.set_retention(kept)
        return kept

    def vacuum(self, *, grace_s: float | None = None, dry_run: bool = False) -> Vacuumed:
        """Removes files that no version and no reader needs any more, and what the catalog need not remember.

        ``grace_s`` stands in for the retention policy's."""
        self._engine.release()
        return vacuum(self.catalog, self.store, grace_s=grace_s, dry_run=dry_run)

    def verify(self, *, quick: bool = False) -> list[Problem]:
        """Checks invariants of the catalog, and every file against its checksum (``quick``: only its size)."""
        return verify(self.catalog, self.store, quick=quick)

    def _maintainer(self) -> Maintainer:
        newest = partial(logged_workload, self.catalog, limit=_LAYOUT_QUERIES)
        engine = self._engine
        return Maintainer(self.catalog, self.store, lambda: self.spark, engine.warm, engine.snapshots.take, newest)

    def _each(self, stages: Iterator[_Step], progress: Listener | None) -> Iterator[_Step]:
        while True:
            with self._watched(progress):  # the stage yielded last runs in here
                stage = next(stages, None)
            if stage is None:
                return
            yield stage

    # -- layouts ----------------------------------------------------------------------------------

    def import_workload(self, path: str | os.PathLike[str]) -> Imported:
        """Adds a file of SQL queries to the query log; what cannot be used is reported with its line."""
        return import_queries(self.catalog, path)

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
        wanted = options or RelayoutOptions()
        holder = f"relayout:{os.getpid()}"
        if learner == AUTO:
            log = asked_queries(self._logged(), table, min(queries, ADVISED_QUERIES), workload)
            with self._watched(progress):
                return relayout_auto(
                    self.catalog, self.store, lambda: self.spark, table, log, wanted, pays_back_within, holder, phase
                )
        found = logged_workload(self._logged(), table, queries, workload)
        run = relayout if wanted.range is None else relayout_ranges
        with self._watched(progress):
            return run(self.catalog, self.store, self.spark, table, learner, found, wanted, holder, phase)

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
        log = asked_queries(self._logged(), table, queries, workload)
        wanted = options or AdviseOptions()
        with self._watched(progress):
            return advise(lambda: self.spark, self.store, self.catalog.state(), table, log, wanted, phase)

    def check_layout(
        self, table: str, *, queries: int = 1_000, phase: Phase = lambda _: None, progress: Listener | None = None
    ) -> Checked:
        """Compares what the newest queries read since the table was last rewritten with what was predicted."""
        with self._watched(progress):
            return check(self._logged(), self.store, lambda: self.spark, table, queries, phase)

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
        plan = self._engine.plan(query)
        name, asked = part_of_query(plan.asked or plan.bound, table, plan.induced)
        log = asked_queries(self._logged(), name, queries)
        wanted = options or RelayoutOptions(sample_rows=SAMPLE_ROWS)
        with self._watched(progress):
            return what_if(lambda: self.spark, self.store, state, name, asked, log, layout, wanted, phase)

    def layout(self, table: str) -> dict[str, Any]:
        """What is known of the table's present layout."""
        return report.layout(self.catalog.state().table(table))

    def draw_layout(self, table: str, columns: Sequence[str] | None = None, *, queries: int = 200) -> str:
        """An SVG picture of the table's blocks and its newest logged queries over two columns."""
        workload = logged_workload(self._logged(), table, queries)
        return draw_table(self.catalog.state().table(table), self.store, columns, workload)

    # -- queries ----------------------------------------------------------------------------------

    def sql(
        self, query: str, *, executor: str = "auto", off: Collection[str] = (), splits: int | None = None
    ) -> Result:
        """Plans the query at the QT; the result runs when its rows are first asked for.

        ``splits`` asks for so many scan workers on Spark; without it their number follows from size and cores.
        """
        statement = parse_statement(query)
        if statement is not None:
            return Told(perform(self._logged(), lambda: self.spark, statement), self.catalog.state().qt)
        return self._engine.query(query, wanted=executor, off=off, wanted_splits=splits)

    @staticmethod
    def rules() -> dict[str, str]:
        """The rules that make queries cheaper, in their order, each with what it does; ``off`` takes their names."""
        return {rule.name: rule.meaning for rule in RULES}

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
        return report.freshness(self.catalog, self.store)

    def history(self, table: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        return report.history(self.catalog, table, limit)

    def queries(self, limit: int = 100, table: str | None = None) -> list[dict[str, Any]]:
        """The newest queries first, with what each one read."""
        if table is not None:
            self.catalog.state().table(table)  # a wrong name is an error, not an empty list
        return self._logged().queries(limit, table)
