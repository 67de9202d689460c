"""The workload generators of the PAW paper (PW-25, PW-26). A workload is an array of query by column by (lo, hi)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parquetry.model.box import Box, Interval
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Range


@dataclass(frozen=True)
class Setting:
    """Table III. Shares are of each column's domain; ``history`` queries are learned from, as many come after."""

    history: int = 50
    dims: int = 4
    delta: float = 0.01
    gamma: float = 0.10
    skewed: bool = False
    centres: int = 10
    sigma: float = 0.10  # of gamma
    two_sided: bool = False
    random_share: float = 0.0

    def but(self, **changes: object) -> Setting:
        return replace(self, **changes)  # type: ignore[arg-type]


def generate(setting: Setting, domain: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The historical workload and the future one, in the columns' own units."""
    rng = np.random.default_rng(seed)
    history = _queries(setting, rng, setting.history)
    future = perturb(history, setting, rng)
    strangers = round(setting.random_share * len(future))
    future[rng.permutation(len(future))[:strangers]] = _queries(setting.but(skewed=False), rng, strangers)
    low, length = domain[:, :1], domain[:, 1:] - domain[:, :1]
    return low + history * length, low + future * length


def _queries(setting: Setting, rng: np.random.Generator, count: int) -> np.ndarray:
    width = rng.uniform(0, setting.gamma, (count, setting.dims))
    if setting.skewed:
        centres = rng.uniform(0, 1, (setting.centres, setting.dims))
        noise = rng.normal(0, setting.sigma * setting.gamma, (count, setting.dims))
        middle = np.clip(centres[rng.integers(0, setting.centres, count)] + noise, 0, 1)
    else:
        middle = rng.uniform(0, 1, (count, setting.dims))
    return np.clip(np.stack([middle - width / 2, middle + width / 2], axis=2), 0, 1)


def perturb(history: np.ndarray, setting: Setting, rng: np.random.Generator) -> np.ndarray:
    """One future query per historical one, within delta of it: wider on every side, or moved either way (3.5-13)."""
    low = -1.0 if setting.two_sided else 0.0
    moved = history.copy()
    moved[:, :, 0] -= rng.uniform(low, 1, history.shape[:2]) * setting.delta
    moved[:, :, 1] += rng.uniform(low, 1, history.shape[:2]) * setting.delta
    moved[:, :, 1] = np.maximum(moved[:, :, 0], moved[:, :, 1])
    return np.clip(moved, 0, 1)


def as_box(query: np.ndarray, columns: tuple[str, ...]) -> Box:
    return Box({c: Interval(lo, hi) for c, (lo, hi) in zip(columns, query.tolist(), strict=True)})


def as_logged(queries: np.ndarray, columns: tuple[str, ...]) -> list[LoggedQuery]:
    return [
        LoggedQuery(And(tuple(Range(c, lo, hi) for c, (lo, hi) in zip(columns, q, strict=True))))
        for q in queries.tolist()
    ]
