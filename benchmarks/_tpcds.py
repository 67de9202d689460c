"""TPC-DS: data and query texts by DuckDB's extension, generated once into .cache.

The extension is published for an older DuckDB than the project's, so it runs in an environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks._data import CACHE

PACKAGES = ("duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5")
_FOLDER = CACHE / "tpcds"

KEYS = {
    "call_center": ["cc_call_center_sk"],
    "catalog_page": ["cp_catalog_page_sk"],
    "catalog_returns": ["cr_order_number", "cr_item_sk"],
    "catalog_sales": ["cs_order_number", "cs_item_sk"],
    "customer": ["c_customer_sk"],
    "customer_address": ["ca_address_sk"],
    "customer_demographics": ["cd_demo_sk"],
    "date_dim": ["d_date_sk"],
    "household_demographics": ["hd_demo_sk"],
    "income_band": ["ib_income_band_sk"],
    "inventory": ["inv_date_sk", "inv_item_sk", "inv_warehouse_sk"],
    "item": ["i_item_sk"],
    "promotion": ["p_promo_sk"],
    "reason": ["r_reason_sk"],
    "ship_mode": ["sm_ship_mode_sk"],
    "store": ["s_store_sk"],
    "store_returns": ["sr_ticket_number", "sr_item_sk"],
    "store_sales": ["ss_ticket_number", "ss_item_sk"],
    "time_dim": ["t_time_sk"],
    "warehouse": ["w_warehouse_sk"],
    "web_page": ["wp_web_page_sk"],
    "web_returns": ["wr_order_number", "wr_item_sk"],
    "web_sales": ["ws_order_number", "ws_item_sk"],
    "web_site": ["web_site_sk"],
}
"""Of all tables, in the order in which the data comes."""

# Arguments: scale and folder of the tables, or the file of the query texts.
_GENERATE = """
import json, pathlib, sys
import duckdb, duckdb_extension_tpcds
(extension,) = pathlib.Path(duckdb_extension_tpcds.__file__).parent.rglob("*.duckdb_extension")
duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
duck.execute(f"LOAD '{extension}'")
if len(sys.argv) == 2:
    texts = duck.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()
    pathlib.Path(sys.argv[1]).write_text(json.dumps(dict(texts)))
else:
    duck.execute(f"CALL dsdgen(sf={float(sys.argv[1])})")
    for (name,) in duck.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        duck.execute(f"COPY {name} TO '{sys.argv[2]}/{name}.parquet' (FORMAT parquet)")
"""


def tpcds(table: str, scale: float = 1) -> Path:
    """The path of a TPC-DS table as one Parquet file, generated on first use with all the others."""
    folder = _FOLDER / f"sf{scale:g}"
    if not folder.exists():
        unfinished = _FOLDER / f"sf{scale:g}-{os.getpid()}"
        unfinished.mkdir(parents=True)
        subprocess.run([str(_python()), "-c", _GENERATE, str(scale), str(unfinished)], check=True)
        unfinished.rename(folder)
    return folder / f"{table}.parquet"


def tpcds_queries() -> dict[int, str]:
    """The texts of the 99 queries by their numbers, in DuckDB's dialect."""
    path = _FOLDER / "queries.json"
    if not path.exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(_python()), "-c", _GENERATE, str(path)], check=True)
    return {int(n): text for n, text in json.loads(path.read_text()).items()}


def _python() -> Path:
    """The Python of the extension's environment, which is made if it is missing."""
    folder = _FOLDER / "env"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *PACKAGES], check=True)
        (folder / "ready").touch()
    return python
