"""SQL metadata: versions, edits, labels, leases, pins, the query log."""

from parquetry.catalog.apply_edits import LAYOUT_OF_THIS_COMMIT
from parquetry.catalog.catalog import Catalog
from parquetry.catalog.leases import Lease, LeaseKeeper
from parquetry.catalog.pins import Pin, Reader
from parquetry.catalog.records import Change, QueryRow, VersionRecord
from parquetry.catalog.retention import Trimmed

__all__ = [
    "LAYOUT_OF_THIS_COMMIT",
    "Catalog",
    "Change",
    "Lease",
    "LeaseKeeper",
    "Pin",
    "QueryRow",
    "Reader",
    "Trimmed",
    "VersionRecord",
]
