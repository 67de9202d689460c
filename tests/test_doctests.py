"""Every example in a docstring runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import parquetry


def test_examples_in_docstrings() -> None:
    modules = [m.name for m in pkgutil.walk_packages(parquetry.__path__, "parquetry.")]
    tried = 0
    for name in modules:
        found = doctest.testmod(importlib.import_module(name))
        assert found.failed == 0, f"{found.failed} examples of {name} fail: python -m doctest shows them"
        tried += found.attempted
    assert tried > 30
