"""The data pipeline on Spark. It speaks Kafka's protocol and imports nothing of the broker."""
