"""The words of `docs/BENCHMARKS.md`: what each section says before its numbers."""

HEAD = """# Logbrook beside its peers

What a user would pick instead, measured in turns on one machine: Apache Kafka, Redis Streams and NATS JetStream.
`make bench-peers` measures again, `python -m bench.peers --report` writes this page from `bench/peers.json`; nothing on
it is written by hand. `make bench` measures Logbrook against its own goals."""

NOTHING_YET = "Nothing has been measured yet: `make bench-peers` takes about 35 minutes."

PROMISES = """\
Systems are set side by side by what an acknowledgement promises, not by the names of their settings: Logbrook syncs by
default and its peers do not, so their defaults stand beside Logbrook's weaker setting."""

KAFKA = "Both speak the same protocol to the same client, so here nothing but the server differs."

# measurement: (title, text, charts)
SECTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "throughput": (
        "Throughput and what it costs",
        """Messages of 100 B, 1 KB and 10 KB, as many to each partition: some in a row, as clients send what has no key,
or, where it says so, one to each in turn, as keys would have it, which makes for smaller batches. MB and GB are of
messages before compression. A partition is a stream of its own for Redis and NATS, which have none, nor zstd on the
wire. † marks where the load used nine tenths of its cores or more: there the client is what was measured, and the
server's CPU for each GB says more. Reading does not depend on when a message was synced, so it is measured once.""",
        ("bench-produce-disk.svg", "bench-produce-less.svg", "bench-consume.svg", "bench-cpu.svg"),
    ),
    "java": (
        "A second opinion: Kafka's own tools",
        "`ProducerPerformance` and `ConsumerPerformance` of Kafka, with its Java clients, on small messages.",
        (),
    ),
    "latency": (
        "Latency of an acknowledgement",
        """One message at a time at a steady rate, from the call that sends it to its acknowledgement: acks=all with an
idempotent producer, the answer to XADD, a PubAck. ‡ marks where the rate was not reached.""",
        ("bench-latency-disk.svg", "bench-latency-less.svg"),
    ),
    "end_to_end": (
        "Latency from end to end",
        "From the call that sends a message in one process to the call that returns it in another.",
        (),
    ),
    "startup": (
        "Start, and memory at rest",
        "Each as by default, with one topic from an earlier run, until a client has a message acknowledged.",
        ("bench-start.svg",),
    ),
    "memory": (
        "Memory under load",
        """The largest RSS that the kernel saw while messages were produced and then read, which counts the files that a
process has mapped. Redis keeps all messages in memory; Kafka has the heap of 1 GiB that its start script gives it.""",
        ("bench-memory.svg",),
    ),
    "partitions": (
        "A thousand partitions",
        """Made in one topic (for Redis and NATS: as many streams), and then written to. Kafka answers before a topic is
made, so it counts as made once each partition took a message; Redis makes a stream with its first message, and its tool
picks at random, so it may leave some out. The first few KB of a partition can cost much more than what follows, so they
have a line of their own.""",
        (),
    ),
    "connections": (
        "Two thousand connections",
        "Each is opened, asks the smallest question there is, and stays; then somebody else works.",
        (),
    ),
    "rebalance": (
        "Consumer groups of ten members",
        """With the defaults of the client and of both brokers: a member hears of a rebalance with its next heartbeat,
every 3 s, and an empty group waits 3 s for more members. Groups of Redis and NATS share messages and not partitions,
so there is nothing to rebalance.""",
        (),
    ),
    "transactions": (
        "Transactions",
        """The same records, plainly and with a commit after every 1,000, from librdkafka with one batch per
transaction. A client that waits for its commit does nothing else meanwhile, so one producer measures waiting, and
several measure what a transaction costs.""",
        (),
    ),
    "restart": (
        "Restart after SIGKILL",
        """Killed while messages come in, with a log of 10 KB messages (which suits those that read each message again),
until a client has a message acknowledged. Redis runs with its synced log, as by default it would have nothing left; an
amount in brackets is what it had where memory allows no more.""",
        ("bench-restart.svg",),
    ),
}

# file: (title, measurement, metric, promise or nothing)
CHARTS: dict[str, tuple[str, str, str, str]] = {
    "bench-produce-disk.svg": ("Produce, on the disk before the ack", "throughput", "produce, throughput", "disk"),
    "bench-produce-less.svg": ("Produce, acknowledged earlier", "throughput", "produce, throughput", "less"),
    "bench-consume.svg": ("Consume", "throughput", "consume, throughput", "less"),
    "bench-cpu.svg": (
        "CPU of the server for a GB produced, acknowledged earlier",
        "throughput",
        "produce, CPU of the server",
        "less",
    ),
    "bench-latency-disk.svg": ("p99 of an ack, on the disk before it", "latency", "ack, p99", "disk"),
    "bench-latency-less.svg": ("p99 of an ack, acknowledged earlier", "latency", "ack, p99", "less"),
    "bench-start.svg": ("Start to first acknowledged message", "startup", "time", ""),
    "bench-memory.svg": ("Largest RSS", "memory", "largest RSS", ""),
    "bench-restart.svg": (
        "SIGKILL, start, first acknowledged message",
        "restart",
        "start to first acknowledged message",
        "",
    ),
}

SPARK = """\
From `make bench` (`bench/spark.py`): the same Spark reads and writes the same Logbrook, through Logbrook's format and
through Spark's own Kafka connector. "Times" above 1 means that Logbrook's format is faster."""

METHOD = """## How it is measured, and what to hold against it

- One machine for servers and loads, over the loopback: they share the cores. The server's CPU time, as
  the kernel counts it for the process, is the number that depends least on that.
- All servers of a table run at once and take turns, round by round; those that wait are idle, not stopped. Only for the
  restart does each have the machine to itself, for want of room. What counts comes after a warm-up.
- Each run of a throughput has a new topic, and each partition takes 12 KB before anything counts: a partition's first
  few KB cost Kafka far more than what follows. The section on a thousand partitions shows that cost by itself.
- The number in brackets is the lowest and the highest round. "Even" means that the spreads overlap.
- Logbrook and Kafka have the same client with the same settings: librdkafka, called by its C functions, thousands of
  messages a call, so that nothing of Python is measured; acks=all, and its own defaults for batches and lingering.
  One of it makes about two million messages of 100 B a second, which is often the limit there. When it reads, it reads
  a million messages ahead, as librdkafka's own performance tool does.
- On a virtual machine the first use of a page is paid for in system time, several times what writing to it costs. So as
  much memory as the run is about to fill is touched before each, for every system.
- Redis is written to by its own `redis-benchmark`, 8 connections with 128 commands each under way, and read by redis-py
  with hiredis, 1,000 entries at a time. NATS is written to and read by nats-py, two processes of it for writing: it is
  Python all through and often the limit.
- Latency is taken inside librdkafka for Logbrook and Kafka, and in Python for Redis and NATS, which counts a little of
  the client too. Messages go out once a millisecond, so 10,000 a second come ten at a time.
- Kafka runs with the JVM options of its own scripts and its own defaults, but for the copies of internal topics, of
  which one node can have one. Formatting its directory is not counted as a start.
- A system that cannot sync before it acknowledges (NATS 2.9 is one) has no place in those tables.
- Nothing here is replicated. Kafka, Redis and NATS can be; Logbrook runs on one node."""
