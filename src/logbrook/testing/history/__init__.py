"""Histories of what clients sent and observed, and a checker that searches them for anomalies.

    events         the kinds of events, each with a time; `Recorder` collects them from many threads, `save` and `load`
                   store them as JSON Lines
    index          `HistoryIndex`: the events by kind, by partition and by transaction
    checker        `check` runs every rule and returns a `Verdict`
    writes         rules about lost, duplicated, misplaced, reordered and never-sent values
    reads          rules about skipped and repeated records
    monotonicity   rules about offsets that went back
    transactions   rules about the visibility of transactions to read_committed consumers
    anomalies      `Rule`: every rule, with the sentence that reports a violation

A timeout or a disconnect makes an operation's outcome unknown, not failed: it may have taken effect or not, and neither
is an anomaly. Imports only `logbrook.model`.
"""

from logbrook.testing.history.anomalies import Anomaly, Rule
from logbrook.testing.history.checker import Counts, Verdict, check
from logbrook.testing.history.events import Event, Recorder, load, save

__all__ = ["Anomaly", "Counts", "Event", "Recorder", "Rule", "Verdict", "check", "load", "save"]
