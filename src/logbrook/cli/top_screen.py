"""Rendering of `logbrook top` with Rich; the layout fits into 80 columns and 24 lines and uses larger terminals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from logbrook.cli.terminal import Row, byte_size
from logbrook.cli.top import TopView
from logbrook.model.text import printable

# Lines that are not rows: two at the top, a header and a gap for each table, one at the bottom.
_FIXED_LINES = 7
# Groups get at least a third of the rows.
_GROUP_SHARE = 3
_NAME_CHARACTERS_MIN = 12
# Width for everything but names and servers, when output is not to a terminal.
_OTHER_COLUMNS_WIDTH = 80


class _Column(NamedTuple):
    """`width` 0 takes the remaining width."""

    title: str
    width: int
    key: str
    shown: Callable[[Any], str]


@dataclass(frozen=True)
class ScreenState:
    """The user's choices. `sort` is the index of a column of the topics."""

    sort: int = 0
    is_reversed: bool = False
    is_paused: bool = False
    with_internal: bool = False
    first_row: int = 0

    def after(self, key: str) -> "ScreenState":
        """Return the state after a key press."""
        changes: dict[str, dict[str, Any]] = {
            "s": {"sort": (self.sort + 1) % len(TOPIC_COLUMNS), "is_reversed": False, "first_row": 0},
            "r": {"is_reversed": not self.is_reversed, "first_row": 0},
            "p": {"is_paused": not self.is_paused},
            "i": {"with_internal": not self.with_internal, "first_row": 0},
            "down": {"first_row": self.first_row + 1},
            "up": {"first_row": max(0, self.first_row - 1)},
        }
        for number in range(len(TOPIC_COLUMNS)):
            # Choosing the current column reverses its order.
            is_reversed = number == self.sort and not self.is_reversed
            changes[str(number + 1)] = {"sort": number, "is_reversed": is_reversed, "first_row": 0}
        return replace(self, **changes.get(key, {}))


def shown_number(number: float | None) -> str:
    """Format a number in at most six characters."""
    if number is None:
        return "-"
    for unit in ("", "k", "M", "G", "T"):
        if number < 999.5 or unit == "T":
            break
        number /= 1000
    return f"{number:.0f}{unit}" if not unit or number >= 100 else f"{number:.1f}{unit}"


def shown_size(count: float | None) -> str:
    return "-" if count is None else str(byte_size(round(count)))


TOPIC_COLUMNS = (
    _Column("topic", 0, "topic", printable),
    _Column("parts", 6, "partitions", str),
    _Column("in/s", 6, "in_records_per_s", shown_number),
    _Column("in B/s", 10, "in_bytes_per_s", shown_size),
    _Column("out/s", 6, "out_records_per_s", shown_number),
    _Column("out B/s", 10, "out_bytes_per_s", shown_size),
    _Column("records", 8, "records", shown_number),
    _Column("size", 10, "size_bytes", shown_size),
)
_GROUP_COLUMNS = (
    _Column("group", 0, "group", printable),
    _Column("state", 20, "state", printable),
    _Column("topics", 6, "topics", str),
    _Column("read/s", 7, "read_per_s", shown_number),
    _Column("lag", 7, "lag", shown_number),
)


def screen(view: TopView, state: ScreenState, servers: str, width: int, height: int) -> RenderableType:
    """Render the whole screen in at most `height` lines."""
    topics = sorted_topics(view, state)
    groups = sorted(view.groups, key=lambda group: (-(group["lag"] or 0), group["group"]))
    rows = max(2, height - _FIXED_LINES)
    group_rows = min(len(groups), max(rows // _GROUP_SHARE, rows - len(topics)))
    topic_rows = rows - group_rows
    first = min(state.first_row, max(0, len(topics) - topic_rows))
    parts: list[RenderableType] = [
        _head(view, servers),
        _totals(view, state),
        _table(TOPIC_COLUMNS, topics[first : first + topic_rows], width, state.sort, state.is_reversed),
        _hidden_rows(len(topics), first, topic_rows),
    ]
    if groups:
        parts += [
            _table(_GROUP_COLUMNS, groups[:group_rows], width),
            _hidden_rows(len(groups), 0, group_rows),
        ]
    parts.append(_keys())
    return Group(*parts)


def sorted_topics(view: TopView, state: ScreenState) -> list[Row]:
    """Sort numbers in descending and names in ascending order, unless reversed."""
    topics = [topic for topic in view.topics if state.with_internal or not topic["internal"]]
    key = TOPIC_COLUMNS[state.sort].key
    if state.sort == 0:
        return sorted(topics, key=lambda topic: topic[key], reverse=state.is_reversed)
    by_name = sorted(topics, key=lambda topic: topic["topic"])
    return sorted(by_name, key=lambda topic: -1 if topic[key] is None else topic[key], reverse=not state.is_reversed)


def print_once(view: TopView, servers: str) -> None:
    """Print the tables once. Names are not truncated if the output is not a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        names = [topic["topic"] for topic in view.topics] + [group["group"] for group in view.groups]
        width = _OTHER_COLUMNS_WIDTH + max(map(len, names), default=0) + len(servers)
        console = Console(highlight=False, width=width)
    topics = sorted_topics(view, ScreenState())
    parts: list[RenderableType] = [_head(view, servers), _totals(view, ScreenState())]
    parts.append(_table(TOPIC_COLUMNS, topics, console.width))
    if view.groups:
        parts += [Text(""), _table(_GROUP_COLUMNS, view.groups, console.width)]
    console.print(Group(*parts))


def _head(view: TopView, servers: str) -> Text:
    at = datetime.fromtimestamp(view.at_s).strftime("%H:%M:%S") if view.at_s else "--:--:--"
    brokers = f"{view.brokers} broker{'' if view.brokers == 1 else 's'}"
    line = f"logbrook top  {at}  {printable(servers)}  {brokers}  cluster {printable(view.cluster_id or '-')}"
    return Text(line, "bold", no_wrap=True, overflow="ellipsis")


def _totals(view: TopView, state: ScreenState) -> Text:
    if view.error is not None:
        return Text(f"{view.error}; trying again", "bold red", no_wrap=True, overflow="ellipsis")
    numbers = [
        f"in {shown_number(view.total('in_records_per_s'))}/s",
        f"{shown_size(view.total('in_bytes_per_s'))}/s",
        f"out {shown_number(view.total('out_records_per_s'))}/s",
        f"{shown_size(view.total('out_bytes_per_s'))}/s",
        f"{len(view.topics)} topics, {shown_size(view.total('size_bytes'))}",
    ]
    if view.usable_bytes is not None:
        numbers.append(f"{shown_size(view.usable_bytes)} free")
    if not view.has_metrics:
        numbers.append("no metrics")
    text = Text("  ".join(numbers), no_wrap=True, overflow="ellipsis")
    if state.is_paused:
        text = Text("PAUSED  ", "bold yellow", no_wrap=True, overflow="ellipsis").append(text)
    return text


def _table(
    columns: Sequence[_Column],
    rows: Sequence[Row],
    width: int,
    sort: int | None = None,
    is_reversed: bool = False,
) -> Table:
    fixed_width = sum(column.width + 1 for column in columns if column.width)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", expand=True)
    for number, column in enumerate(columns):
        mark = ("▲" if is_reversed != (number == 0) else "▼") if number == sort else ""
        table.add_column(
            f"{column.title.upper()}{mark}",
            justify="right" if column.width and column.title != "state" else "left",
            width=column.width or max(_NAME_CHARACTERS_MIN, width - fixed_width - 1),
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(column.shown(row[column.key])) for column in columns))
    return table


def _hidden_rows(count: int, first: int, shown: int) -> Text:
    """Say how many rows are above and below the visible ones."""
    below = max(0, count - first - shown)
    parts = [f"{first} above"] if first else []
    parts += [f"{below} more"] if below else []
    return Text(f"  … {', '.join(parts)}" if parts else "", "dim")


def _keys() -> Text:
    return Text("q quit  s/1-8 sort  r reverse  p pause  i internal topics  ↑↓ scroll", "dim", no_wrap=True)
