"""`spark.read.format("ottla")`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_ottla.offsets import Offsets
from pyspark_ottla.options import Options
from pyspark_ottla.planning import end_offsets, start_offsets
from pyspark_ottla.ranges import Range
from pyspark_ottla.reading import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Offsets are settled once, when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._source = Source(options, schema)

    def partitions(self) -> list[InputPartition]:
        """One task a range. Raises BadOption, DataLoss, BrokerError."""
        source = self._source
        partitions = source.cluster.partitions(source.strategy)
        start = start_offsets(source.cluster, self._options, source.losses, partitions)
        end = end_offsets(source.cluster, self._options, source.losses, partitions)
        self._check(start, end)
        # Without any range Spark calls read once, with a plain InputPartition.
        return list(source.tasks(Range(*p, start[p], end[p]) for p in partitions))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """RecordBatches of one task."""
        if isinstance(partition, Range):
            yield from self._source.read(partition)

    def _check(self, start: Offsets, end: Offsets) -> None:
        for partition, begin in start.items():
            if begin > end[partition]:
                self._source.losses.report(
                    f"{partition} is to be read from offset {begin} up to {end[partition]}:"
                    " the start lies behind the end"
                )
