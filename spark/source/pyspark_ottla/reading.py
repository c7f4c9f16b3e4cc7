"""What batch and streaming reads share: the options, the brokers, and reading one range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark_ottla.cluster import Cluster
from pyspark_ottla.fetching import Fetcher
from pyspark_ottla.offsets import ending, starting
from pyspark_ottla.options import Options
from pyspark_ottla.planning import Losses
from pyspark_ottla.properties import translate
from pyspark_ottla.ranges import Range, split

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Source:
    """The read side of one query; a copy of it is on every executor. Raises BadOption."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.settings = translate(options)
        self.strategy = options.strategy()
        for look_at in (starting, ending):
            look_at(options)  # complain now, not when they are used
        self.losses = Losses(options)
        self.least_tasks = options.number("minPartitions")
        self.most_records = options.number("maxRecordsPerPartition")
        self.cluster = Cluster(options, self.settings)
        wait_ms = options.number("kafkaConsumer.pollTimeoutMs", 120_000) or 0
        prefix = options.get("groupIdPrefix")
        self._fetcher = Fetcher(self.settings, self.losses, schema, prefix, wait_ms / 1000)
        self._schema = schema
        self.log_dir = options.get("ottla.log.dir")

    def tasks(self, ranges: Iterable[Range]) -> list[Range]:
        """One range a task, of those that hold something. Raises BadOption, BrokerError."""
        wanted = [range_ for range_ in ranges if range_.size > 0]
        if self.log_dir is not None and wanted:
            from pyspark_ottla.sealed import placed

            wanted = placed(self.log_dir, self.cluster, wanted)
        return split(wanted, self.least_tasks, self.most_records)

    def read(self, range_: Range) -> Iterator[Any]:
        """RecordBatches of the range, from the files where they have it."""
        if self.log_dir is None or range_.number is None:
            return self._fetcher.read(range_)
        from pyspark_ottla.sealed import SealedReader

        level = self.settings.isolation_level
        return SealedReader(self.log_dir, level, self._schema, self._fetcher).read(range_)
