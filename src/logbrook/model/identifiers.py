"""Integers that must not be mixed up, as distinct types for the type checker. At run time they are plain ints.

Values become one of these where they enter the system (the wire protocol, a file, a client's argument), and arithmetic
on an offset is wrapped again: `Offset(base_offset + count)`.
"""

from typing import NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
