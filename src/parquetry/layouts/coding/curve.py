"""Space-filling curves over column ranks: Z-order and Hilbert, vectorised, and the box around a stretch of curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.model.layout import CurveLayout


def curve_values(spec: CurveLayout, table: pa.Table) -> Numbers:
    """Where each row lies on the curve, as int64."""
    ranks = []
    for c in spec.columns:
        line = Positions.of(spec.boundaries[c], table.schema.field(c).type)
        ranks.append(line.place(table.column(c)).astype(np.int64) // 2)
    return encode(spec.curve, ranks, spec.bits)


def encode(curve: str, ranks: Sequence[Numbers], bits: int) -> Numbers:
    """One curve value per point. Each rank is below ``2**bits``."""
    axes = [np.array(r, dtype=np.int64) for r in ranks]
    if curve == "hilbert":
        _to_transpose(axes, bits)
    value = np.zeros(len(axes[0]), dtype=np.int64)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            value = (value << 1) | ((axis >> bit) & 1)
    return value


def decode(curve: str, values: Numbers, dims: int, bits: int) -> list[Numbers]:
    """The inverse of :func:`encode`."""
    axes = [np.zeros(len(values), dtype=np.int64) for _ in range(dims)]
    for position in range(bits * dims):
        bit = (values >> (bits * dims - 1 - position)) & 1
        axes[position % dims] = (axes[position % dims] << 1) | bit
    if curve == "hilbert":
        _from_transpose(axes, bits)
    return axes


def _to_transpose(axes: list[Numbers], bits: int) -> None:
    """Skilling's algorithm (Programming the Hilbert curve, 2004), for all points at once, in place."""
    q = 1 << (bits - 1)
    while q > 1:
        for i in range(len(axes)):
            _turn(axes, i, q)
        q >>= 1
    for i in range(1, len(axes)):
        axes[i] ^= axes[i - 1]
    flip = np.zeros_like(axes[0])
    q = 1 << (bits - 1)
    while q > 1:
        flip ^= np.where(axes[-1] & q, q - 1, 0)
        q >>= 1
    for axis in axes:
        axis ^= flip


def _from_transpose(axes: list[Numbers], bits: int) -> None:
    gray = axes[-1] >> 1
    for i in range(len(axes) - 1, 0, -1):
        axes[i] ^= axes[i - 1]
    axes[0] ^= gray
    q = 2
    while q != 1 << bits:
        for i in range(len(axes) - 1, -1, -1):
            _turn(axes, i, q)
        q <<= 1


def _turn(axes: list[Numbers], i: int, q: int) -> None:
    """Invert the low bits of axis 0 where axis ``i`` has bit ``q``, else exchange them with those of axis ``i``."""
    has = (axes[i] & q) != 0
    swap = np.where(has, 0, (axes[0] ^ axes[i]) & (q - 1))
    axes[0] ^= np.where(has, q - 1, swap)
    axes[i] ^= swap


def bounding_ranks(curve: str, starts: Numbers, ends: Numbers, dims: int, bits: int) -> tuple[Numbers, Numbers]:
    """Per stretch ``[start, end)`` the lowest and highest rank on each axis, as two arrays of stretch by axis.

    A stretch falls apart into few aligned pieces of 2**k values, however many axes there are. Each fills a box on
    either curve: cubes of one size that differ in ``k % dims`` axes. Both curves step from the first of them along
    another axis at every power of two, so that these cubes tell the box.
    """
    owner, first, level = [], [], []
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while start < end:
            aligned = (start & -start).bit_length() - 1 if start else bits * dims
            length = min(aligned, (end - start).bit_length() - 1)
            size, axes = divmod(length, dims)
            cubes = [start, *(start + (1 << (dims * size + axis)) for axis in range(axes))]
            owner += [i] * len(cubes)
            first += cubes
            level += [size] * len(cubes)
            start += 1 << length
    corners = np.stack(decode(curve, np.array(first, np.int64), dims, bits), axis=1)
    low_bits = ((1 << np.array(level, np.int64)) - 1)[:, None]
    lo = np.full((len(starts), dims), 1 << bits, np.int64)
    hi = np.full((len(starts), dims), -1, np.int64)
    np.minimum.at(lo, np.array(owner), corners & ~low_bits)
    np.maximum.at(hi, np.array(owner), corners | low_bits)
    return lo, hi
