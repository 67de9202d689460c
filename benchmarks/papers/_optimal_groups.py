"""The cheapest groups of build blocks, by an integer program: what the rules that can be afforded are judged by."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from parquetry.joins.grouping import Groups
from parquetry.joins.overlap import Vectors


def optimal(vectors: Vectors, most: int, seconds: float) -> Groups | None:
    """The cheapest groups of at most ``most`` blocks each, by mixed integer programming (RB-19, 3.3-22); None when the
    solver does not prove them within ``seconds``."""
    n, m = vectors.shape
    c = math.ceil(n / most)
    pairs = np.argwhere(vectors)
    width = (n + m) * c  # x[i, k] says that block i is in group k, y[j, k] that group k reads probe block j
    rows = lil_array((n + c + len(pairs) * c, width))
    low, high = np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
    for i in range(n):
        rows[i, i * c : (i + 1) * c] = 1
    low[:n] = high[:n] = 1
    for k in range(c):
        rows[n + k, k : n * c : c] = 1
    high[n : n + c] = most
    at = n + c
    for i, j in pairs:
        for k in range(c):
            rows[at, n * c + j * c + k], rows[at, i * c + k] = 1, -1
            at += 1
    high[n + c :] = np.inf
    upper = np.ones(width)
    for i in range(min(n, c)):
        upper[i * c + i + 1 : (i + 1) * c] = 0  # groups are alike: block i is in one of the first i + 1
    cost = np.concatenate([np.zeros(n * c), np.ones(m * c)])
    solved = milp(
        cost,
        integrality=np.ones(width),
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(rows.tocsr(), low, high),
        options={"time_limit": seconds},
    )
    if solved.status != 0:
        return None
    chosen = np.round(solved.x[: n * c]).reshape(n, c).argmax(axis=1)
    return [g for k in range(c) if (g := [int(i) for i in np.flatnonzero(chosen == k)])]
