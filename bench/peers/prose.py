"""The text of `docs/BENCHMARKS.md`, the lines of its summary, and its charts."""

from typing import NamedTuple

HEAD = """# Logbrook compared with Kafka, Redis Streams and NATS JetStream

Written by `python -m bench.peers --report` from `bench/peers.json`; do not edit it by hand. `make bench-peers`
measures again, and `python -m bench.peers --table` prints every row."""

MARKS = """\
**What the marks mean.** After the warm-up a line runs until it is *steady*: the medians of two windows of 10 s, of
five runs each, agree within 5 %; all systems go on until the last one is steady. **~** marks a line that was not
steady after 60 s. **°** marks an older short run of 0.8 to 10 s, which does not follow this rule: where the JVM's
compiler had not caught up, Kafka was measured slower than it is. † the load used nine tenths of its cores. ‡ the rate
was not reached."""

NOTHING_YET = "Nothing has been measured yet: `make bench-peers ARGS=--plan` prints how long it takes."

SUMMARY = """\
The value of Logbrook divided by that of Kafka, in the median of all cases (from the least to the most). Both speak the
same protocol to the same client. "Even" means that the spreads overlap."""

METHOD = """\
## Method

- All servers run on one machine at once and take turns, run by run; the others are idle. Loads share its cores
  and the loopback interface. The CPU time of a server, as the kernel counts it, depends least on that.
- One server of each system stays up for all lines under a promise. All are warmed up with the same work until the CPU
  time per GB of each is steady; the warm-up is a line of its own, because a test suite pays it at each start.
- The load is librdkafka by its C API, with the same settings for both: acks=all, its defaults for batches and linger.
  Small requests come from a compiled loop over sockets. Redis is produced to by `redis-benchmark`; NATS by nats-py.
- Each run of producing has a new topic, 12 KB in each partition before it starts, and as much page cache touched as
  it will fill. A consumer reads from the page cache what was produced, several times.
- `sendfile` is the physical reference of consuming: a loop in Python that sends the same segment files to a reader.
- Kafka has the JVM options of its scripts and its defaults, except for replication factors of 1 on one node.
- Only the lines named "three nodes" replicate, with three nodes on this one machine. Logbrook's etcd counts."""


class SummaryLine(NamedTuple):
    """A line of the summary: all cases of a metric under a promise ("" for the defaults or for both)."""

    title: str
    measurement: str
    metric: str
    promise: str


SUMMARY_LINES = (
    SummaryLine("consume, throughput", "consume", "consume, throughput", "less"),
    SummaryLine("consume, CPU per GB", "consume", "consume, CPU of the server", "less"),
    SummaryLine("produce, throughput", "throughput", "produce, throughput", "less"),
    SummaryLine("produce, CPU per GB", "throughput", "produce, CPU of the server", "less"),
    SummaryLine("produce synced, throughput", "throughput", "produce, throughput", "disk"),
    SummaryLine("produce synced, CPU per GB", "throughput", "produce, CPU of the server", "disk"),
    SummaryLine("small requests, requests/s", "small_requests", "requests", "less"),
    SummaryLine("small requests, CPU", "small_requests", "CPU of the server per request", "less"),
    SummaryLine("small requests synced, requests/s", "small_requests", "requests", "disk"),
    SummaryLine("small requests synced, CPU", "small_requests", "CPU of the server per request", "disk"),
    SummaryLine("acknowledgement, p50", "latency", "ack, p50", "less"),
    SummaryLine("acknowledgement, p99", "latency", "ack, p99", "less"),
    SummaryLine("acknowledgement synced, p50", "latency", "ack, p50", "disk"),
    SummaryLine("acknowledgement synced, p99", "latency", "ack, p99", "disk"),
    SummaryLine("send to receive, p50", "end_to_end", "send to receive, p50", ""),
    SummaryLine("transactions/s", "transactions", "transactions", ""),
    SummaryLine("ten consumers of a topic, throughput", "fan_out", "consume, throughput", ""),
    SummaryLine("ten consumers of a topic, CPU per GB", "fan_out", "consume, CPU of the server", ""),
    SummaryLine("1,000 partitions, throughput", "many_partitions", "produce, throughput", ""),
    SummaryLine("1,000 partitions, CPU per GB", "many_partitions", "produce, CPU of the server", ""),
    SummaryLine("1,000 partitions, time to create", "partitions", "time", ""),
    SummaryLine("Java client, throughput", "java", "produce, throughput", ""),
    SummaryLine("Java client, CPU per GB consumed", "java", "consume, CPU of the server", ""),
    SummaryLine("producer beside a cold reader, p99", "beside", "ack, p99", ""),
    SummaryLine("100 idle groups, CPU", "idle_groups", "CPU of the server", ""),
    SummaryLine("bytes written to disk per byte", "disk_writes", "written to the disk per byte produced", ""),
    SummaryLine("compaction, throughput", "compaction", "throughput", ""),
    SummaryLine("compaction, CPU per GB", "compaction", "CPU of the server", ""),
    SummaryLine("warm-up, time under load", "warm_up", "time under load until steady", ""),
    SummaryLine("warm-up, CPU", "warm_up", "CPU until steady", ""),
    SummaryLine("memory over an hour, largest RSS", "endurance", "largest RSS", ""),
    SummaryLine("memory at rest", "startup", "RSS", ""),
    SummaryLine("start to first acknowledgement", "startup", "time", ""),
    SummaryLine("restart after SIGKILL, 10 GB", "restart", "start to first acknowledged message", ""),
    SummaryLine("rebalance of ten members", "rebalance", "until all is shared", ""),
    SummaryLine("three nodes, produce throughput", "cluster_load", "produce, throughput", ""),
    SummaryLine("three nodes, CPU per GB", "cluster_load", "CPU of all nodes", ""),
    SummaryLine("three nodes, acknowledgement p99", "cluster_load", "ack, p99", ""),
    SummaryLine("three nodes, failover of a new client", "cluster_failover", "until a new client can write", ""),
)

# Case, metric, measurement and promise of the rows that show Redis and NATS as well.
OTHERS = (
    ("1 KB, 1 partition", "produce, throughput", "throughput", "less"),
    ("1 KB, 1 partition", "produce, CPU of the server", "throughput", "less"),
    ("1 KB, 1 partition", "produce, throughput", "throughput", "disk"),
    ("1 KB, 1 partition", "consume, throughput", "consume", "less"),
    ("1 KB, 1,000 messages/s", "ack, p50", "latency", "less"),
    ("1 KB, 1,000 messages/s", "ack, p99", "latency", "disk"),
    ("at rest", "RSS", "startup", ""),
    ("start to first acknowledged message", "time", "startup", ""),
)


class Chart(NamedTuple):
    title: str
    measurement: str
    metric: str
    # "" for the defaults.
    promise: str


CHARTS: dict[str, Chart] = {
    "bench-consume-cpu.svg": Chart("Server CPU per GB consumed", "consume", "consume, CPU of the server", "less"),
    "bench-consume.svg": Chart("Consume", "consume", "consume, throughput", "less"),
    "bench-produce-cpu.svg": Chart(
        "Server CPU per GB produced, acknowledged before the sync", "throughput", "produce, CPU of the server", "less"
    ),
    "bench-produce-disk.svg": Chart(
        "Produce, synced before the acknowledgement", "throughput", "produce, throughput", "disk"
    ),
    "bench-latency-disk.svg": Chart("p99 of acknowledgements after the sync", "latency", "ack, p99", "disk"),
}
