"""Kafka's messages, one module per API, generated from kio (`make messages`). They import `protocol.schema` only."""
