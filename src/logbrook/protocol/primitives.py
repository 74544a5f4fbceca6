"""The types that messages are made of, beyond numbers and strings."""

from collections.abc import Sequence
from typing import TypeAlias

# What is read is a view of the frame; what is written may be in several pieces, none of which is copied.
Records: TypeAlias = bytes | bytearray | memoryview | Sequence[memoryview]
