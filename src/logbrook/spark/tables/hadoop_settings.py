"""The stores' settings of a Spark session: `fs.*` of Hadoop's configuration, as Spark's own readers use them.

They come from `spark.hadoop.fs.*`, from `core-site.xml` and from code that changes the Hadoop configuration. A data
source in Python does not see them, so they are read when the source is registered, and travel with it to the workers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from logbrook.spark.tables.store_options import SESSION_PREFIXES, SESSION_SETTINGS, hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_settings(spark: "SparkSession") -> dict[str, str]:
    """Return the settings that `store_options` translates and the session has, in Hadoop's names."""
    java_context = getattr(getattr(spark, "sparkContext", None), "_jsc", None)
    if java_context is None:
        # Spark Connect shows the session's settings, but not Hadoop's configuration.
        return hadoop_settings(dict(spark.conf.getAll).items())
    return _of_configuration(java_context.hadoopConfiguration())


def _of_configuration(configuration: Any) -> dict[str, str]:
    settings = {name: configuration.get(name) for name in SESSION_SETTINGS}
    for prefix in SESSION_PREFIXES:
        named: Mapping[str, str] = configuration.getPropsWithPrefix(prefix)
        settings |= {f"{prefix}{name}": text for name, text in dict(named).items()}
    return {name: text for name, text in settings.items() if text and not _is_default(name, text)}


def _is_default(name: str, text: str) -> bool:
    return name.endswith(".connection.ssl.enabled") and text.lower() == "true"
