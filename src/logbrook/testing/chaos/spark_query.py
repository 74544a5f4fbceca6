"""The Spark driver of a chaos test: copies a topic exactly once until its standard input ends. Run as a script.

Arguments: bootstrap servers, source topic, target topic, a directory for all files. It prints `started` when the query
has copied something. At the end of its input it copies what is left and exits with 0; a query that failed ends it with
an exception.
"""

import sys
from threading import Thread

from logbrook.spark import session
from logbrook.testing.exactly_once.driver import quick_settings, stop
from logbrook.testing.kill.plan import MESSAGE_BYTES_MAX
from logbrook.testing.processes import wait_until

# Less than the brokers of a chaos test accept.
BATCH_BYTES = MESSAGE_BYTES_MAX // 2
_START_S_MAX = 300.0
_POLL_S = 0.2


def main() -> int:
    servers, source, target, directory = sys.argv[1:]
    spark = session("chaos", master="local[2]", conf=quick_settings(directory))
    reader = spark.readStream.format("logbrook").option("kafka.bootstrap.servers", servers).option("subscribe", source)
    reader = reader.option("startingOffsets", "earliest").option("isolation.level", "read_committed")
    frame = reader.load().select("value", "partition")
    writer = frame.writeStream.format("logbrook").option("kafka.bootstrap.servers", servers).option("topic", target)
    writer = writer.option("delivery", "exactly-once").option("checkpointLocation", f"{directory}/checkpoint")
    writer = writer.option("batch.size", BATCH_BYTES)
    query = writer.trigger(processingTime="500 milliseconds").start()
    Thread(target=_report_start, args=(query,), daemon=True).start()
    sys.stdin.read()
    query.processAllAvailable()
    if (error := query.exception()) is not None:
        raise error
    query.stop()
    stop(spark)
    return 0


def _report_start(query) -> None:  # type: ignore[no-untyped-def]
    wait_until(lambda: query.lastProgress is not None or not query.isActive, _START_S_MAX, _POLL_S)
    sys.stdout.write("started\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
