"""The warehouse's folder: made whole or not at all, and checked when it is opened."""

from __future__ import annotations

import json
import os
from pathlib import Path

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, WarehouseError

FORMAT = 1
_DESCRIPTION = "parquetry.json"
_CATALOG = "catalog.db"
_ROOT = "data"


def data_root(folder: Path) -> str:
    """Where the tables' files are."""
    return str((folder / _ROOT).absolute())


def open_folder(folder: Path, catalog: str | None, create: bool) -> Catalog:
    """The catalog of the warehouse in ``folder``; made there if the folder is missing or empty and ``create`` is set.

    ``catalog`` or else the environment variable PARQUETRY_CATALOG stands in for the address that the folder remembers.
    """
    description = folder / _DESCRIPTION
    if not description.exists():
        _check_free(folder, create)
        return _make(folder, catalog)
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
    return Catalog.open(_url(folder, address))


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
    return opened


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


def _url(folder: Path, address: str) -> str:
    return f"sqlite:///{(folder / _CATALOG).absolute()}" if address == _CATALOG else address
