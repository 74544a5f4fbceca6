"""The wire: framing, Kafka's messages and how they are encoded. No I/O."""
