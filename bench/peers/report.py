"""`docs/BENCHMARKS.md` and its charts, from the results and from nothing else, but for Spark's rows of `make bench`."""

import json
import re
from pathlib import Path

from bench.peers import prose
from bench.peers.charts import Panel, bars
from bench.peers.comparison import OURS, PAIRED, Comparison, Verdict, compared, group_of
from bench.peers.numbers import short
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
        parts += [_setting(results), _promises(results), _in_short(results)]
        for measurement, (title, text, charts) in prose.SECTIONS.items():
            if rows := results.of(measurement):
                parts.append(f"## {title}\n\n{text}")
                parts += [f"![{title}](images/{name})" for name in charts if name in drawn]
                parts += _tables(rows)
    else:
        parts.append(prose.NOTHING_YET)
    parts += [_spark(spark), prose.METHOD]
    return "\n\n".join(parts) + "\n"


def _setting(results: Results) -> str:
    lines = ["| what | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in results.machine.items()]
    versions = sorted(results.versions.items(), key=lambda one: _place(one[0]))
    lines += [f"| {name} | {value} |" for name, value in versions]
    lines += [f"| **without {name}** | {why} |" for name, why in results.skipped.items()]
    rounds = sorted({len(row.values) for row in results.rows})
    counted = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return "\n".join(
        ["## Measured on", "", *lines, "", f"Each number is the median of as many rounds as this: {counted}."]
    )


def _promises(results: Results) -> str:
    lines = ["| promise | system | set | an acknowledged message is |", "|---|---|---|---|"]
    for promise in Promise:
        for system, of, settings, meaning in sorted(results.variants, key=lambda one: _place(one[0])):
            if of == promise.value:
                lines.append(f"| {TITLES[promise]} | {system} | {settings or '-'} | {meaning} |")
    return "\n".join(["## What is promised", "", prose.PROMISES, "", *lines])


def _in_short(results: Results) -> str:
    beside_kafka = [row for row in results.rows if row.system in (OURS, _SAME_PROTOCOL)]
    parts = ["## In short", *_summary(results.rows, "the best of the others")]
    parts += ["### Beside Kafka alone", prose.KAFKA, *_summary(beside_kafka, _SAME_PROTOCOL)]
    missing = [title for name, (title, _, _) in prose.SECTIONS.items() if not results.of(name)]
    parts += [f"**Not measured in these results:** {'; '.join(missing)}."] if missing else []
    return "\n\n".join(parts)


def _summary(rows: list[Row], others: str) -> list[str]:
    comparisons = compared(rows)
    if not comparisons:
        return ["Nothing stands beside Logbrook in these results."]
    of = {verdict: [one for one in comparisons.items() if one[1].verdict is verdict] for verdict in Verdict}
    counted = (
        f"Of {len(comparisons)} lines on which Logbrook has company, it is ahead of {others} on "
        f"{len(of[Verdict.AHEAD])}, behind on {len(of[Verdict.BEHIND])}, and on {len(of[Verdict.EVEN])} their "
        "spreads overlap."
    )
    behind = sorted(of[Verdict.BEHIND], key=lambda one: one[1].times)[:_EXTREMES]
    ahead = sorted(of[Verdict.AHEAD], key=lambda one: -one[1].times)[:_EXTREMES]
    parts = [counted]
    parts += ["Where it is furthest behind:", _extremes(behind)] if behind else []
    parts += ["Where it is furthest ahead:", _extremes(ahead)] if ahead else []
    return parts


def _extremes(chosen: list[tuple[tuple[str, str, str, str], Comparison]]) -> str:
    lines = ["| what | Logbrook | best other | Logbrook is |", "|---|---|---|---|"]
    for (_, promise, metric, what), one in chosen:
        title = f"{what}: {metric}" + (f" ({TITLES[Promise(promise)]})" if promise else "")
        other = f"{short(one.best.median)} {one.best.unit} ({one.best.system})"
        lines.append(f"| {title} | {short(one.ours.median)} {one.ours.unit} | {other} | {_times(one)} |")
    return "\n".join(lines)


def _times(one: Comparison) -> str:
    if one.verdict is Verdict.EVEN:
        return "even"
    if one.times >= 1:
        return f"{short(one.times)} times better"
    return f"**{short(1 / one.times)} times worse**" if one.times else "**worse**"


def _tables(rows: list[Row]) -> list[str]:
    """One for each promise and metric, in the order in which they came."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        promise = row.promise if row.measurement in PAIRED else ""
        found.setdefault((promise, row.metric), []).append(row)
    return [_table(promise, metric, some) for (promise, metric), some in found.items()]


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
    """Systems as they are always shown, then clients."""
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
