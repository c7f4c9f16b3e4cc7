"""`spark.readStream.format("ottla")`: planning runs in a process of its own beside the driver for
as long as the query does; executors get copies that only read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_ottla.errors import BadOption, UnknownTopic
from pyspark_ottla.offsets import Offsets, Partition, from_json, to_json
from pyspark_ottla.options import Options
from pyspark_ottla.planning import start_offsets
from pyspark_ottla.progress import GroupCommit
from pyspark_ottla.ranges import Range, available, limited
from pyspark_ottla.reading import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the connector's: the next one of each partition, as to_json has them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._source = Source(options, schema)
        self._most = options.number("maxOffsetsPerTrigger")
        self._least = options.number("minOffsetsPerTrigger")
        self._delay = options.duration_ms("maxTriggerDelay", 15 * 60_000) / 1000
        if options.get("maxTriggerDelay") is not None and self._least is None:
            raise BadOption("maxTriggerDelay", "means something with minOffsetsPerTrigger only")
        if self._least is not None and self._most is not None and self._least > self._most:
            raise BadOption("minOffsetsPerTrigger", "is above maxOffsetsPerTrigger")
        group = options.get("commitGroupId")
        self._group = None if group is None else GroupCommit(group, self._source.settings)
        #: The last offsets that the brokers told.
        self._latest: Offsets = {}
        #: Trigger.AvailableNow: where this run of the query ends.
        self._target: Offsets | None = None
        self._triggered = float("-inf")

    # --------------------------------------------------------------------------------- the driver

    def initialOffset(self) -> Json:
        """Where a query without a checkpoint begins. Raises BadOption, BrokerError, DataLoss."""
        source = self._source
        partitions = source.cluster.partitions(source.strategy)
        return to_json(start_offsets(source.cluster, self._options, source.losses, partitions))

    def getDefaultReadLimit(self) -> ReadLimit:
        """What maxOffsetsPerTrigger and minOffsetsPerTrigger say. Spark's limits for Python
        sources cannot be combined: with both options, latestOffset adds the lower one itself."""
        if self._most is not None:
            return ReadMaxRows(self._most)
        return ReadAllAvailable() if self._least is None else ReadMinRows(self._least)

    def prepareForTriggerAvailableNow(self) -> None:
        """This run ends at what is there now."""
        self._target = self._ends({})

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Where the next micro-batch ends; `start` when there is none to be made yet. Raises
        DataLoss when partitions are gone or end before `start`."""
        begin = from_json(start)
        if self._group is not None:
            # What lies before `start` is done: earlier news than commit(), which comes with the
            # batch after the next.
            self._group.commit(begin)
        end = self._checked(begin, self._ends(begin) if self._target is None else self._target)
        if isinstance(limit, ReadAllAvailable):
            return to_json(end)
        known = {**self._first_offsets(begin, end), **begin}
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._least
        if least is not None and self._target is None and self._is_early(known, end, least):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(known, end, limit.max_rows)
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:
        """The end of the log, for the query's progress."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """One task a range. Raises DataLoss, BrokerError."""
        begin, until = from_json(start), from_json(end)
        first = {**self._first_offsets(begin, until), **begin}
        return self._source.tasks(Range(*p, first[p], until[p]) for p in sorted(until))

    def commit(self, end: Json) -> None:
        """Spark is done with what lies before `end`: tell the group, so that lag tools see it."""
        if self._group is not None:
            self._group.commit(from_json(end))

    def stop(self) -> None:
        """The query has ended."""
        self._source.cluster.close()
        if self._group is not None:
            self._group.close()

    # ------------------------------------------------------------------------------ the executors

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """RecordBatches of one task."""
        if isinstance(partition, Range):
            yield from self._source.read(partition)

    # -------------------------------------------------------------------------------- its parts

    def _ends(self, begin: Offsets) -> Offsets:
        """The end of every partition there is. A broker that has just come back may answer with
        an older one for a moment: asked again before it is believed."""
        source = self._source
        found: Offsets = {}
        for attempt in range(3):
            if attempt:
                time.sleep(0.5)
            try:
                partitions = source.cluster.partitions(source.strategy)
            except UnknownTopic as error:
                source.losses.report(str(error))
                partitions = []
            found = source.cluster.latest(partitions)
            if not any(found.get(partition, 0) < value for partition, value in begin.items()):
                break
        self._latest = found
        return found

    def _checked(self, begin: Offsets, end: Offsets) -> Offsets:
        losses = self._source.losses
        for topic in sorted(self._source.cluster.made_anew):
            losses.report(
                f"{topic} was deleted and made anew while this query was reading it: a stream that"
                " is to read the new topic needs a new checkpoint folder"
            )
        self._source.cluster.made_anew.clear()
        gone = sorted(begin.keys() - end.keys())
        if gone:
            losses.report(
                f"{', '.join(map(str, gone))} is not there any more (or is not subscribed now),"
                " and the checkpoint has read it: a stream that is to read other topics needs a"
                " new checkpoint folder"
            )
        for partition, value in begin.items():
            if end.get(partition, value) < value:
                losses.report(
                    f"{partition} ends at offset {end[partition]}, and the checkpoint has read up"
                    f" to {value}: the topic was deleted and made anew, or its broker lost"
                    " records. A stream that is to read the new topic needs a new checkpoint"
                    " folder"
                )
        return end

    def _first_offsets(self, begin: Offsets, end: Offsets) -> Offsets:
        """Where partitions begin that have come since: at their first record."""
        new = sorted(end.keys() - begin.keys())
        found: dict[Partition, int] = self._source.cluster.earliest(new)
        for partition, value in found.items():
            if value > 0:
                self._source.losses.report(
                    f"{partition} is new and begins at offset {value}: the topic's retention, or"
                    " a deletion of records, was faster than this query"
                )
        return found

    def _is_early(self, begin: Offsets, end: Offsets, least: int) -> bool:
        """Whether to wait for more records (minOffsetsPerTrigger), no longer than
        maxTriggerDelay."""
        now = time.monotonic()
        if available(begin, end) < least and now - self._triggered <= self._delay:
            return True
        self._triggered = now
        return False
