"""An unmodified PySpark with Spark's own Kafka connector, and the Python data source beside it."""
