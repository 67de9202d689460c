"""Every error a user can meet. One root; each message says what happened and what to do."""

from __future__ import annotations

import re


class ParquetryError(Exception):
    """Something the user can mend. The command line prints it on one line and exits with 1."""


class WarehouseError(ParquetryError):
    """The warehouse folder is missing, half deleted, or of another format."""


class CatalogError(ParquetryError):
    """The catalog's database cannot be reached or refuses the operation."""


class CatalogNotWritable(CatalogError):
    """The catalog can perhaps be read, but not written: a read-only place, a full disk, a user without rights."""


class UnknownTable(ParquetryError):
    def __init__(self, table: str, known: list[str]) -> None:
        self.table = table
        near = ", ".join(sorted(known)[:10]) or "none yet"
        super().__init__(f"unknown table '{table}'; tables: {near}")


class UnknownColumn(ParquetryError):
    def __init__(self, column: str, table: str | None, known: list[str]) -> None:
        self.column, self.table = column, table
        where = "" if table is None else f" in table '{table}'"
        super().__init__(f"unknown column '{column}'{where}; columns: {', '.join(known)}")


class SchemaError(ParquetryError):
    """A table definition that cannot work."""


class DataError(ParquetryError):
    """Input data that does not fit its table. Nothing was written."""

    def __init__(self, message: str, *, table: str | None = None, column: str | None = None) -> None:
        self.table, self.column = table, column
        super().__init__(message)


class LabelConflict(ParquetryError):
    """A label that was used before, for other data."""

    def __init__(self, table: str, label: str) -> None:
        self.table, self.label = table, label
        super().__init__(
            f"label '{label}' of table '{table}' was already used for different data; "
            "nothing was changed. Use a new label for new data"
        )


class QueryError(ParquetryError):
    """SQL that cannot be parsed, bound or run."""


class CommitConflict(ParquetryError):
    """Someone else changed what this commit builds on; nothing was changed, trying again is safe."""


class LeaseLost(ParquetryError):
    """A worker's lease ended before its commit; nothing was changed, trying again is safe."""


class SparkLost(ParquetryError):
    """Spark's JVM has ended under a job. Nothing was committed; a new process has a new one."""


class StorageError(ParquetryError):
    """A file is missing, damaged, or cannot be written (a full disk, for instance)."""

    @property
    def what(self) -> str:
        """What happened, without the advice to run ``verify``, which reports it by this."""
        return re.split(r"[;.] [Rr]un 'parquetry verify'", str(self))[0]
