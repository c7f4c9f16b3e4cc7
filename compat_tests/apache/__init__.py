"""Apache Kafka to compare with: its jars from Maven Central, one node on loopback."""
