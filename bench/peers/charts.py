"""Bar charts as plain SVG: small, without a library, legible on light and dark pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from xml.sax.saxutils import escape

from bench.peers.results import Row, State

_WIDTH = 720
_LEFT = 150
_RIGHT = 110
_BAR = 16
_GAP = 6
_PANEL_GAP = 34
_TOP = 62
_COLOURS = {"Logbrook": "#e08a00", "Kafka": "#4b8df8", "Redis Streams": "#ee5a52", "NATS JetStream": "#2fa866"}
_OTHER = "#8b8b8b"
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.card { fill: #ffffff; }
.title { font-size: 16px; font-weight: 600; }
.quiet { fill: #59636e; }
.spread { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .card { fill: #0d1117; }
  .quiet { fill: #9198a1; }
  .spread { stroke: #f0f6fc; }
}
"""


@dataclass(frozen=True)
class Panel:
    """Bars that share a scale."""

    title: str
    rows: tuple[Row, ...]


def bars(title: str, panels: list[Panel], mark_of: Mapping[State, str] = MappingProxyType({})) -> str:
    """Return a chart with one group of bars per panel. The thin line on a bar spans the lowest and highest run.

    `mark_of` has the marks of values by their state, such as that of an older short run.
    """
    first_row = panels[0].rows[0]
    unit = escape(first_row.unit)
    better = "higher is better" if first_row.higher_is_better else "lower is better"
    scales = "; each group has its own scale" if len(panels) > 1 else ""
    parts = [
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        f'<text class="quiet" x="16" y="46">{unit}, {better}; a bar\'s line is its spread{scales}</text>',
    ]
    y = _TOP
    for panel in panels:
        parts.append(f'<text x="16" y="{y + 14}">{escape(panel.title)}</text>')
        y += 22
        parts += _panel(panel, y, mark_of)
        y += len(panel.rows) * (_BAR + _GAP) + _PANEL_GAP - 22
    return _document(title, y, parts)


def _panel(panel: Panel, top: int, mark_of: Mapping[State, str]) -> list[str]:
    largest = max(row.high for row in panel.rows) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    parts = []
    for number, row in enumerate(panel.rows):
        y = top + number * (_BAR + _GAP)
        middle = y + _BAR / 2
        colour = _COLOURS.get(row.system, _OTHER)
        length = max(1.0, scale * row.median)
        parts += [
            f'<text class="quiet" x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(row.system)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>',
            f'<line class="spread" x1="{_LEFT + scale * row.low:.1f}" x2="{_LEFT + scale * row.high:.1f}"'
            f' y1="{middle}" y2="{middle}"/>',
            f'<text x="{_LEFT + scale * row.high + 8:.1f}" y="{y + 13}">'
            f"{short(row.median)}{mark_of.get(row.state, '')}</text>",
        ]
    return parts


def _document(title: str, height: int, parts: list[str]) -> str:
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n'
        f'<rect class="card" width="{_WIDTH}" height="{height}" rx="6"/>\n{lines}\n</svg>\n'
    )


def short(value: float) -> str:
    """Format a value with about three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    if value >= 1:
        return f"{value:.2f}"
    return f"{value:.2g}"
