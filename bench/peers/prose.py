"""The text of `docs/BENCHMARKS.md`: the introduction to each section and the method."""

HEAD = """# Logbrook compared with Kafka, Redis Streams and NATS JetStream

All systems are measured in turns on one machine. `make bench-peers` measures again; `python -m bench.peers --report`
writes this page from `bench/peers.json`. Do not edit it by hand. `make bench` measures Logbrook against its own
goals.

Throughput of Logbrook and Kafka: runs of 10 s, the median of three rounds, after a warm-up of each server until its
CPU time per GB no longer changes (at most three minutes). Redis and NATS, and all other sections: runs of 0.8 to 3 s,
the median of five rounds, from an earlier version. There Kafka's JIT compiler is warmed up for 8 s only, so Kafka's
latency, transactions and CPU time in those sections are worse than those of a broker that has been under load for
minutes."""

NOTHING_YET = "Nothing has been measured yet: `make bench-peers` takes about six hours."

PROMISES = """\
Systems are compared by the durability that an acknowledgement promises, not by the names of their settings. Logbrook
syncs before it acknowledges by default and its peers do not, so their defaults are compared with Logbrook's weaker
setting."""

KAFKA = "Both speak the same protocol to the same client, so only the server differs."

# measurement: (title, text, charts)
SECTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "throughput": (
        "Throughput and CPU per GB",
        """Messages of 100 B, 1 KB and 10 KB, the same number to each partition. Messages go to the partitions in
runs, as a sticky partitioner sends messages without keys, or, where marked "in turn", round-robin, as keys distribute
them, which makes batches smaller. MB and GB count messages before compression. Redis and NATS have neither partitions
nor zstd on the wire; each partition is a stream. † marks rows where the load used at least nine tenths of its cores:
the client is the bottleneck there, and the server's CPU per GB says more. Consuming does not depend on when messages
were synced, so it is measured once.""",
        ("bench-produce-disk.svg", "bench-produce-less.svg", "bench-consume.svg", "bench-cpu.svg"),
    ),
    "java": (
        "Kafka's own performance tools",
        "Kafka's `ProducerPerformance` and `ConsumerPerformance`, with its Java clients, on small messages.",
        (),
    ),
    "latency": (
        "Latency of acknowledgements",
        """Messages at a steady rate, from send to acknowledgement: acks=all with an idempotent producer, the reply to
XADD, a PubAck. ‡ marks rows where the rate was not reached.""",
        ("bench-latency-disk.svg", "bench-latency-less.svg"),
    ),
    "end_to_end": (
        "End-to-end latency",
        "From the call that sends a message in one process to the call that returns it in another.",
        (),
    ),
    "startup": (
        "Start-up time and idle memory",
        "With each system's defaults and one topic of an earlier run, until a client has a message acknowledged.",
        ("bench-start.svg",),
    ),
    "memory": (
        "Memory under load",
        """Peak RSS, including mapped files, while messages are produced and then consumed. Redis keeps all messages
in memory; Kafka has the 1 GiB heap that its start script sets.""",
        ("bench-memory.svg",),
    ),
    "partitions": (
        "A topic with 1,000 partitions",
        """Created in one topic (for Redis and NATS: 1,000 streams), then produced to. Kafka answers CreateTopics
before the partitions exist, so they count as created once each has acknowledged a message. Redis creates a stream
with its first message; `redis-benchmark` picks streams at random and may miss some. The first few KB of a partition
can cost much more than later ones and have their own row.""",
        (),
    ),
    "connections": (
        "2,000 connections",
        "Each connection is opened, has one small request answered and stays open; then another client produces.",
        (),
    ),
    "rebalance": (
        "Consumer groups of ten members",
        """With the defaults of the client and both brokers: a member learns of a rebalance with its next heartbeat,
every 3 s, and an empty group waits 3 s for more members. Groups of Redis and NATS share messages, not partitions, so
they do not rebalance.""",
        (),
    ),
    "transactions": (
        "Transactions",
        """The same records, plain and with a commit after every 1,000, from librdkafka with one batch per
transaction. A producer that waits for its commit sends nothing meanwhile, so one producer measures latency, and
several measure the cost of a transaction.""",
        (),
    ),
    "restart": (
        "Restart after SIGKILL",
        """Killed under load with a log of 10 KB messages (which favours systems that read every message at start-up),
until a client has a message acknowledged. Redis runs with its synced append-only file, because its defaults would
lose everything. An amount in brackets is the size of a log that was limited by memory.""",
        ("bench-restart.svg",),
    ),
    "cluster_load": (
        "Three nodes: throughput, latency, CPU and memory",
        """Clusters of three nodes on one machine, each with replication factor 3, acks=all and `min.insync.replicas=2`.
Logbrook keeps its metadata in an etcd of one member, which counts: rows with etcd include it, and its share of the CPU
has a row of its own. Kafka's three nodes are broker and controller each (KRaft), with the 1 GiB heap of its start
script. All seven processes and the load share two cores, so throughput is above all a measure of CPU.""",
        ("bench-cluster-disk.svg", "bench-cluster-memory.svg"),
    ),
    "cluster_operations": (
        "Three nodes: many partitions, and a node that has to catch up",
        """1,000 partitions with three replicas each, until every partition has acknowledged a message; and the time
from the start of a node that was stopped while the others were written to, until it is in sync with everything. Each
system has its defaults.""",
        (),
    ),
    "cluster_failover": (
        "Three nodes: failover",
        """A producer of librdkafka with its defaults and acks=all writes to a topic with three partitions; then the
leader of the first one is killed, paused, cut off from the network, or stopped. Of each partition the longest time
between two acknowledgements counts, so that partitions which only wait for a follower count, too. librdkafka waits a
minute for the answer of a leader that is paused or cut off, whatever the other nodes do. The time until a new client
can write to the first partition depends on the cluster alone. Everything is read back in the end: no acknowledged
message may be lost.""",
        ("bench-cluster-failover.svg",),
    ),
}

# file: (title, measurement, metric, promise or "" for the defaults)
CHARTS: dict[str, tuple[str, str, str, str]] = {
    "bench-produce-disk.svg": (
        "Produce, synced before the acknowledgement",
        "throughput",
        "produce, throughput",
        "disk",
    ),
    "bench-produce-less.svg": ("Produce, acknowledged before the sync", "throughput", "produce, throughput", "less"),
    "bench-consume.svg": ("Consume", "throughput", "consume, throughput", "less"),
    "bench-cpu.svg": (
        "Server CPU per GB produced, acknowledged before the sync",
        "throughput",
        "produce, CPU of the server",
        "less",
    ),
    "bench-latency-disk.svg": ("p99 of acknowledgements after the sync", "latency", "ack, p99", "disk"),
    "bench-latency-less.svg": ("p99 of acknowledgements before the sync", "latency", "ack, p99", "less"),
    "bench-start.svg": ("Start to first acknowledged message", "startup", "time", ""),
    "bench-memory.svg": ("Largest RSS", "memory", "largest RSS", ""),
    "bench-restart.svg": (
        "Restart after SIGKILL to first acknowledged message",
        "restart",
        "start to first acknowledged message",
        "",
    ),
    "bench-cluster-disk.svg": (
        "Three nodes, synced before the acknowledgement",
        "cluster_load",
        "produce, throughput",
        "disk",
    ),
    "bench-cluster-memory.svg": ("RSS of three nodes", "cluster_load", "RSS of three nodes", "disk"),
    "bench-cluster-failover.svg": (
        "Three nodes: until a new client can write",
        "cluster_failover",
        "until a new client can write",
        "",
    ),
}

SPARK = """\
From `make bench` (`bench/spark.py`): the same Spark session reads and writes the same Logbrook broker, through
Logbrook's format and through Spark's own Kafka connector. "Times" above 1 means that Logbrook's format is faster."""

METHOD = """## Method and limitations

- A throughput run lasts 10 s, a latency run 3 s. A throughput run fills at most 4 GB. The warm-up ends when the
  server's CPU time per GB of three runs of 2 s differs by at most a tenth, and after three minutes at the latest.
- Servers and loads share the cores of one machine and talk over the loopback interface. The server's CPU time, as
  counted by the kernel, depends least on that.
- All servers of a table run at once and take turns, round by round; the others are idle, not stopped. Only in the
  restart measurement does each run alone, because the disk has no room for all logs.
- Each throughput run has a new topic, and each partition takes 12 KB before the measurement: the first few KB of a
  partition cost Kafka far more than later ones. The section on 1,000 partitions shows that cost.
- The numbers in brackets are the lowest and the highest round. "Even" means that the spreads overlap.
- Logbrook and Kafka have the same client with the same settings: librdkafka through its C API, thousands of messages
  per call, so that Python is not measured; acks=all, and its defaults for batch size and linger. One producer makes
  about two million messages of 100 B per second, which is often the limit. A consumer prefetches a million messages,
  as librdkafka's own performance tool does.
- On a virtual machine the first use of a page costs system time, several times that of writing to it. Before each
  run, for every system, as much page cache is touched as the run will fill.
- Redis is produced to by its own `redis-benchmark`, 8 connections with 128 commands in flight each, and consumed from
  by redis-py with hiredis, 1,000 entries per call. NATS is produced to by two processes of nats-py and consumed from
  by one; it is pure Python and often the limit.
- Latency is measured inside librdkafka for Logbrook and Kafka, and in Python for Redis and NATS, which adds some
  client time. Messages are sent once per millisecond, so 10,000 per second are sent ten at a time.
- Kafka runs with the JVM options of its scripts and its own defaults, except for the replication factors of internal
  topics, which are 1 on one node. Formatting its directory is not part of a start.
- Systems that cannot sync before they acknowledge (such as NATS 2.9) are not in those tables.
- Only the sections on three nodes replicate. Their nodes share one machine and its disk, so that a sync of one node
  delays those of the others, and the network is the loopback interface. etcd syncs, too. Before a measurement each
  cluster is under load for at least 10 s, and until its CPU time per GB no longer changes. Memory is of one run."""
