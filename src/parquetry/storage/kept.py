"""Files that a new delta takes over from the one it replaces, with their row groups as the old index knows them.

A rewrite of some blocks lists the untouched files again instead of copying them: files are immutable and vacuum goes by
reference. Only the index is new, because the blocks behind the rewritten ones may have other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from parquetry.errors import StorageError
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.keys import BLOCK_BYTES, block_prefix
from parquetry.model.schema import TableSchema
from parquetry.model.types import is_float, is_nested
from parquetry.storage.index import CARRIED, RowGroup
from parquetry.storage.index_reader import open_index
from parquetry.storage.store import Store


@dataclass(frozen=True)
class KeptFile:
    file: StoredFile
    groups: tuple[RowGroup, ...]


def keep_files(
    store: Store, delta: Delta, schema: TableSchema, ordinals: Collection[int], renumbered: Callable[[int], int]
) -> list[KeptFile]:
    """The files of a delta with these ordinals, under the current schema and with their blocks renumbered."""
    index = open_index(store, delta.index)
    table = index.row_groups()
    wanted = [i for i, file in enumerate(table.batch["file"].to_pylist()) if file in ordinals]
    columns: dict[str, dict[str, list[Any]]] = {"min": {}, "max": {}, "nulls": {}, "nan": {}}
    for c in schema.columns:
        kinds = ["nulls", *([] if is_nested(c.arrow) else ["min", "max"]), *(["nan"] if is_float(c.arrow) else [])]
        for kind in kinds:
            columns[kind][c.name] = table.stat(kind, c.name, c.arrow).to_pylist()
    unknown: list[Any] = [None] * len(table)  # of an index of an earlier format
    had = table.batch.schema.names
    plain = {name: table.batch[name].to_pylist() if name in had else unknown for name in CARRIED}

    def moved(key: bytes) -> bytes:
        return block_prefix(renumbered(int.from_bytes(key[:BLOCK_BYTES], "big"))) + key[BLOCK_BYTES:]

    groups: dict[int, list[RowGroup]] = {}
    for i, leaf in zip(wanted, index.leaves(wanted), strict=True):
        end = table.ends[i]
        if not end.endswith(b"\x00"):  # the bound of a cut key: the last key itself is not known
            raise StorageError("keys of more than a kilobyte are in the way; relayout the whole table instead")
        stats = {kind: {name: values[i] for name, values in of.items()} for kind, of in columns.items()}
        groups.setdefault(plain["file"][i], []).append(
            RowGroup(
                file=0,
                row_group=plain["row_group"][i],
                rows=plain["rows"][i],
                bytes=plain["bytes"][i],
                block=renumbered(plain["block"][i]),
                starts=tuple(moved(key) for key in leaf.starts),
                start_rows=tuple(int(n) for n in leaf.rows),
                last=moved(end[:-1]),
                mins=stats["min"],
                maxs=stats["max"],
                nulls=stats["nulls"],
                nans=stats["nan"],
                boxes=plain["boxes"][i],
                chunk_crcs=plain["chunk_crcs"][i],
                footer_at=plain["footer_at"][i],
                footer_crc=plain["footer_crc"][i],
            )
        )
    return [KeptFile(delta.files[file], tuple(found)) for file, found in groups.items()]
