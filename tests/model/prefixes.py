"""Keys by their values, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from parquetry.model.keys import encode_value


def encode_prefix(values: Sequence[Any], types: Sequence[pa.DataType]) -> bytes:
    """The bytes that every key starts with whose leading columns have these values."""
    return b"".join(encode_value(v, t) for v, t in zip(values, types, strict=True))
