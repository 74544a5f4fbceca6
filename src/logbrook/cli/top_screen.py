"""What `logbrook top` shows: a screen that fits into 80 columns and 24 lines, and more where there is more room."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from logbrook.cli.output import size
from logbrook.cli.top_sampling import GroupRow, TopicRow, View
from logbrook.config.printable import printable

# Lines besides rows: two at the top, a head and a gap for each table, one at the bottom.
_LINES_TAKEN = 7
_GROUP_SHARE = 3
_NAME_CHARACTERS_MIN = 12
# More than all columns but the first take, and more than stands beside the servers at the top.
_OTHER_COLUMNS = 80


class _Column(NamedTuple):
    title: str
    width: int
    value: Callable[[Any], Any]
    shown: Callable[[Any], str]


@dataclass(frozen=True)
class Choices:
    """What the user has chosen to see. `sort` is the number of a column of topics."""

    sort: int = 0
    is_reversed: bool = False
    is_paused: bool = False
    with_internal: bool = False
    first_row: int = 0

    def after(self, key: str) -> "Choices":
        """What they are after a key was pressed."""
        changes: dict[str, dict[str, Any]] = {
            "s": {"sort": (self.sort + 1) % len(TOPIC_COLUMNS), "is_reversed": False, "first_row": 0},
            "r": {"is_reversed": not self.is_reversed, "first_row": 0},
            "p": {"is_paused": not self.is_paused},
            "i": {"with_internal": not self.with_internal, "first_row": 0},
            "down": {"first_row": self.first_row + 1},
            "up": {"first_row": max(0, self.first_row - 1)},
        }
        for number in range(len(TOPIC_COLUMNS)):
            # The column that it is sorted by already is turned round.
            is_reversed = number == self.sort and not self.is_reversed
            changes[str(number + 1)] = {"sort": number, "is_reversed": is_reversed, "first_row": 0}
        return replace(self, **changes.get(key, {}))


def shown_number(number: float | None) -> str:
    """At most six characters."""
    if number is None:
        return "-"
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5 or unit == "T":
            break
        number /= 1000
    return f"{number:.0f}{unit}" if not unit or number >= 100 else f"{number:.1f}{unit}"


def shown_size(count: float | None) -> str:
    return "-" if count is None else str(size(round(count)))


TOPIC_COLUMNS = (
    _Column("topic", 0, lambda row: row.topic, printable),
    _Column("parts", 6, lambda row: row.partitions, str),
    _Column("in/s", 6, lambda row: row.in_records_per_s, shown_number),
    _Column("in B/s", 10, lambda row: row.in_bytes_per_s, shown_size),
    _Column("out/s", 6, lambda row: row.out_records_per_s, shown_number),
    _Column("out B/s", 10, lambda row: row.out_bytes_per_s, shown_size),
    _Column("records", 8, lambda row: row.records, shown_number),
    _Column("size", 10, lambda row: row.size_bytes, shown_size),
)
_GROUP_COLUMNS = (
    _Column("group", 0, lambda row: row.group, printable),
    _Column("state", 20, lambda row: row.state, printable),
    _Column("topics", 6, lambda row: row.topics, str),
    _Column("read/s", 7, lambda row: row.read_per_s, shown_number),
    _Column("lag", 7, lambda row: row.lag, shown_number),
)


def screen(view: View, choices: Choices, servers: str, width: int, height: int) -> RenderableType:
    """All of it, in no more than `height` lines."""
    topics = sorted_topics(view, choices)
    groups = sorted(view.groups, key=lambda one: (-(one.lag or 0), one.group))
    room = max(2, height - _LINES_TAKEN)
    for_groups = min(len(groups), max(room // _GROUP_SHARE, room - len(topics)))
    for_topics = room - for_groups
    first = min(choices.first_row, max(0, len(topics) - for_topics))
    parts: list[RenderableType] = [
        _head(view, servers),
        _totals(view, choices),
        _table(TOPIC_COLUMNS, topics[first : first + for_topics], width, choices.sort, choices.is_reversed),
        _rest(len(topics), first, for_topics),
    ]
    if groups:
        parts += [
            _table(_GROUP_COLUMNS, groups[:for_groups], width),
            _rest(len(groups), 0, for_groups),
        ]
    parts.append(_keys())
    return Group(*parts)


def sorted_topics(view: View, choices: Choices) -> list[TopicRow]:
    """Numbers from the largest down, names from A on, unless it is reversed."""
    topics = [one for one in view.topics if choices.with_internal or not one.internal]
    value = TOPIC_COLUMNS[choices.sort].value
    if choices.sort == 0:
        return sorted(topics, key=value, reverse=choices.is_reversed)
    by_name = sorted(topics, key=lambda one: one.topic)
    return sorted(by_name, key=lambda one: -1 if (n := value(one)) is None else n, reverse=not choices.is_reversed)


def print_once(view: View, servers: str) -> None:
    """One table, without a screen. Where nobody looks, names are not cut to fit one."""
    console = Console(highlight=False)
    if not console.is_terminal:
        names = [one.topic for one in view.topics] + [one.group for one in view.groups]
        console = Console(highlight=False, width=_OTHER_COLUMNS + max(map(len, names), default=0) + len(servers))
    topics = sorted_topics(view, Choices())
    parts: list[RenderableType] = [_head(view, servers), _totals(view, Choices())]
    parts.append(_table(TOPIC_COLUMNS, topics, console.width))
    if view.groups:
        parts += [Text(""), _table(_GROUP_COLUMNS, view.groups, console.width)]
    console.print(Group(*parts))


def _head(view: View, servers: str) -> Text:
    at = datetime.fromtimestamp(view.at_s).strftime("%H:%M:%S") if view.at_s else "--:--:--"
    brokers = f"{view.brokers} broker{'' if view.brokers == 1 else 's'}"
    told = f"logbrook top  {at}  {printable(servers)}  {brokers}  cluster {printable(view.cluster_id or '-')}"
    return Text(told, "bold", no_wrap=True, overflow="ellipsis")


def _totals(view: View, choices: Choices) -> Text:
    if view.error is not None:
        return Text(f"{view.error}; trying again", "bold red", no_wrap=True, overflow="ellipsis")
    numbers = [
        f"in {shown_number(view.total(lambda one: one.in_records_per_s))}/s",
        f"{shown_size(view.total(lambda one: one.in_bytes_per_s))}/s",
        f"out {shown_number(view.total(lambda one: one.out_records_per_s))}/s",
        f"{shown_size(view.total(lambda one: one.out_bytes_per_s))}/s",
        f"{len(view.topics)} topics, {shown_size(view.total(lambda one: one.size_bytes))}",
    ]
    if view.usable_bytes is not None:
        numbers.append(f"{shown_size(view.usable_bytes)} free")
    if not view.has_metrics:
        numbers.append("no metrics")
    text = Text("  ".join(numbers), no_wrap=True, overflow="ellipsis")
    if choices.is_paused:
        text = Text("PAUSED  ", "bold yellow", no_wrap=True, overflow="ellipsis").append(text)
    return text


def _table(
    columns: Sequence[_Column],
    rows: Sequence[TopicRow] | Sequence[GroupRow],
    width: int,
    sort: int | None = None,
    is_reversed: bool = False,
) -> Table:
    taken = sum(column.width + 1 for column in columns if column.width)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", expand=True)
    for number, column in enumerate(columns):
        mark = ("▲" if is_reversed != (number == 0) else "▼") if number == sort else ""
        table.add_column(
            f"{column.title.upper()}{mark}",
            justify="right" if column.width and column.title != "state" else "left",
            width=column.width or max(_NAME_CHARACTERS_MIN, width - taken - 1),
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(column.shown(column.value(row))) for column in columns))
    return table


def _rest(count: int, first: int, room: int) -> Text:
    """What there was no room for."""
    before, behind = first, max(0, count - first - room)
    told = [f"{before} above"] if before else []
    told += [f"{behind} more"] if behind else []
    return Text(f"  … {', '.join(told)}" if told else "", "dim")


def _keys() -> Text:
    return Text("q quit  s/1-8 sort  r reverse  p pause  i internal topics  ↑↓ scroll", "dim", no_wrap=True)
