"""The rows. Importing this package registers them in `bench.run.ROWS`."""

from bench.rows import (
    bulk,
    disk_use,
    groups,
    offsets,
    partitions,
    small,
    spark,
    spark_source,
    standing,
    transactions,
)

__all__ = [
    "bulk",
    "disk_use",
    "groups",
    "offsets",
    "partitions",
    "small",
    "spark",
    "spark_source",
    "standing",
    "transactions",
]
