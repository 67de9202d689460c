"""Local files and folders that are still there after a power cut, and files that only their owner may read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def sync(path: str | os.PathLike[str]) -> None:
    """Brings a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str | os.PathLike[str]) -> None:
    """Makes a folder and those above it that are missing; each one's name is on the disk, too."""
    folder = Path(path)
    if folder.is_dir():
        return
    make_folders(folder.parent)
    with suppress(FileExistsError):  # another writer was faster; what is no folder is noticed below
        folder.mkdir()
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))
    sync(folder.parent)


def publish_private(path: Path, text: str) -> None:
    """Writes a file whole or not at all, for its owner only."""
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)  # of a writer that died
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)
    sync(path.parent)
