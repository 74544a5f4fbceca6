"""Writes `docs/BENCHMARKS.md` and its charts from `bench/peers.json`, and the Spark rows of `bench/results.json`."""

import json
import re
from pathlib import Path

from bench.peers import prose
from bench.peers.charts import Panel, bars, short
from bench.peers.comparison import OURS, PAIRED, Comparison, Verdict, compared, group_of
from bench.peers.results import Results, Row
from bench.peers.system import TITLES, Promise

_ROOT = Path(__file__).parents[2]
_SPARK = re.compile(r"(read|write) \d+ B values")
_ORDER = (OURS, "Kafka", "Redis Streams", "NATS JetStream")
_NOTES = {"load": "†", "rate": "‡"}
_SAME_PROTOCOL = "Kafka"
_EXTREMES = 15


def write(results: Results, root: Path = _ROOT) -> Path:
    images = root / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    for old in images.glob("bench-*.svg"):
        old.unlink()
    drawn = _charts(results)
    for name, svg in drawn.items():
        (images / name).write_text(svg)
    page = root / "docs" / "BENCHMARKS.md"
    spark = json.loads((_ROOT / "bench" / "results.json").read_text())
    page.write_text(_page(results, drawn, [row for row in spark if _SPARK.match(row["name"])]))
    return page


def _page(results: Results, drawn: dict[str, str], spark: list[dict[str, str | float]]) -> str:
    parts = [prose.HEAD]
    if results.rows:
        parts += [_environment(results), _promises(results), _overview(results)]
        for measurement, (title, text, charts) in prose.SECTIONS.items():
            if rows := results.of(measurement):
                parts.append(f"## {title}\n\n{text}")
                parts += [f"![{title}](images/{name})" for name in charts if name in drawn]
                parts += _tables(rows)
    else:
        parts.append(prose.NOTHING_YET)
    parts += [_spark(spark), prose.METHOD]
    return "\n\n".join(parts) + "\n"


def _environment(results: Results) -> str:
    lines = ["| component | version or value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in results.machine.items()]
    versions = sorted(results.versions.items(), key=lambda item: _place(item[0]))
    lines += [f"| {name} | {value} |" for name, value in versions]
    lines += [f"| **without {name}** | {reason} |" for name, reason in results.skipped.items()]
    rounds = sorted({len(row.values) for row in results.rows})
    counted = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return "\n".join(["## Measured on", "", *lines, "", f"Each number is the median of {counted} rounds."])


def _promises(results: Results) -> str:
    lines = ["| promise | system | settings | an acknowledged message is |", "|---|---|---|---|"]
    for promise in Promise:
        for system, level, settings, meaning in sorted(results.variants, key=lambda variant: _place(variant[0])):
            if level == promise.value:
                lines.append(f"| {TITLES[promise]} | {system} | {settings or '-'} | {meaning} |")
    return "\n".join(["## Durability levels", "", prose.PROMISES, "", *lines])


def _overview(results: Results) -> str:
    beside_kafka = [row for row in results.rows if row.system in (OURS, _SAME_PROTOCOL)]
    parts = ["## Summary", *_summary(results.rows, "the best other system")]
    parts += ["### Compared with Kafka only", prose.KAFKA, *_summary(beside_kafka, _SAME_PROTOCOL)]
    missing = [title for name, (title, _, _) in prose.SECTIONS.items() if not results.of(name)]
    parts += [f"**Not measured in these results:** {'; '.join(missing)}."] if missing else []
    return "\n\n".join(parts)


def _summary(rows: list[Row], others: str) -> list[str]:
    comparisons = compared(rows)
    if not comparisons:
        return ["These results have no other system to compare with."]
    by_verdict = {verdict: [item for item in comparisons.items() if item[1].verdict is verdict] for verdict in Verdict}
    counted = (
        f"On {len(comparisons)} comparable lines, Logbrook is ahead of {others} on "
        f"{len(by_verdict[Verdict.AHEAD])}, behind on {len(by_verdict[Verdict.BEHIND])}, and within the spread "
        f"on {len(by_verdict[Verdict.EVEN])}."
    )
    behind = sorted(by_verdict[Verdict.BEHIND], key=lambda item: item[1].times)[:_EXTREMES]
    ahead = sorted(by_verdict[Verdict.AHEAD], key=lambda item: -item[1].times)[:_EXTREMES]
    parts = [counted]
    parts += ["Largest deficits:", _extremes(behind)] if behind else []
    parts += ["Largest advantages:", _extremes(ahead)] if ahead else []
    return parts


def _extremes(chosen: list[tuple[tuple[str, str, str, str], Comparison]]) -> str:
    lines = ["| case | Logbrook | best other | Logbrook is |", "|---|---|---|---|"]
    for (_, promise, metric, what), comparison in chosen:
        title = f"{what}: {metric}" + (f" ({TITLES[Promise(promise)]})" if promise else "")
        other = f"{short(comparison.best.median)} {comparison.best.unit} ({comparison.best.system})"
        lines.append(
            f"| {title} | {short(comparison.ours.median)} {comparison.ours.unit} | {other} | {_times(comparison)} |"
        )
    return "\n".join(lines)


def _times(comparison: Comparison) -> str:
    if comparison.verdict is Verdict.EVEN:
        return "even"
    if comparison.times >= 1:
        return f"{short(comparison.times)} times better"
    return f"**{short(1 / comparison.times)} times worse**" if comparison.times else "**worse**"


def _tables(rows: list[Row]) -> list[str]:
    """Return a table for each promise and metric, in the order of the rows."""
    by_table: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        promise = row.promise if row.measurement in PAIRED else ""
        by_table.setdefault((promise, row.metric), []).append(row)
    return [_table(promise, metric, rows) for (promise, metric), rows in by_table.items()]


def _table(promise: str, metric: str, rows: list[Row]) -> str:
    systems = [name for name in _ORDER if any(row.system == name for row in rows)]
    comparisons = compared(rows)
    title = f"**{metric[0].upper()}{metric[1:]}, {rows[0].unit}**" + (
        f" ({TITLES[Promise(promise)]})" if promise else ""
    )
    last = [" Logbrook is |"] if comparisons else [""]
    lines = [
        f"| |{''.join(f' {name} |' for name in systems)}{last[0]}",
        f"|---|{'---|' * (len(systems) + bool(comparisons))}",
    ]
    by_group: dict[tuple[str, str, str, str], dict[str, Row]] = {}
    for row in rows:
        by_group.setdefault(group_of(row), {})[row.system] = row
    for group, cells in by_group.items():
        shown = "".join(f" {_cell(cells.get(name))} |" for name in systems)
        verdict = f" {_times(comparisons[group])} |" if group in comparisons else " |" if comparisons else ""
        lines.append(f"| {group[-1]} |{shown}{verdict}")
    return "\n".join([title, "", *lines])


def _place(system: str) -> int:
    """Return the sort key of a system or client: systems in a fixed order, then clients."""
    return _ORDER.index(system) if system in _ORDER else len(_ORDER)


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    note = f" {_NOTES.get(row.note, f'({row.note})')}" if row.note else ""
    return f"{short(row.median)} ({short(row.low)} to {short(row.high)}){note}"


def _spark(rows: list[dict[str, str | float]]) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {row['name']} | {short(float(row['value']))} {row['unit']} |" for row in rows]
    return "\n".join(["## Spark", "", prose.SPARK, "", *lines])


def _charts(results: Results) -> dict[str, str]:
    drawn = {}
    for name, (title, measurement, metric, promise) in prose.CHARTS.items():
        rows = [
            row
            for row in results.of(measurement)
            if row.metric == metric and promise in ("", row.promise) and "zstd" not in row.what
        ]
        panels = []
        for what in dict.fromkeys(row.what for row in rows):
            on_panel = [row for row in rows if row.what == what]
            panels.append(Panel(what, tuple(sorted(on_panel, key=lambda row: _place(row.system)))))
        if panels:
            drawn[name] = bars(title, panels)
    return drawn
