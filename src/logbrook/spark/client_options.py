"""Options of Kafka's consumers and producers (`kafka.*`): the effect of each on a read and on a write.

An option has an effect, or none, or is refused. One without effect is accepted, so that a tuned job needs no other
change than the format's name, and is logged with the reason in one line. An option is refused if ignoring it would
change the rows or make a connection less secure than asked for. An option of consumers on a write, or of producers on a
read, has no effect.

`python -m logbrook.spark.client_options docs/SPARK.md` writes the table of the documentation.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from logbrook.model.event_log import event_logger
from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader

_logger = event_logger(__name__)


class Treatment(StrEnum):
    """The way an option is treated."""

    EFFECT = "effect"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


class OptionRule(NamedTuple):
    """Treatment of an option on reads or on writes.

    `text` is the effect, or the reason for no effect or the refusal. The values in `usual` state what is done anyway:
    they are accepted without a word.
    """

    treatment: Treatment
    text: str
    usual: tuple[str, ...] = ()


class ClientOption(NamedTuple):
    """Options that are treated alike. A name may end in `*`. `reads` or `writes` is None if Kafka has none there."""

    names: tuple[str, ...]
    reads: OptionRule | None
    writes: OptionRule | None


def _effect(text: str) -> OptionRule:
    return OptionRule(Treatment.EFFECT, text)


def _no_effect(text: str, *usual: str) -> OptionRule:
    return OptionRule(Treatment.NO_EFFECT, text, usual)


def _refused(text: str, *usual: str) -> OptionRule:
    return OptionRule(Treatment.REFUSED, text, usual)


def _both(rule: OptionRule, *names: str) -> ClientOption:
    return ClientOption(names, rule, rule)


def _reads(rule: OptionRule, *names: str) -> ClientOption:
    return ClientOption(names, rule, None)


def _writes(rule: OptionRule, *names: str) -> ClientOption:
    return ClientOption(names, None, rule)


_NO_GROUP = "Spark assigns the partitions; no query joins a consumer group"
_METADATA = "metadata is looked up when a query is planned, for each micro-batch, and after errors"

CLIENT_OPTIONS = (
    _both(_effect("required"), "bootstrap.servers"),
    _both(_effect("name of the client in the broker's logs and metrics; logbrook-spark"), "client.id"),
    _both(_effect("time limit of a request; 30000"), "request.timeout.ms"),
    _both(_effect("time limit of connecting; 10000, at most that of a request"), "socket.connection.setup.timeout.ms"),
    _reads(_effect("streams, without the prefix: progress is committed under this name"), "group.id"),
    _reads(_no_effect("as with Spark's connector, nothing is committed under it; use group.id"), "kafka.group.id"),
    _reads(_effect("read_committed skips aborted transactions; read_uncommitted"), "isolation.level"),
    _reads(
        _effect("size of a fetch, the smaller of the two, at most 64 MiB; 8 MiB"),
        "fetch.max.bytes",
        "max.partition.fetch.bytes",
    ),
    _reads(_effect("time a broker may wait for records; 1000"), "fetch.max.wait.ms"),
    _writes(_effect("none, gzip, snappy, lz4, zstd; also as compression"), "compression.type"),
    _writes(
        _effect("level of that codec; -1, 9, 3"),
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
    ),
    _writes(_effect("size of a record batch; 1000000"), "batch.size"),
    _writes(_effect("size of a request and of the largest record; 1 MiB"), "max.request.size"),
    _writes(_effect("bytes that a task has sent without an acknowledgement; 32 MiB"), "buffer.memory"),
    _reads(_effect("time that a query waits for a cluster that is away; 300000"), "default.api.timeout.ms"),
    _writes(
        _effect("time limit of a record and its retries, and of finding the cluster; 300000"), "delivery.timeout.ms"
    ),
    _writes(_effect("with delivery = exactly-once; 15 minutes"), "transaction.timeout.ms"),
    _writes(_no_effect("all replicas acknowledge every record", "all", "-1"), "acks"),
    _writes(_no_effect("the producer is always idempotent", "true"), "enable.idempotence"),
    _writes(_no_effect("it is 5, the most that keeps the order", "5"), "max.in.flight.requests.per.connection"),
    _writes(_no_effect("a task sends each Arrow batch at once"), "linger.ms"),
    _writes(_no_effect("delivery.timeout.ms limits the retries"), "retries"),
    _writes(_no_effect("request.timeout.ms and delivery.timeout.ms limit every wait"), "max.block.ms"),
    _writes(
        _no_effect("rows without a key are spread evenly"),
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    ),
    ClientOption(
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        _no_effect("fetchOffset.retryIntervalMs sets the interval"),
        _no_effect("retries wait 100 ms at first, and 1 s at most"),
    ),
    _reads(_no_effect("the records of a task exist when it starts"), "fetch.min.bytes"),
    _reads(_no_effect("rows reach Spark in Arrow batches"), "max.poll.records", "max.poll.interval.ms"),
    _reads(_no_effect("checksums are always verified", "true"), "check.crcs"),
    _reads(_no_effect("records are read from leaders"), "client.rack"),
    _reads(_no_effect("a missing topic is an error; none is created", "false"), "allow.auto.create.topics"),
    _reads(_no_effect("progress is committed once per micro-batch, with group.id"), "auto.commit.interval.ms"),
    _reads(
        _no_effect(_NO_GROUP),
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "partition.assignment.strategy",
    ),
    _both(
        _no_effect(_METADATA),
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    _both(
        _no_effect("a closed connection is opened again when it is needed"),
        "connections.max.idle.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "socket.connection.setup.timeout.max.ms",
    ),
    _both(_no_effect("the operating system sizes these"), "send.buffer.bytes", "receive.buffer.bytes"),
    _both(_no_effect("every address of a host name is tried"), "client.dns.lookup"),
    _both(
        _no_effect("Spark reports the progress; there are no metrics of clients"),
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "enable.metrics.push",
        "auto.include.jmx.reporter",
    ),
    _both(_effect("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; PLAINTEXT"), "security.protocol"),
    _both(
        _effect("as in Kafka's clients and librdkafka, with certificates in PEM files; others are refused by name"),
        "sasl.*",
        "ssl.*",
        "enable.ssl.certificate.verification",
        "https.ca.location",
    ),
    _both(_refused("it names Java classes"), "security.providers"),
    _both(_refused("values are taken literally; look secrets up before"), "config.providers", "config.providers.*"),
    _both(_refused("interceptors are Java classes"), "interceptor.classes"),
    _reads(_refused("use startingOffsets"), "auto.offset.reset"),
    _reads(_refused("use group.id to have progress committed", "false"), "enable.auto.commit"),
    _reads(_refused("a pattern matches no internal topic; name it in subscribe", "true"), "exclude.internal.topics"),
    _reads(
        _refused("keys and values are bytes; cast them in the query"),
        "key.deserializer",
        "value.deserializer",
    ),
    _writes(
        _refused("keys and values are strings or bytes; cast them in the query"),
        "key.serializer",
        "value.serializer",
    ),
    _writes(_refused("set the column partition instead"), "partitioner.class"),
    _writes(_refused("set the column partition instead", "false"), "partitioner.ignore.keys"),
    _writes(_refused("delivery = exactly-once derives it from app.id and the task number"), "transactional.id"),
    _writes(_refused("each task commits its own transaction", "false"), "transaction.two.phase.commit.enable"),
)
_BY_NAME = {name: option for option in CLIENT_OPTIONS for name in option.names if not name.endswith("*")}
_BY_PREFIX = {name[:-1]: option for option in CLIENT_OPTIONS for name in option.names if name.endswith("*")}
# Options that this process has logged: a query parses its options several times.
_logged: set[tuple[bool, str]] = set()


def accept_client_options(reader: OptionReader, *, is_write: bool) -> None:
    """Accept all client options in `reader`, and log those without effect in one line. Raises OptionError."""
    for name in _BY_NAME:
        reader.text(name)
    without_effect = []
    for name, given, text in reader.given():
        rule = _rule_of(name, is_write=is_write)
        if rule is None or rule.treatment is Treatment.EFFECT or text.strip().lower() in map(str.lower, rule.usual):
            continue
        if rule.treatment is Treatment.REFUSED:
            raise OptionError(given, f"it cannot be {repr(text) if rule.usual else 'set'} here; {rule.text}")
        without_effect.append(f"{given} ({rule.text})")
    if without_effect:
        _log_once(", ".join(without_effect), is_write=is_write)


def option_table() -> str:
    """Return the table of all options in Markdown."""
    rows = []
    for option in CLIENT_OPTIONS:
        writes = "the same" if option.writes == option.reads else _cell(option.writes)
        rows.append(f"| {', '.join(f'`{name}`' for name in option.names)} | {_cell(option.reads)} | {writes} |")
    return "\n".join(["| option, without `kafka.` | on a read | on a write |", "|---|---|---|", *rows])


def with_table(document: str) -> str:
    """Return `document` with the table between its markers replaced. Raises ValueError if it has no markers."""
    start, end = "<!-- client options -->\n", "\n<!-- end of client options -->"
    before, _, rest = document.partition(start)
    _, _, after = rest.partition(end)
    if not after:
        raise ValueError("the document has no markers of the client options")
    return f"{before}{start}\n{option_table()}\n{end}{after}"


def _rule_of(name: str, *, is_write: bool) -> OptionRule | None:
    """Return the rule for an option without its prefix, or None if Kafka's clients have no such option."""
    option = _BY_NAME.get(name) or next((_BY_PREFIX[prefix] for prefix in _BY_PREFIX if name.startswith(prefix)), None)
    if option is None:
        return None
    rule, other = (option.writes, "reads") if is_write else (option.reads, "writes")
    return _no_effect(f"it is for {other}") if rule is None else rule


def _log_once(options: str, *, is_write: bool) -> None:
    if (is_write, options) not in _logged:
        _logged.add((is_write, options))
        _logger.warning("client options without effect", operation="write" if is_write else "read", options=options)


def _cell(rule: OptionRule | None) -> str:
    if rule is None:
        return ""
    if rule.treatment is Treatment.EFFECT:
        return rule.text
    exception = f", except `{rule.usual[0]}`" if rule.treatment is Treatment.REFUSED and rule.usual else ""
    return f"{rule.treatment}{exception}: {rule.text}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
