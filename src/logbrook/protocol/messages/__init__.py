"""Kafka's messages, one module per API. All of it is generated."""
