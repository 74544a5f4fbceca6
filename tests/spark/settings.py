"""How the Sparks of these tests are set up: quick to start, on this machine only, and all they write in one place."""

from logbrook.testing.exactly_once.java import QUICK_JAVA

# Hadoop's older interface to files. Through the newer, Spark's default, it runs the programs `readlink` and `chmod` for
# all that is written to a checkpoint, thirty a micro-batch and more where there is state. It is for a Spark that nobody
# kills while it writes one: the older writes a file and its checksum in two steps.
QUICK_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


def settings(directory: str) -> dict[str, str]:
    """For a session that writes below `directory` and nowhere else."""
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
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointLocation": f"{directory}/checkpoints",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
