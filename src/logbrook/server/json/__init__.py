"""The listener that speaks RustLog's protocol: JSON in frames, for those who have no Kafka client."""
