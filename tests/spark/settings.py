"""Spark settings of these tests: quick to start, local only, with all files in one directory."""

from logbrook.testing.exactly_once.driver import QUICK_JAVA

# Hadoop's older interface to files. Through the newer, Spark's default, it runs the programs `readlink` and `chmod` for
# all that is written to a checkpoint, thirty a micro-batch and more where there is state. It is for a Spark that nobody
# kills while it writes one: the older writes a file and its checksum in two steps.
QUICK_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


def settings(directory: str) -> dict[str, str]:
    """Return the settings of a session that writes only below `directory`."""
    java = (
        *QUICK_JAVA,
        f"-Djava.io.tmpdir={directory}",
        f"-Dderby.system.home={directory}/derby",
    )
    return {
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{directory}/local",
        # Plans of tiny data gain nothing from being revised after each stage.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.pollingDelay": "100ms",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointLocation": f"{directory}/checkpoints",
        # By default `stop` waits without limit for a query.
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
