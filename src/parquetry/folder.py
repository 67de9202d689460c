"""The warehouse's folder: made whole or not at all, and checked when it is opened."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, WarehouseError
from parquetry.storage.durable import make_folders, publish_private

FORMAT = 1
_DESCRIPTION = "parquetry.json"
_CATALOG = "catalog.db"
_ROOT = "data"


# One slash will do: a Path of "s3://bucket" has one. A scheme of one letter is a drive.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # surrogates stand for bytes that are not UTF-8


def local_folder(path: str | os.PathLike[str]) -> Path:
    """The folder that a user named; addresses of other stores are refused, for they would be taken for odd names."""
    text = os.fspath(path)
    if not text.strip():
        raise WarehouseError("no folder is named for the warehouse; give its path")
    if _UNPRINTABLE.search(text):
        raise WarehouseError(f"the warehouse's folder {text!r} has a name that is not plain text; choose another")
    address = _ADDRESS.match(text)
    if address and address[1].lower() == "file":
        raise WarehouseError(f"'{text}' is an address; write the folder's path itself, such as /data/warehouse")
    if address:
        raise WarehouseError(
            f"a warehouse cannot be at '{text}': only folders of this machine are supported, not {address[1]}://; "
            "name a folder (one with such a name as ./NAME)"
        )
    return Path(text)


def data_root(folder: Path) -> str:
    """Where the tables' files are."""
    return str((folder / _ROOT).absolute())


def open_folder(folder: Path, catalog: str | None, create: bool) -> Catalog:
    """The catalog of the warehouse in ``folder``; made there if the folder is missing or empty and ``create`` is set.

    ``catalog`` or else the environment variable PARQUETRY_CATALOG stands in for the address that the folder remembers.
    """
    with _explained("open the", folder):
        if not (folder / _DESCRIPTION).exists():
            _check_free(folder, create)
            with _explained("make a", folder):
                return _make(folder, catalog)
        address = catalog or os.environ.get("PARQUETRY_CATALOG") or _described(folder)
        if address == _CATALOG and not (folder / _CATALOG).exists():
            raise WarehouseError(
                f"the warehouse '{folder}' is damaged: {_CATALOG} is missing; restore it from a backup"
            )
        if not (folder / _ROOT).is_dir():
            raise WarehouseError(f"the warehouse '{folder}' is damaged: its folder '{_ROOT}' is missing; restore it")
        return Catalog.open(_url(folder, address))


def _described(folder: Path) -> str:
    """The catalog's address as the folder's description has it."""
    description = folder / _DESCRIPTION
    unreadable = WarehouseError(f"cannot read '{description}'; restore it from a backup")
    try:
        told = json.loads(description.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as e:
        raise unreadable from e
    form, address = (told.get("format"), told.get("catalog")) if isinstance(told, dict) else (None, None)
    if type(form) is not int or form < 1:
        raise unreadable
    if form > FORMAT:
        raise WarehouseError(f"'{folder}' was made by a newer Parquetry (format {form}); upgrade Parquetry")
    if not isinstance(address, str) or not address:
        raise unreadable
    return address


def _check_free(folder: Path, create: bool) -> None:
    """Refuses to make a warehouse unless it is wanted and nothing else is there."""
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
        raise WarehouseError(f"there is no warehouse at '{folder}'; make one with 'parquetry init', or check the path")
    if leftovers:
        raise WarehouseError(f"'{folder}' is not empty and not a warehouse; choose another folder")


def _make(folder: Path, catalog: str | None) -> Catalog:
    address = catalog or os.environ.get("PARQUETRY_CATALOG") or _CATALOG
    try:
        make_folders(folder / _ROOT)
        opened = Catalog.create(_url(folder, address))
        # The address may hold a password.
        publish_private(folder / _DESCRIPTION, json.dumps({"format": FORMAT, "catalog": address}) + "\n")
    except BaseException:
        _remove_unfinished(folder)
        raise
    return opened


@contextmanager
def _explained(what: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise WarehouseError(
            f"cannot {what} warehouse at '{folder}': {e.strerror or e}; check the path, permissions and space"
        ) from e


def _remove_unfinished(folder: Path) -> None:
    """Takes away what an interrupted ``_make`` left; nothing at all where there is more than that."""
    root = folder / _ROOT
    ours = {_DESCRIPTION, f"{Path(_DESCRIPTION).stem}.tmp", _ROOT, _CATALOG, f"{_CATALOG}-wal", f"{_CATALOG}-shm"}
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    if not names <= ours or (root.is_dir() and any(root.iterdir())) or not _never_used(folder):
        return
    for name in names - {_ROOT}:
        (folder / name).unlink()
    if root.is_dir():
        root.rmdir()


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


def _url(folder: Path, address: str) -> str | URL:
    # Not as text, in which a question mark would begin parameters and a percent sign a code.
    return URL.create("sqlite", database=str((folder / _CATALOG).absolute())) if address == _CATALOG else address
