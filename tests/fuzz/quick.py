"""Sessions for many small queries, each of which is run once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUICK = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",  # a text means what it says
    # Every text is new and its rows are few: to generate and compile code for it takes longer than to run it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def made_quick(session: SparkSession) -> SparkSession:
    """The session itself, with settings that change no answer."""
    for name, value in _QUICK.items():
        session.conf.set(name, value)
    return session
