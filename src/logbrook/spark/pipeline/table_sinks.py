"""Keys of a sink with a table in a pipeline's file: mode upsert, and the maintenance of the table."""

from logbrook.spark.errors import OptionError
from logbrook.spark.pipeline.spec import UPSERT, MaintenanceSpec
from logbrook.spark.pipeline.toml_table import TomlTable
from logbrook.spark.read_options import read_duration_ms

# Keys that only mode upsert has.
UPSERT_ONLY = ("keys", "order", "delete")
_KEEP = "7d"


def read_upsert_options(keys: TomlTable, mode: str) -> dict[str, str]:
    """Return the options of `logbrook_table` for mode upsert; empty for another mode."""
    names, order = keys.texts("keys"), keys.texts("order")
    sink = ".".join(keys.path)
    if mode != UPSERT:
        for name in UPSERT_ONLY if "table" in keys else ():
            if name in keys:
                keys.add_problem(f'{sink}.{name} is for mode = "upsert"', name)
        return {}
    if "keys" not in keys:
        keys.add_problem(f'{sink}.keys is missing; mode = "upsert" needs the columns of the key, such as ["id"]')
    options = {"write.mode": UPSERT, "upsert.keys": ",".join(names)}
    return options | ({"upsert.order": ",".join(order)} if order else {})


def read_maintenance(keys: TomlTable) -> MaintenanceSpec | None:
    table = keys.table("maintenance")
    if table is None:
        return None
    optimize_ms, vacuum_ms = _read_interval(table, "optimize"), _read_interval(table, "vacuum")
    keep_ms = _read_interval(table, "keep", _KEEP)
    if "optimize" not in table and "vacuum" not in table:
        name = ".".join(table.path)
        table.add_problem(f'{name} has neither optimize nor vacuum; write for example optimize = "1h"')
    table.finish()
    return MaintenanceSpec(optimize_ms, vacuum_ms, keep_ms or 0)


def _read_interval(table: TomlTable, name: str, default: str | None = None) -> int | None:
    """Return a duration in ms, or None if there is none."""
    text = table.text(name, default)
    if text is None:
        return None
    try:
        interval_ms = read_duration_ms(name, text)
    except OptionError:
        interval_ms = 0
    if not interval_ms:
        table.refuse(name, 'a duration such as "1h" or "7 days"')
    return interval_ms
