"""What the catalog says at one version, and the edits that lead from one version to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from parquetry.errors import UnknownTable
from parquetry.model.delta import Delta
from parquetry.model.layout import LayoutSpec
from parquetry.model.profile import Profile
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.view import ViewSpec, ViewState


@dataclass(frozen=True)
class TableState:
    table_id: int
    name: str
    schema: TableSchema  # the current one
    schema_id: int
    deltas: tuple[Delta, ...]  # live ones, oldest first
    qt: int  # this table's own queryable timestamp
    settings: Settings
    layout_id: int = 0
    layout: LayoutSpec | None = None  # the current one; None is the plain key order
    schemas: Mapping[int, TableSchema] = field(default_factory=dict)
    last_t: int = 0  # the timestamp of the newest commit to this table
    layouts: Mapping[int, LayoutSpec] = field(default_factory=dict)  # older ones that live deltas still have
    view: ViewState | None = None  # of a view: its definition, and how far it is filled

    @property
    def learner(self) -> str:
        return "key" if self.layout is None else self.layout.learner

    @property
    def blocks(self) -> int:
        return 1 if self.layout is None else self.layout.blocks

    @property
    def rows(self) -> int:
        return sum(d.rows for d in self.deltas)

    @property
    def bytes(self) -> int:
        return sum(d.bytes for d in self.deltas)

    @cached_property
    def readable(self) -> TableSchema:
        """The columns that a query sees; a view may store others."""
        return self.schema if self.view is None else self.view.spec.readable(self.schema)


@dataclass(frozen=True)
class State:
    version: int
    clock: int  # the newest timestamp given out
    qt: int  # the database's queryable timestamp (NA-23)
    tables: Mapping[str, TableState]
    profile: Profile | None = None  # what the database promises, when someone said so

    @cached_property
    def readable(self) -> Mapping[str, TableSchema]:
        """The columns that a query sees, by table."""
        return {t.name: t.readable for t in self.tables.values()}

    @cached_property
    def schemas(self) -> frozenset[tuple[str, int, int]]:
        """Equal for two versions when every query means the same to both."""
        return frozenset((t.name, t.table_id, t.schema_id) for t in self.tables.values())

    def table(self, name: str) -> TableState:
        found = self.tables.get(name) or self.tables.get(name.lower())
        if found is None:
            found = next((t for t in self.tables.values() if t.name.lower() == name.lower()), None)
        if found is None:
            raise UnknownTable(name, list(self.tables))
        return found


@dataclass(frozen=True)
class CreateTable:
    name: str
    schema: TableSchema
    settings: Settings
    view: ViewSpec | None = None


@dataclass(frozen=True)
class DropTable:
    table_id: int


@dataclass(frozen=True)
class ChangeSchema:
    """``schema`` becomes current if ``base_schema_id`` still is."""

    table_id: int
    base_schema_id: int
    schema: TableSchema


@dataclass(frozen=True)
class ChangeSettings:
    table_id: int
    settings: Settings


@dataclass(frozen=True)
class ChangeProfile:
    profile: Profile


@dataclass(frozen=True)
class AddDelta:
    """An ingested delta; its timestamp is taken in the commit, so ``t_lo`` and ``t_hi`` given here are ignored.

    ``delta`` is None for a batch without rows: only its label is remembered.
    """

    table_id: int
    label: str
    digest: str  # of the batch's rows, whatever their order
    rows_in: int  # rows of the batch before merging
    delta: Delta | None


@dataclass(frozen=True)
class ReplaceDeltas:
    """``new`` takes the place of ``old``, which must all be live and adjacent in time; None: they merge to nothing."""

    table_id: int
    old: tuple[str, ...]
    new: Delta | None


@dataclass(frozen=True)
class AddViewDelta:
    """What the sources' changes after ``built`` up to ``until`` make of the view; None: nothing.

    ``delta`` has the time range of the source delta it was made from.
    """

    table_id: int
    built: int
    until: int
    delta: Delta | None


@dataclass(frozen=True)
class PublishLayout:
    """``spec`` becomes the table's current layout, and ``replaced`` deltas are swapped in the same commit."""

    table_id: int
    spec: LayoutSpec | None


@dataclass(frozen=True)
class AdvanceQT:
    """Moves QTs forward, never back: a lower value than the stored one is ignored."""

    tables: Mapping[int, int]
    database: int


Edit = (
    CreateTable
    | DropTable
    | ChangeSchema
    | ChangeSettings
    | ChangeProfile
    | AddDelta
    | AddViewDelta
    | ReplaceDeltas
    | PublishLayout
    | AdvanceQT
)


@dataclass(frozen=True)
class Label:
    """What is remembered of one ingested batch."""

    table_id: int
    label: str
    t: int
    digest: str
    rows_in: int
    version: int


@dataclass(frozen=True)
class Commit:
    version: int
    t: int  # the clock after the commit
    label: Label | None = None  # for an AddDelta: the label's record, old or new
    repeated: bool = False  # the label was there already: nothing was changed
