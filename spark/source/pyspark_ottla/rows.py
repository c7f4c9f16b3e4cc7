"""Records to Arrow: columns are gathered as plain lists, and sent in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_ottla.errors import INSTALL, MissingPackage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: A record batch is sent when it has this many rows, or about this many bytes.
MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 16 << 20

#: Kafka's TimestampType.
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Headers = Sequence[tuple[str, bytes | None]]


def arrow() -> Any:
    """The package pyarrow. Raises MissingPackage."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackage(
            f"format ottla needs the package pyarrow on the driver and on every executor: {INSTALL}"
        ) from error
    return pyarrow


class Rows:
    """Rows of one partition that are on their way to Spark."""

    def __init__(self, schema: StructType, topic: str, partition: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._arrow = arrow()
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self.wants_headers = "headers" in self._schema.names
        self._topic = self._arrow.scalar(topic, self._schema.field("topic").type)
        self._partition = self._arrow.scalar(partition, self._arrow.int32())
        self._empty()

    def _empty(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets: list[int] = []
        #: Milliseconds since 1970.
        self.times: list[int] = []
        self.time_types: list[int] = []
        #: Only with wants_headers. None: the record has no headers.
        self.headers: list[Headers | None] = []
        #: About what the rows take; whoever adds rows counts.
        self.size = 0

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def full(self) -> bool:
        return len(self.offsets) >= MOST_ROWS or self.size >= MOST_BYTES

    def drain(self) -> Iterator[Any]:
        """What is there, as a RecordBatch; nothing when there is nothing."""
        if self.offsets:
            batch = self._batch()
            self._empty()
            yield batch

    def _batch(self) -> Any:
        pa = self._arrow
        count = len(self.offsets)
        millis = pa.array(self.times, pa.timestamp("ms", tz="UTC"))
        columns = {
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
            "topic": pa.repeat(self._topic, count),
            "partition": pa.repeat(self._partition, count),
            "offset": pa.array(self.offsets, pa.int64()),
            "timestamp": millis,
            "timestampType": pa.array(self.time_types, pa.int32()),
        }
        if self.wants_headers:
            rows = [
                None if not headers else [{"key": k, "value": v} for k, v in headers]
                for headers in self.headers
            ]
            columns["headers"] = pa.array(rows, self._schema.field("headers").type)
        schema = self._schema
        return pa.RecordBatch.from_arrays(
            [columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema
        )
