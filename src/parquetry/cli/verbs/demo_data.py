"""The demo's data: TPC-H orders and lineitem in batches, as they would arrive, and daily totals made from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parquetry.errors import ParquetryError

if TYPE_CHECKING:
    import pyarrow as pa

_GENERATOR = "tpchgen-cli"
# Five files per table; the last two make one batch, so the newest delta outweighs its elders and compaction is due.
_PARTS = 5


@dataclass(frozen=True)
class Batch:
    """What arrives at one time."""

    orders: tuple[Path, ...]
    lineitem: tuple[Path, ...]

    def daily_totals(self) -> pa.Table:
        """The batch's orders and revenue per day; a day appears in many batches."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        parts = [pq.read_table(path, columns=["o_orderdate", "o_totalprice"]) for path in self.orders]
        grouped = (
            pa.concat_tables(parts).group_by("o_orderdate").aggregate([("o_totalprice", "sum"), ([], "count_all")])
        )
        revenue = pc.cast(grouped["o_totalprice_sum"], pa.decimal128(18, 2))
        return pa.table({"day": grouped["o_orderdate"], "revenue": revenue, "orders": grouped["count_all"]})


def generate(folder: Path, scale: float) -> list[Batch]:
    """Writes the tables' Parquet files under ``folder`` and gives them as four batches."""
    beside = Path(sys.executable).with_name(_GENERATOR)
    program = str(beside) if beside.exists() else shutil.which(_GENERATOR)
    if program is None:
        raise ParquetryError(f"the demo makes its data with {_GENERATOR}; install it: pip install 'parquetry[demo]'")
    command = [program, "parquet", "-s", f"{scale:g}", "--tables", "orders,lineitem", "--parts", str(_PARTS)]
    done = subprocess.run(
        [*command, "--output-dir", str(folder), "-q"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ParquetryError(f"{_GENERATOR} failed: {reason}; check the free space of {folder}")
    orders, lineitem = (
        [folder / table / f"{table}.{part}.parquet" for part in range(1, _PARTS + 1)]
        for table in ("orders", "lineitem")
    )
    cuts = [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, None)]
    return [Batch(tuple(orders[cut]), tuple(lineitem[cut])) for cut in cuts]
