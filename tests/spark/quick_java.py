"""Options and files that make Spark's processes start quickly, kept in the user's cache between runs.

- `spark_home` is a home for Spark, of links, without the archive of PySpark's own modules. Spark puts that archive
  first in the path of every Python that it starts, and each compiles what it needs of it anew, which takes a second.
  Without it they load the same modules from the package, compiled.
- `java_options` name an archive of the classes that Spark loads (class data sharing). A JVM that starts with it takes
  half the processor time to start Spark. It is made by a first start, and made again for another Java or PySpark. A JVM
  with another class path ignores it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from logbrook.testing.exactly_once.driver import QUICK_JAVA
from tests.interop.java.download_cache import cache_directory, key_of, locked
from tests.spark.limits import PROCESS_S_MAX

# Loads what most queries load, and writes the archive when the JVM ends.
_SCRIPT = """
import sys
from logbrook.spark import session
spark = session(master="local[2]", conf={"spark.driver.extraJavaOptions": sys.argv[1],
    "spark.sql.warehouse.dir": "warehouse", "spark.sql.shuffle.partitions": "2"})
spark.range(10).repartition(2).groupBy("id").count().write.parquet("rows")
query = (spark.readStream.format("rate").load().writeStream.format("noop").trigger(availableNow=True)
    .option("checkpointLocation", "checkpoint").start())
assert query.awaitTermination(60)
print(spark.read.parquet("rows").selectExpr("sum(id)").first())
spark.stop()
"""


def spark_home() -> Path:
    package = Path(pyspark.__file__).parent
    archive = package / "python" / "lib" / "pyspark.zip"
    cache = cache_directory("spark")
    home = cache / f"home-{key_of(pyspark.__version__, str(package))}"
    with locked(cache):
        if not (home / "complete").exists():
            home.mkdir(exist_ok=True)
            for path in (*package.iterdir(), *(package / "python").iterdir(), *(package / "python" / "lib").iterdir()):
                here = home / path.relative_to(package)
                if path in archive.parents:
                    here.mkdir(exist_ok=True)
                elif path != archive and not here.is_symlink():
                    here.symlink_to(path)
            (home / "complete").touch()
    return home


def java_options(home: Path, directory: Path) -> tuple[str, ...]:
    """Options of a JVM that runs for seconds. `directory` is for the files of a first start."""
    version = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    cache = cache_directory("spark")
    archive = cache / f"{key_of(version, str(home), *QUICK_JAVA, _SCRIPT)}.jsa"
    with locked(cache):
        if not archive.exists():
            _make_archive(home, archive, directory)
    # Without a log: warnings go to standard output, which Spark's scripts read.
    return (*QUICK_JAVA, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")


def _make_archive(home: Path, archive: Path, directory: Path) -> None:
    new = archive.with_suffix(".new")
    options = " ".join((*QUICK_JAVA, f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable"))
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(directory)}
    subprocess.run(
        [sys.executable, "-c", _SCRIPT, options],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROCESS_S_MAX,
        check=True,
    )
    new.rename(archive)
