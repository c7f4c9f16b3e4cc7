"""Ottla and Apache Kafka measured in turn: same client, same machine, same durability.

Start with `rows/` (one function a row: what it does and what it aims at), then `targets.py` (how
each broker is started and stopped). The bench speaks Kafka's protocol and imports nothing of Ottla,
so the same code measures both. docs/benchmarks.md says how to run it and how to read the table.
"""
