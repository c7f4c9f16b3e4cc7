"""Kafka's wire protocol: frames, headers, messages, record batches. No sockets."""
