"""Writes `docs/BENCHMARKS.md` with its charts, and the measured paragraph of the README, from `bench/peers.json`.

The document has two pages at most: a summary of every measurement beside Kafka, the lines on which Logbrook is behind
and as many on which it is ahead, a table with the other systems, and the method. Rows that are not steady, and those of
older short runs, are marked wherever they are shown.
"""

from pathlib import Path

from bench.peers import prose
from bench.peers.charts import Panel, bars, short
from bench.peers.comparison import OURS, PAIRED, REFERENCE, Comparison, Group, Summary, Verdict, compared
from bench.peers.results import Results, Row, State
from bench.peers.system import Promise

_ROOT = Path(__file__).parents[2]
_PEER = "Kafka"
_ORDER = (OURS, _PEER, "Redis Streams", "NATS JetStream", REFERENCE)
_NOTES = {"load": "†", "rate": "‡"}
MARK_OF = {State.OLDER: "°", State.NOT_STEADY: "~", State.QUICK: "~"}
_EXTREMES = 10
_BEGIN, _END = "<!-- measured: written by `python -m bench.peers --report` -->\n", "<!-- end of measured -->\n"


def write(results: Results, root: Path = _ROOT) -> Path:
    images = root / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob("bench-*.svg"):
        old.unlink()
    drawn = _charts(results)
    for name, svg in drawn.items():
        (images / name).write_text(svg)
    page = root / "docs" / "BENCHMARKS.md"
    page.write_text(_page(results, list(drawn)))
    readme = root / "README.md"
    if readme.exists():
        before, _, rest = readme.read_text().partition(_BEGIN)
        after = rest.partition(_END)[2]
        readme.write_text(f"{before}{_BEGIN}{paragraph(results)}\n{_END}{after}")
    return page


def _page(results: Results, charts: list[str]) -> str:
    if not results.rows:
        return "\n\n".join([prose.HEAD, prose.NOTHING_YET, prose.METHOD]) + "\n"
    beside_kafka = compared([row for row in results.rows if row.system in (OURS, _PEER)])
    parts = [prose.HEAD, prose.MARKS, _state_of(results), "## Beside Kafka", prose.SUMMARY, _summary(beside_kafka)]
    parts += _extremes(beside_kafka)
    parts += [f"![{prose.CHARTS[name].title}](images/{name})" for name in charts]
    parts += [_reference(results), _others(results), _promises(results), prose.METHOD, _environment(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _state_of(results: Results) -> str:
    """Say how much of the page is steady, and what is not measured."""
    compared_states = [row.state for row in results.rows if row.system == OURS]
    steady, older = compared_states.count(State.STEADY), compared_states.count(State.OLDER)
    not_steady = compared_states.count(State.NOT_STEADY)
    text = (
        f"Of Logbrook's {len(compared_states)} rows, {steady} are steady, {not_steady} did not become steady, "
        f"{older} are of older short runs, and the rest are rounds (a start has no steady state)."
    )
    missing = sorted({line.measurement for line in prose.SUMMARY_LINES if not results.of(line.measurement)})
    return _wrapped(text + (f" **Not measured yet:** {', '.join(missing)}." if missing else ""))


def _summary(comparisons: dict[Group, Comparison]) -> str:
    lines = ["| | better is | Logbrook / Kafka | ahead | even | behind | measured |", "|---|---|---|---|---|---|---|"]
    measured = [(line, chosen) for line in prose.SUMMARY_LINES if (chosen := _of_line(comparisons, line))]
    # What follows the rule of today comes first.
    for line, chosen in sorted(measured, key=lambda item: any(map(_is_older, item[1]))):
        summary = Summary(chosen)
        spread = f" ({short(summary.least)} to {short(summary.most)})" if len(chosen) > 1 else ""
        better = "more" if chosen[0].ours.higher_is_better else "less"
        behind = summary.count(Verdict.BEHIND)
        lines.append(
            f"| {line.title} | {better} | {short(summary.ratio)}{spread} | {summary.count(Verdict.AHEAD)} "
            f"| {summary.count(Verdict.EVEN)} | {f'**{behind}**' if behind else 0} | {_measured(summary)} |"
        )
    return "\n".join(lines)


def _is_older(comparison: Comparison) -> bool:
    return comparison.state is State.OLDER


def _of_line(comparisons: dict[Group, Comparison], line: prose.SummaryLine) -> list[Comparison]:
    return [
        comparison
        for (measurement, promise, metric, _), comparison in comparisons.items()
        if (measurement, metric) == (line.measurement, line.metric) and line.promise in ("", promise)
    ]


def _measured(summary: Summary) -> str:
    """Return the states of the lines and the last day, such as "9 steady, 5 ~, 2026-11-20"."""
    texts = []
    for state, count in summary.states().items():
        texts.append(f"{count} {MARK_OF.get(state) or state}")
    return f"{', '.join(texts)}, {max(comparison.ours.day for comparison in summary.comparisons)}"


def _extremes(comparisons: dict[Group, Comparison]) -> list[str]:
    """Return the lines on which Logbrook is furthest behind, and as many on which it is furthest ahead."""
    behind = [item for item in comparisons.items() if item[1].verdict is Verdict.BEHIND]
    ahead = [item for item in comparisons.items() if item[1].verdict is Verdict.AHEAD]
    even = len(comparisons) - len(behind) - len(ahead)
    behind = sorted(behind, key=lambda item: (_is_older(item[1]), item[1].times))
    ahead = sorted(ahead, key=lambda item: (_is_older(item[1]), -item[1].times))
    count = max(3, min(_EXTREMES, len(behind)))
    counted = f"Of {len(comparisons)} lines Logbrook is behind on {len(behind)}, ahead on {len(ahead)}, even on {even}."
    parts = [counted] if comparisons else ["There is no other system to compare with."]
    parts += [f"**Behind Kafka**{_shown(behind, count)}", _table(behind[:count])] if behind else []
    parts += [f"**Ahead of Kafka**{_shown(ahead, count)}", _table(ahead[:count])] if ahead else []
    return parts


def _shown(items: list[tuple[Group, Comparison]], count: int) -> str:
    return f" (the first {count} of {len(items)}, steady lines before older ones)" if len(items) > count else ""


def _table(items: list[tuple[Group, Comparison]]) -> str:
    lines = ["| case | Logbrook | Kafka | Logbrook is |", "|---|---|---|---|"]
    for (measurement, promise, metric, what), item in items:
        synced = ", synced" if promise == Promise.DISK else ""
        ours, best = f"{_cell(item.ours)} {item.ours.unit}", f"{_cell(item.best)} {item.best.unit}"
        nodes = "three nodes, " if measurement.startswith("cluster") else ""
        lines.append(f"| {nodes}{what}: {metric}{synced} | {ours} | {best} | {_times(item)} |")
    return "\n".join(lines)


def _times(comparison: Comparison) -> str:
    if comparison.times >= 1:
        return f"{short(comparison.times)} times better"
    return f"**{short(1 / comparison.times)} times worse**" if comparison.times else "**worse**"


def _reference(results: Results) -> str:
    """Return the CPU time of consuming as a multiple of that of sendfile, for each case."""
    rows = [row for row in results.of("consume") if row.metric.endswith(f"of {REFERENCE}'s")]
    if not rows:
        return ""
    systems = [name for name in _ORDER if any(row.system == name for row in rows)]
    lines = [f"| |{''.join(f' {name} |' for name in systems)}", f"|---|{'---|' * len(systems)}"]
    for what in dict.fromkeys(row.what for row in rows):
        by_system = {row.system: row for row in rows if row.what == what}
        lines.append(f"| {what} |{''.join(f' {_cell(by_system.get(name))} |' for name in systems)}")
    return "\n".join([f"**CPU of consuming as a multiple of `{REFERENCE}`'s**", "", *lines])


def _others(results: Results) -> str:
    """Return the table with Redis and NATS: a few rows, each of its own day."""
    by_key = {(row.measurement, row.what, row.metric, row.system, row.promise): row for row in results.rows}
    systems = [name for name in _ORDER[:4] if any(row.system == name for row in results.rows)]
    if len(systems) < 3:
        return ""
    lines = [f"| |{''.join(f' {name} |' for name in systems)}", f"|---|{'---|' * len(systems)}"]
    for what, metric, measurement, promise in prose.OTHERS:
        rows = []
        for name in systems:
            promises = [promise] if measurement in PAIRED else [level.value for level in Promise]
            choices = [by_key.get((measurement, what, metric, name, level)) for level in promises]
            rows.append(next((row for row in choices if row is not None), None))
        unit = next((row.unit for row in rows if row is not None), "")
        synced = ", synced" if promise == Promise.DISK else ""
        lines.append(f"| {what}: {metric}{synced}, {unit} |{''.join(f' {_cell(row)} |' for row in rows)}")
    return "\n".join(["## Redis Streams and NATS JetStream", "", *lines])


def _promises(results: Results) -> str:
    """Return which settings are compared under which promise."""
    texts: dict[Promise, list[str]] = {Promise.LESS: [], Promise.DISK: []}
    for system, level, settings, _ in sorted(results.variants, key=lambda variant: _place(variant[0])):
        if settings:
            texts[Promise(level)].append(f"{system} with {settings}")
    if not any(texts.values()):
        return ""
    return _wrapped(
        "Systems are compared by what an acknowledgement promises. **Synced**, the message is on the disk: "
        f"{'; '.join(texts[Promise.DISK])}. Otherwise it is not yet: {'; '.join(texts[Promise.LESS])}."
    )


def _environment(results: Results) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    versions = sorted(results.versions.items(), key=lambda item: _place(item[0]))
    text = f"Measured on: {machine}. Versions: {', '.join(f'{name} {value}' for name, value in versions)}."
    skipped = "; ".join(f"{name}: {reason}" for name, reason in results.skipped.items())
    return _wrapped(text + (f" Skipped: {skipped}." if skipped else ""))


def paragraph(results: Results) -> str:
    """Return the measured paragraph of the README, from the same rows as the page."""
    comparisons = compared([row for row in results.rows if row.system in (OURS, _PEER)])
    by_title = {line.title: _of_line(comparisons, line) for line in prose.SUMMARY_LINES}
    needed = ("consume, throughput", "consume, CPU per GB", "produce, throughput", "produce, CPU per GB")
    if not all(by_title[title] for title in needed):
        return "**Not measured yet** beside Kafka: `make bench-peers`."
    ratio = {title: short(Summary(chosen).ratio) for title, chosen in by_title.items() if chosen}
    states = [item.state for title in needed for item in by_title[title]]
    how = "steady state"
    if State.NOT_STEADY in states:
        how += f" ({states.count(State.NOT_STEADY)} of {len(states)} lines did not settle)"
    if State.OLDER in states:
        how = "older short runs, not in steady state"
    behind = sum(item.verdict is Verdict.BEHIND for item in comparisons.values())
    text = (
        f"**Measured** beside Kafka ([docs/BENCHMARKS.md](docs/BENCHMARKS.md)), in {how}, medians of all message "
        f"sizes: it consumes at {ratio['consume, throughput']} times Kafka's throughput with "
        f"{ratio['consume, CPU per GB']} times its CPU per GB, and produces at {ratio['produce, throughput']} times "
        f"its throughput with {ratio['produce, CPU per GB']} times its CPU. It is behind Kafka on "
        f"{behind} of {len(comparisons)} lines."
    )
    for title, verb, unit in (
        ("restart after SIGKILL, 10 GB", "It restarts after SIGKILL with 10 GB of log in", "s"),
        ("memory at rest", "Idle, it uses", "MiB"),
    ):
        for item in by_title[title][:1]:
            text += f" {verb} {short(item.ours.median)} {unit} (Kafka: {short(item.best.median)} {unit})."
    return _wrapped(text)


def _wrapped(text: str, width: int = 120) -> str:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _place(system: str) -> int:
    """Return the sort key of a system or client: systems in a fixed order, then clients."""
    return _ORDER.index(system) if system in _ORDER else len(_ORDER)


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    marks = MARK_OF.get(row.state, "") + (_NOTES.get(row.note, f" ({row.note})") if row.note else "")
    return f"{short(row.median)}{marks}"


def _charts(results: Results) -> dict[str, str]:
    drawn = {}
    for name, chart in prose.CHARTS.items():
        rows = [
            row
            for row in results.of(chart.measurement)
            if row.metric == chart.metric and chart.promise in ("", row.promise) and "zstd" not in row.what
        ]
        # Only what was measured in turns with Logbrook is drawn beside it.
        version_of = {row.what: row.version for row in rows if row.system == OURS}
        panels = []
        for what in dict.fromkeys(row.what for row in rows):
            on_panel = [row for row in rows if row.what == what and row.version == version_of.get(what)]
            if on_panel:
                panels.append(Panel(what, tuple(sorted(on_panel, key=lambda row: _place(row.system)))))
        if panels:
            drawn[name] = bars(chart.title, panels, MARK_OF)
    return drawn
