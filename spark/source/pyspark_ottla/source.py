"""`format("ottla")`: the data source that Spark finds. Everything else is imported when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_ottla.errors import BadOption
from pyspark_ottla.options import READ_BATCH, READ_STREAM, WRITE, Options, flag

if TYPE_CHECKING:
    from pyspark_ottla.batch import BatchReader
    from pyspark_ottla.stream import StreamReader
    from pyspark_ottla.writer import BatchWriter, StreamWriter

#: As the Java connector's KafkaRecordToRowConverter has them.
COLUMNS: Final[tuple[tuple[str, DataType], ...]] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
HEADERS: Final = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def columns(headers: bool) -> StructType:
    """What a row has."""
    rows = StructType()
    for name, kind in COLUMNS:
        rows.add(name, kind)
    return rows.add("headers", HEADERS) if headers else rows


class DefaultSource(DataSource):
    """Topics as rows. The options are those of Spark's Kafka connector; see docs/spark/source.md.

    Raises BadOption, which names the option and the way out, for every option that this source
    does not honour.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        """The connector's columns; `headers` with includeHeaders."""
        return columns(flag(self.options, "includeHeaders", False))

    def reader(self, schema: StructType) -> BatchReader:
        from pyspark_ottla.batch import BatchReader

        return BatchReader(Options(READ_BATCH, self.options), self._checked(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        from pyspark_ottla.stream import StreamReader

        return StreamReader(Options(READ_STREAM, self.options), self._checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pyspark_ottla.writer import BatchWriter

        if overwrite:
            raise BadOption('mode("overwrite")', 'a topic only grows: use mode("append")')
        return BatchWriter(Options(WRITE, self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from pyspark_ottla.writer import StreamWriter

        if overwrite:
            raise BadOption(
                'outputMode("complete")', 'a topic only grows: use outputMode("append" or "update")'
            )
        return StreamWriter(Options(WRITE, self.options), schema)

    def _checked(self, schema: StructType) -> StructType:
        """The schema of the rows, which is not for the user to choose."""
        own = self.schema()
        if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in own]:
            raise BadOption(
                "schema",
                f"rows are {own.simpleString()}: leave .schema() out and select from these",
            )
        return own
