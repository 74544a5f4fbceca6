"""Tables that follow what they show."""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

_LINK = """<q-td :props="props"><a v-if="props.row.link" :href="props.row.link">{{ props.value }}</a>
<span v-else>{{ props.value }}</span></q-td>"""


def column(name: str, label: str, *, number: bool = False, wide: bool = False, sort_by: str | None = None) -> Any:
    """`sort_by` is the field that holds the number which the column shows in words."""
    made: dict[str, Any] = {"name": name, "label": label, "field": name, "sortable": True}
    made["align"] = "right" if number else "left"
    if wide:
        made["classes"] = "wide"
    if sort_by is not None:
        made[":sort"] = f"(a, b, rowA, rowB) => (rowA.{sort_by} ?? -1) - (rowB.{sort_by} ?? -1)"
    return made


class LiveTable:
    """`link_column` shows its value as a link to what the row has as `link`."""

    def __init__(
        self,
        columns: Sequence[Any],
        row_key: str,
        *,
        empty: str,
        link_column: str | None = None,
        rows_per_page: int = 25,
    ) -> None:
        self.table = ui.table(
            columns=list(columns), rows=[], row_key=row_key, pagination={"rowsPerPage": rows_per_page}
        ).classes("w-full")
        self.table.props(f'dense no-data-label="{empty}" :hide-pagination="true"')
        if link_column is not None:
            self.table.add_slot(f"body-cell-{link_column}", _LINK)

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Nothing is sent to the browser while nothing has changed."""
        if rows != self.table.rows:
            self.table.rows = rows
            many = len(rows) > self.table.pagination.get("rowsPerPage", 0) if self.table.pagination else False
            self.table.props(f':hide-pagination="{"false" if many else "true"}"')
