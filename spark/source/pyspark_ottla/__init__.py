"""Spark's Python data source `format("ottla")`: topics of Ottla or Apache Kafka without a jar.

Spark imports every top-level module named pyspark_* when it looks for data sources, so this one
imports nothing but the data source's class, which imports its clients when they are used.
"""

from pyspark_ottla.source import DefaultSource

__all__ = ["DefaultSource"]
