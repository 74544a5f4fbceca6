"""Histories: what clients sent to a broker and saw of it, and a search for what must never be in one.

events      what there is to see, each with a time
recorder    writes it down, from many threads
checker     searches: `writes` for what is lost, twice, elsewhere, out of order or from nowhere; `reads` for what
            consumers passed over; `going_back` for offsets that fell; `transactions` for what readers of committed
            records see and should not, or do not see and should. `evidence` is the history in order for them
findings    what may be found, one type per rule
saved       a history as a file

A timeout and a disconnect are unknown, not failed: such a write may be there or not, and neither is a finding.
"""

from logbrook.testing.history.checker import Verdict, check
from logbrook.testing.history.counts import Counts
from logbrook.testing.history.events import Event
from logbrook.testing.history.findings import Finding
from logbrook.testing.history.recorder import Recorder
from logbrook.testing.history.saved import load, save

__all__ = ["Counts", "Event", "Finding", "Recorder", "Verdict", "check", "load", "save"]
