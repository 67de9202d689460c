"""Figures 8 to 10 of paper 001."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def curves(path: Path, rows: Sequence[Mapping[str, Any]], x: str, series: Sequence[str], label: str) -> None:
    """Percentiles over the number of views or deltas, on a logarithmic scale."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for name in series:
        axes.plot([str(r[x]) for r in rows], [max(1e-3, r[name]) for r in rows], marker="o", label=name)
    axes.set(xlabel=x, ylabel=label, yscale="log")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def outage(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Latency and lag through the outage, which is shaded."""
    plt = _pyplot()
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(6, 4.5), layout="constrained", sharex=True)
    steps = [r["step"] for r in rows]
    for name in ("p99 ms", "p99 ms of everything", "ingest ms", "coupled ingest ms"):
        upper.plot(steps, [r[name] for r in rows], label=name)
    upper.set(yscale="log", ylabel="ms")
    upper.legend(fontsize=7)
    lower.plot(steps, [r["lag"] for r in rows], color="black")
    lower.set(xlabel="step", ylabel="batches that are hidden")
    down = [r["step"] for r in rows if r["down"]]
    for axes in (upper, lower):
        axes.axvspan(down[0] - 0.5, down[-1] + 0.5, alpha=0.15)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def clients(path: Path, rows: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> None:
    """Each figure of the three clients, relative to the largest."""
    plt = _pyplot()
    figure, panes = plt.subplots(1, len(figures), figsize=(2.4 * len(figures), 3), layout="constrained")
    for axes, name in zip(panes, figures, strict=True):
        most = max(r[name] for r in rows)
        axes.bar([r["client"] for r in rows], [r[name] / most for r in rows])
        axes.set_title(name, fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
