"""Display of a running pipeline, as table and as lines."""

from io import StringIO

from rich.console import Console

from logbrook.spark.pipeline.display import LineDisplay, LiveDisplay, QueryProgress, display_for, line_of, table_of


def state(batch_id: int = 3, name: str = "orders-totals") -> QueryProgress:
    return QueryProgress(name, batch_id, rows=1_234_567, batch_rows=1_000, rows_per_s=2_345.6, batch_s=0.43, lag=12)


def without_time(line: str) -> str:
    return line.split(" ", 1)[1]


def test_a_line_shows_all_facts_of_a_query() -> None:
    expected = "orders-totals: batch 3, 1,000 rows in 0.4 s, 2,346 rows/s, 1,234,567 in all"
    assert line_of(state()) == f"{expected}, lag 12"
    unknown = state()
    unknown.lag = None
    assert line_of(unknown) == expected
    assert line_of(QueryProgress("q")) == "q: no batch"


def test_lines_come_at_the_first_batch_then_every_ten_seconds_and_at_the_end() -> None:
    now_s = [0.0]
    lines: list[str] = []
    display = LineDisplay(lines.append, lambda: now_s[0])
    display.update([QueryProgress("orders-totals")])
    assert lines == []
    for second in range(25):
        now_s[0] = float(second)
        display.update([state(second)])
    display.close([state(24)])
    batches = [without_time(line).split(",")[0].rpartition(" ")[2] for line in lines]
    assert batches == ["0", "10", "20", "24"]


def test_an_unchanged_line_is_not_repeated() -> None:
    lines: list[str] = []
    display = LineDisplay(lines.append, lambda: 0.0)
    display.update([state()])
    display.close([state()])
    assert len(lines) == 1


def test_the_table_has_a_row_for_each_query() -> None:
    done = state(4, "orders-archive")
    done.is_done = True
    console = Console(file=StringIO(), width=100)
    console.print(table_of([state(), done, QueryProgress("new")]))
    assert isinstance(console.file, StringIO)
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert rows == [
        ["query", "batch", "rows/s", "rows", "batch", "time", "lag"],
        ["orders-totals", "3", "2,346", "1,234,567", "0.4", "s", "12"],
        ["orders-archive", "4", "2,346", "1,234,567", "0.4", "s", "12", "done"],
        ["new", "-", "0", "0", "0.0", "s", "-"],
    ]


def test_restarts_are_shown_if_there_are_any() -> None:
    restarted = state()
    restarted.restarts = 2
    assert line_of(restarted) == f"{line_of(state())}, restarts 2"
    assert line_of(QueryProgress("new", restarts=1)) == "new: no batch, restarts 1"
    console = Console(file=StringIO(), width=100)
    console.print(table_of([restarted]))
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines()[1].endswith("restarts 2")


def test_the_table_shows_what_a_query_waits_for() -> None:
    waiting = state()
    waiting.restarts, waiting.waiting = 2, "waiting for 127.0.0.1:9092 since 12 s"
    console = Console(file=StringIO(), width=120)
    console.print(table_of([waiting]))
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines()[1].endswith("waiting for 127.0.0.1:9092 since 12 s")
    assert line_of(waiting) == f"{line_of(state())}, restarts 2", "the log has events instead"


def test_a_terminal_gets_the_table_and_everything_else_lines() -> None:
    assert isinstance(display_for(Console(file=StringIO(), force_terminal=True)), LiveDisplay)
    plain = Console(file=StringIO(), width=20)
    display = display_for(plain)
    display.update([state()])
    assert isinstance(plain.file, StringIO)
    assert without_time(plain.file.getvalue()) == f"{line_of(state())}\n"


def test_the_table_is_drawn_and_left_at_the_end() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    display = display_for(console)
    display.update([state()])
    display.print("stopping")
    display.close([state()])
    assert isinstance(console.file, StringIO)
    assert "orders-totals" in console.file.getvalue()
    assert "stopping" in console.file.getvalue()
