"""A hidden column of data files with the number of each row group, by which Spark can skip it (WP-20, PW-08).

Our proofs rule out row groups that no statistics of Parquet could. One value to a row group costs next to nothing in
the file, and its minimum, its maximum and its dictionary tell a reader exactly which ones a filter on it wants.
"""

from __future__ import annotations

import hashlib

ROW_GROUP = "__row_group"
_FILE_BYTES = 5
_GROUP_BITS = 16


def row_group_number(path: str, ordinal: int) -> int:
    """The number of a row group; those of two files differ, so that one filter may do for many files.

    >>> row_group_number("1/x/part-a.parquet", 3) - row_group_number("1/x/part-a.parquet", 0)
    3
    """
    file = hashlib.blake2b(path.rpartition("/")[2].encode(), digest_size=_FILE_BYTES).digest()
    return (int.from_bytes(file, "big") << _GROUP_BITS) + ordinal
