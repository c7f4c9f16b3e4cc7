"""Values parsed by a schema, and what becomes of those that do not fit it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro, to_avro

from ottla.spark.errors import JobError
from ottla.spark.records import HEADERS

FORMATS = ("json", "avro", "avro-confluent")
# Confluent's serializers put a zero byte and the four bytes of a schema id in front.
CONFLUENT_PREFIX = 5
ORIGIN = "ottla.origin."
ERROR = "ottla.error"
_CORRUPT = "_ottla_corrupt"


@dataclass(frozen=True)
class ValueSchema:
    """How values are read: one of FORMATS, and the schema's text (Spark DDL or JSON, or Avro)."""

    format: str
    text: str

    @classmethod
    def load(cls, value_format: str, path: str) -> ValueSchema:
        """From a file. Raises JobError when it cannot be read or is no schema."""
        try:
            text = Path(path).read_text().strip()
        except OSError as error:
            raise JobError(f"--schema {path}: {error.strerror}") from error
        schema = cls(value_format, text)
        if value_format != "json":
            try:
                kind = json.loads(text)["type"]
            except (ValueError, KeyError, TypeError):
                kind = None
            if kind != "record":
                raise JobError(f"--schema {path}: not the JSON of an Avro record")
        return schema

    def struct(self) -> T.StructType:
        """The type that JSON values are read as. Raises JobError."""
        try:
            if self.text.startswith("{"):
                return T.StructType.fromJson(json.loads(self.text))
            parsed = T.DataType.fromDDL(self.text)
            if isinstance(parsed, T.StructType):
                return parsed
            reason: Exception | str = f"a value of type {parsed.simpleString()} has no fields"
        except Exception as error:  # Spark's parser and its JSON reader raise a dozen kinds
            reason = error
        raise JobError(f"--schema: neither `name TYPE, ...` nor Spark's JSON of a schema: {reason}")


def parse(rows: DataFrame, schema: ValueSchema) -> DataFrame:
    """Add `data` (what the value says) and `error` (why it says nothing; null when it is fine).

    A null value is a tombstone, not an error. The raw columns stay as they are.
    """
    return (_json if schema.format == "json" else _avro)(rows, schema)


def _json(rows: DataFrame, schema: ValueSchema) -> DataFrame:
    struct = schema.struct()
    wide = T.StructType([*struct.fields, T.StructField(_CORRUPT, T.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col("value").cast("string")
    parsed = rows.withColumn("_parsed", F.from_json(text, wide, options))
    bad = F.col("value").isNotNull() & (
        F.col("_parsed").isNull() | F.col(f"_parsed.{_CORRUPT}").isNotNull()
    )
    missing = [f.name for f in struct.fields if not f.nullable]
    reasons = F.when(bad, F.lit("the value is not JSON of the given schema"))
    for name in missing:
        empty = F.col("value").isNotNull() & F.col("_parsed")[name].isNull()
        reasons = reasons.when(empty, F.lit(f"the value has no {name}"))
    data = F.struct(*(F.col("_parsed")[f.name].alias(f.name) for f in struct.fields))
    return _finish(parsed, reasons, data)


def _avro(rows: DataFrame, schema: ValueSchema) -> DataFrame:
    value = F.col("value")
    framed = schema.format == "avro-confluent"
    payload = F.expr(f"substring(value, {CONFLUENT_PREFIX + 1})") if framed else value
    parsed = rows.withColumn("_parsed", from_avro(payload, schema.text, {"mode": "PERMISSIVE"}))
    reasons = F.when(
        value.isNotNull() & _avro_failed(parsed, payload, schema),
        F.lit("the value is not Avro of the given schema"),
    )
    if framed:
        prefixed = F.expr("substring(value, 1, 1) = X'00'") & (F.length(value) > CONFLUENT_PREFIX)
        reasons = F.when(
            value.isNotNull() & ~prefixed, F.lit("the value has no Confluent prefix")
        ).otherwise(reasons)
    return _finish(parsed, reasons, F.col("_parsed"))


def _avro_failed(parsed: DataFrame, payload: Column, schema: ValueSchema) -> Column:
    """Spark gives a row of nulls for bytes it cannot decode. Where the schema has a field that
    cannot be null, that field tells; otherwise the nulls are encoded again and compared."""
    fields: list[dict[str, Any]] = json.loads(schema.text)["fields"]
    required = [f["name"] for f in fields if not _takes_null(f["type"])]
    if required:
        return F.col("_parsed").isNull() | F.col("_parsed")[required[0]].isNull()
    all_null = F.lit(True)
    for name in (f["name"] for f in fields):
        all_null = all_null & F.col("_parsed")[name].isNull()
    again = to_avro(F.col("_parsed"), schema.text)
    return F.col("_parsed").isNull() | (all_null & (again != payload))


def _takes_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _finish(parsed: DataFrame, reasons: Column, data: Column) -> DataFrame:
    return (
        parsed.withColumn("error", reasons)
        .withColumn("data", F.when(F.col("error").isNull() & F.col("value").isNotNull(), data))
        .drop("_parsed")
    )


def dead_letters(rows: DataFrame) -> DataFrame:
    """The rows with an error as the connector's sink wants them: key, value and headers as they
    came, and behind them where the record came from and what is wrong with it."""

    def header(name: str, value: Column) -> Column:
        text = value.cast("string").cast("binary")
        return F.struct(F.lit(name).alias("key"), text.alias("value"))

    origin = F.array(
        header(f"{ORIGIN}topic", F.col("topic")),
        header(f"{ORIGIN}partition", F.col("partition")),
        header(f"{ORIGIN}offset", F.col("offset")),
        header(f"{ORIGIN}timestamp", F.unix_millis("timestamp")),
        header(ERROR, F.col("error")),
    ).cast(HEADERS)
    own = F.coalesce(F.col("headers"), F.array().cast(HEADERS))
    return rows.where("error IS NOT NULL").select(
        "key", "value", F.concat(own, origin).alias("headers")
    )
