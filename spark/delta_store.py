"""A Delta table as archive: data and offsets in one transaction of the table, so there is nothing
to recover. The way for object stores; any Delta reader sees whole batches only.

The state of the archive is the user metadata of the table's last commit by this job, and each batch
carries its number as Delta's transaction version, so that a batch that was committed by a driver
that died before it knew is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.errors import JobError
from ottla.spark.layout import State
from ottla.spark.store import Plan

APPLICATION = "ottla-archive"


class DeltaStore:
    """The table at a path, on whatever Delta can write to."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path

    def state(self) -> State:
        """As of the last commit of a batch; optimizing or vacuuming in between does not matter."""
        if not self._exists():
            return State()
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self.path}`")
        ours = history.where(F.col("userMetadata").contains(APPLICATION)).orderBy(F.desc("version"))
        last = ours.select("userMetadata").first()
        if last is None:
            raise JobError(
                f"--archive {self.path}: a Delta table that this job did not write, or whose "
                "history with its offsets has been cleaned up (delta.logRetentionDuration)"
            )
        return State.from_json(json.loads(last["userMetadata"])[APPLICATION])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """No lock: of two jobs that commit the same batch number, Delta refuses one."""
        yield

    def pending(self) -> Plan | None:
        """Nothing is ever half done."""
        return None

    def write(
        self, plan: Plan, rows: DataFrame, compression: str, seen: Callable[[DataFrame], None]
    ) -> int:
        """One append; gives the number of records."""
        rows = rows.withColumn("date", F.to_date("timestamp"))
        seen(rows)
        (
            rows.sortWithinPartitions("topic", "date", "partition", "offset")
            .write.format("delta")
            .mode("append")
            .partitionBy("topic", "date")
            .option("mergeSchema", "true")
            .option("compression", compression)
            .option("txnAppId", APPLICATION)
            .option("txnVersion", plan.state.commit)
            .option("userMetadata", json.dumps({APPLICATION: plan.state.to_json()}))
            .save(self.path)
        )
        metrics = (
            self._spark.sql(f"DESCRIBE HISTORY delta.`{self.path}` LIMIT 1")
            .select("operationMetrics")
            .first()
        )
        assert metrics is not None
        return int(metrics["operationMetrics"].get("numOutputRows", 0))

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """A topic's records with the connector's columns and `date`."""
        return spark.read.format("delta").load(self.path).where(F.col("topic") == topic)

    def _exists(self) -> bool:
        try:
            self._spark.sql(f"DESCRIBE DETAIL delta.`{self.path}`").collect()
        except AnalysisException:
            return False
        return True
