"""The ``parquetry`` command: the library's verbs, typed in a shell."""

from parquetry.cli.app import main

__all__ = ["main"]
