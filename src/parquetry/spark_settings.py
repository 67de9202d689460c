"""Which settings of a user's Spark session reach our queries: none that an answer could depend on."""

from __future__ import annotations

import re

MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # A text means what it says: ${env:HOME} is four words of a string, not a variable.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # What files are listed by: above it Spark starts a job for what the catalog already knows.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}
"""What answers depend on where Spark's default is not ours. Every other setting of Spark SQL that answers may depend on
has its default, whatever the user's session says."""

_KEPT = re.compile(
    r"""
    spark\.sql\.(
        adaptive\.(advisoryPartitionSizeInBytes|autoBroadcastJoinThreshold|coalescePartitions\..*|enabled
            |forceOptimizeSkewedJoin|localShuffleReader\.enabled|maxShuffledHashJoinLocalMapThreshold|skewJoin\..*)
      | artifact\.isolation\..*  # PySpark turns it off: else every session starts Python workers of its own
      | autoBroadcastJoinThreshold | broadcastTimeout | maxBroadcastTableSize | maxSinglePartitionBytes
      | cartesianProductExec\.buffer\..* | sortMergeJoinExec\.buffer\..* | windowExec\.buffer\..*
      | cbo\.(enabled|joinReorder\..*|planStats\.enabled|starSchemaDetection)
      | codegen\.(hugeMethodLimit|maxFields|methodSplitThreshold|wholeStage)
      | debug\.maxToStringFields | maxMetadataStringLength | maxPlanStringLength | ui\..* | event\.truncate\.length
      | execution\.(arrow\.maxRecordsPerBatch|interruptOnCancel|topKSortFallbackThreshold)
      | files\.(maxPartitionBytes|maxPartitionNum|minPartitionNum|openCostInBytes)
      | inMemoryColumnarStorage\.(batchSize|compressed|enableVectorizedReader|hugeVector.*)
      | join\.preferSortMergeJoin | shuffledHashJoinFactor | leafNodeDefaultParallelism | shuffle\.partitions
      | optimizer\.(dynamicPartitionPruning\.enabled|runtime\.bloomFilter\..*|runtimeFilter\..*)
      | parquet\.columnarReaderBatchSize
    )
  | spark\.python\.sql\..*
  | (spark\.hadoop\.)?fs\..*
    """,
    re.X,
)
_OF_SQL = "spark.sql."


def is_kept(key: str) -> bool:
    """Whether our queries take the setting from the user's session: reviewed, it changes how fast, never what.

    >>> is_kept("spark.sql.shuffle.partitions"), is_kept("spark.sql.caseSensitive")
    (True, False)
    """
    return _KEPT.fullmatch(key) is not None


def is_dropped(key: str) -> bool:
    """Whether our queries run with Spark's default instead: so do all settings of Spark SQL that nobody reviewed."""
    return key.startswith(_OF_SQL) and not is_kept(key) and key not in MEANING
