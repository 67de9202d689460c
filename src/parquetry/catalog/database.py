"""The catalog's database: a SQLite file or a PostgreSQL, their transactions, and their errors in plain words."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from parquetry.errors import CatalogError, CatalogNotWritable

BUSY_SECONDS = 30  # a writer waits so long for another before it gives up; commits take milliseconds
CONNECT_SECONDS = 10
STOPPED_SECONDS = 10  # a client that says nothing for so long inside a transaction is stopped or gone: it holds up all
STATEMENT_SECONDS = 120  # many times what any of ours takes, even over a long history
_DEAD_PEER_SECONDS = 30  # without an answer on the network
_SHARED_BYTES = 1 << 16  # of the file that connections of SQLite share, and a page of their log

# What every session of PostgreSQL states, whatever the server's defaults are. A URL's own `options` go before.
_SESSION = {
    "lock_timeout": f"{BUSY_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{STOPPED_SECONDS}s",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    # The server's side: a client whose machine vanished gives its locks back.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": f"{_DEAD_PEER_SECONDS * 1000}",
}
# The client's side: a server that vanished is an error, not a wait for ever.
_CONNECTION = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": _DEAD_PEER_SECONDS * 1000,
}

# What a SQLite transaction begins with. A commit survives a power cut; pins, leases and the query log need only
# survive the process, and so need no sync.
_DURABLE = ("PRAGMA synchronous=FULL", "BEGIN IMMEDIATE")
_VOLATILE = ("PRAGMA synchronous=NORMAL", "BEGIN IMMEDIATE")


class Database:
    """Gives out transactions. Whatever the database says goes to the user as one CatalogError line."""

    def __init__(self, url: str | URL) -> None:
        self._url = _parse(url)
        self._process = os.getpid()
        self.sqlite = self._url.get_backend_name() == "sqlite"
        self._full = self.path is not None and _has_no_room(self.path)
        self.read_only = self._full or self.path is not None and _may_not_write(self.path)
        self._writers: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self.sqlite:
            self._writers = threading.Lock()  # threads queue here, so that SQLite's sleeping retries are rarely needed
            pool = {"poolclass": NullPool} if self.read_only else {}
            self.engine = sa.create_engine(self._url, creator=self._connect_sqlite, **pool)
            event.listen(self.engine, "connect", _take_over_transactions)
            event.listen(self.engine, "begin", _begin)
            self._reader = self.engine
            self._single = self.engine.execution_options(sqlite_begin=())
        else:
            self.engine = _postgres_engine(self._url)
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ")
            self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._kept: deque[sqlite3.Connection] = deque()
        self._texts: dict[sa.Select[Any], str] = {}
        self._durable = self.engine.execution_options(sqlite_begin=_DURABLE)
        self._volatile = self.engine.execution_options(sqlite_begin=_VOLATILE)

    @property
    def where(self) -> str:
        """The database's address without its password."""
        if self.sqlite:
            return f"'{self._url.database}'"
        host = self._url.host or self._url.query.get("host") or "localhost"
        port = f":{self._url.port}" if self._url.port else ""
        return f"'{self._url.get_backend_name()}://{host}{port}/{self._url.database or ''}'"

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database."""
        return Path(self._url.database) if self.sqlite and self._url.database else None

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one snapshot and changes nothing."""
        with self._explained(), self._reader.connect() as conn:
            yield conn

    @contextlib.contextmanager
    def single(self) -> Iterator[sa.Connection]:
        """For one statement by itself: no round trips to begin and end a transaction."""
        with self._explained(), self._single.connect() as conn:
            yield conn

    def scalar(self, statement: sa.Select[Any]) -> Any:
        """The value of one statement without parameters that is asked again and again.

        From SQLite over connections that stay: what SQLAlchemy does around a statement takes ten times as long. As
        many as threads ask at once: with a lock a query would wait for a thread that waits for a core.
        """
        if not self.sqlite:
            with self.single() as conn:
                return conn.execute(statement).scalar_one()
        with self._explained():
            if statement not in self._texts:
                self._texts[statement] = str(statement.compile(self.engine))
            try:
                kept = self._kept.pop()
            except IndexError:
                kept = self._connect_sqlite()
                kept.isolation_level = None
            found = kept.execute(self._texts[statement]).fetchone()[0]
            if self.read_only:
                kept.close()
            else:
                self._kept.append(kept)
            return found

    @contextlib.contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sa.Connection]:
        """A transaction that commits at the end of the block and rolls back on any error."""
        engine = self._durable if durable else self._volatile
        with self._explained(), self._writers, engine.begin() as conn:
            yield conn

    def now(self, conn: sa.Connection) -> float:
        """The wall clock that all users of this catalog share; for expiry only, never for order."""
        if self.sqlite:
            return time.time()
        return float(conn.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())::float8")).scalar_one())

    def take_time(self, conn: sa.Connection) -> None:
        """Lets this transaction's statements take as long as they need; for changes to the tables themselves."""
        if not self.sqlite:
            conn.exec_driver_sql("SET LOCAL statement_timeout = 0")

    def close(self) -> None:
        if self.forked:
            return  # the connections are the parent's
        while self._kept:
            self._kept.pop().close()
        self.engine.dispose()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened the database."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Locks that were held at a fork are held in the child for ever, and the connections are the parent's."""
        if self.forked:
            raise CatalogError(
                f"this connection belongs to process {self._process}, which forked this one ({os.getpid()}); "
                "call connect in the child, or start it by 'spawn'"
            )

    def _connect_sqlite(self) -> sqlite3.Connection:
        mode = "rw"
        if self.read_only:
            # SQLite reads beside a writer only where it may make files, or finds those that the writer has made. With
            # no such files nobody writes, and the file can be read as it lies there.
            log = Path(f"{self.path}-wal")
            mode = "ro" if log.exists() and log.stat().st_size else "ro&immutable=1"
        elif self.path is not None and not self.path.exists():
            mode = "rwc"
            # It will hold the texts of queries; SQLite's other files take after it. SQLite says what cannot be made.
            with contextlib.suppress(OSError):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))
        address = f"file:{quote(str(self.path))}?mode={mode}"
        return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        self.check_process()
        try:
            yield
        except (sa.exc.SQLAlchemyError, sqlite3.Error) as e:
            said = self._explain(e)
            kind = CatalogNotWritable if any(said.endswith(what) for what in _NOT_WRITABLE) else CatalogError
            raise kind(said) from e
        except (json.JSONDecodeError, UnicodeDecodeError) as e:
            raise CatalogError(f"the catalog {self.where} is damaged; restore it from a copy") from e

    def _explain(self, error: Exception) -> str:
        said = " ".join(str(getattr(error, "orig", None) or error).split())
        if self._url.password:
            said = said.replace(str(self._url.password), "***")
        for sign, what in _SIGNS:
            if sign in said.lower():
                what = _FULL if self._full and what is _READ_ONLY else what
                return f"the catalog {self.where} {what}"
        if isinstance(error, sa.exc.OperationalError) and not self.sqlite:
            return f"cannot reach the catalog {self.where}: {said}; check that the database runs and the URL is right"
        return f"the catalog {self.where} failed: {said}; nothing was changed"


_FULL = "cannot be written: its disk is full; make room and try again. Nothing was changed"
_READ_ONLY = "may not be written to; check the permissions of the file and its folder"
_NO_RIGHTS = "may not be written to by this user or on this server; nothing was changed"
_NOT_WRITABLE = (_FULL, _READ_ONLY, _NO_RIGHTS)
_SIGNS = (
    ("database is locked", f"is busy: another process wrote for more than {BUSY_SECONDS} s; try again"),
    ("statement timeout", f"took longer than {STATEMENT_SECONDS} s for a statement; nothing was changed, try again"),
    ("lock timeout", f"is busy: another process wrote for more than {BUSY_SECONDS} s; try again"),
    (
        "idle-in-transaction timeout",
        f"ended the transaction of this process, which was stopped for more than {STOPPED_SECONDS} s; "
        "nothing was changed, try again",
    ),
    ("unable to open database file", "cannot be opened; check that its folder exists and may be written to"),
    ("file is not a database", "is not a Parquetry catalog: the file is no SQLite database; check the path"),
    ("malformed", "is damaged; restore it from a copy"),
    ("no space left", _FULL),
    ("disk is full", _FULL),
    ("readonly database", _READ_ONLY),
    ("read-only transaction", _NO_RIGHTS),
    ("during recovery", _NO_RIGHTS),  # a PostgreSQL that follows another one
    ("permission denied for", _NO_RIGHTS),
    ("no such table", "is incomplete: a table is missing; check the URL or restore it from a copy"),
    ('relation "parquetry_', "is incomplete: a table is missing; check the URL or restore it from a copy"),
)


def _parse(url: str | URL) -> URL:
    usage = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"
    if isinstance(url, str) and url.startswith("postgres://"):
        url = "postgresql" + url.removeprefix("postgres")
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (sa.exc.ArgumentError, ValueError):
        raise CatalogError(f"the catalog's URL cannot be read; {usage}") from None
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    raise CatalogError(f"a catalog cannot live in '{backend}' as given; {usage}")


def _may_not_write(path: Path) -> bool:
    """Whether the file is there and neither it nor files beside it can be written."""
    effective = {"effective_ids": True} if os.access in os.supports_effective_ids else {}
    return path.is_file() and not all(os.access(p, os.W_OK, **effective) for p in (path, path.parent))


def _has_no_room(path: Path) -> bool:
    """Whether SQLite could not make the file that connections share: a full disk can still be read."""
    if not path.is_file() or Path(f"{path}-shm").exists():
        return False
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize < _SHARED_BYTES


def _postgres_engine(url: URL) -> sa.Engine:
    given = str(url.query.get("options", ""))
    stated = "; ".join(f"SET {name} = '{value}'" for name, value in _SESSION.items() if name not in given)

    def state(dbapi: Any, _record: Any) -> None:
        dbapi.autocommit = True
        dbapi.execute(stated)
        dbapi.autocommit = False

    try:
        # Commits lock the clock and then read what others have committed: that needs READ COMMITTED, while a server
        # may have another default.
        args = {name: value for name, value in _CONNECTION.items() if name not in url.query}
        engine = sa.create_engine(url, pool_pre_ping=True, connect_args=args, isolation_level="READ COMMITTED")
    except ModuleNotFoundError:
        raise CatalogError("a PostgreSQL catalog needs psycopg; run: pip install 'parquetry[postgres]'") from None
    event.listen(engine, "connect", state)
    return engine


def _take_over_transactions(dbapi: Any, _record: Any) -> None:
    """Makes the driver begin no transaction by itself: :func:`_begin` does, for readers and writers differ."""
    dbapi.isolation_level = None


def _begin(conn: sa.Connection) -> None:
    for statement in conn.get_execution_options().get("sqlite_begin", ("BEGIN",)):
        conn.exec_driver_sql(statement)
