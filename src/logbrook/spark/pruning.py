"""Column pruning: a batch read of `logbrook` or `logbrook_table` decodes only the columns that its query uses.

Spark's API for data sources in Python has no column pruning: a count would move all values. Spark 4.3 also keeps the
result of filter pushdown with the DataFrame, so that a query without a filter reads what the filter of an earlier one
has selected. Both are corrected by a rule of the optimizer in `pruning.java`, which is compiled in the driver's JVM.
It uses classes of Spark that are not part of its public interface. Without the rule, queries read all columns, and
filter pushdown must be disabled.
"""

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("pruning.java")
_CLASS = "logbrook.Pruning"

_is_installed: "WeakKeyDictionary[SparkContext, bool]" = WeakKeyDictionary()


def install_pruning(spark: SparkSession) -> bool:
    """Add the rule to the optimizer of all sessions of the application, once.

    Returns False if that is not possible: the JVM of a Spark Connect server cannot be reached, and another version of
    Spark may lack the classes.
    """
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None:
        return False
    context = spark.sparkContext
    if context not in _is_installed:
        try:
            java_session.extensions().injectOptimizerRule(_compiled_rule(context))
            _is_installed[context] = True
        except (Py4JError, TypeError):
            # A TypeError is a package in which Py4J has not found the class.
            _is_installed[context] = False
    return _is_installed[context]


def _compiled_rule(context: SparkContext) -> Any:
    """Compile the rule in the JVM. Returns the function that creates it for a session."""
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(_SOURCE.read_text())
    constructor = compiler.getClassLoader().loadClass(_CLASS).getConstructor(gateway.new_array(jvm.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.Object, 0))
