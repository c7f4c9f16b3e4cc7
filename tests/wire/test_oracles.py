"""The schema against two others made from Kafka's message definitions: kafka-python's field by
field and value by value, kio's byte by byte."""

import uuid
from enum import Enum
from io import BytesIO
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.schemas import load_json
from kafka.protocol.schemas.fields.base import BaseField
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from tests.wire.messages import (
    MESSAGES,
    each_of,
    each_version_of,
    every_version,
    full,
    instances,
    versions,
    written,
)

from ottla.wire.api.api_versions import ApiVersionsResponse
from ottla.wire.errors import Error
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import FIELDS, FIXED, NEVER, Field, Message

KAFKA_PYTHON = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
)
#: Heartbeats of groups of the consumer protocol and of share groups, which it cannot send.
UNKNOWN_TO_KAFKA_PYTHON = {68, 76}
THEIRS = [cls for cls in MESSAGES if cls.api_key not in UNKNOWN_TO_KAFKA_PYTHON]
PERMISSIONS = {
    "authorized_operations",
    "cluster_authorized_operations",
    "topic_authorized_operations",
}
QUICK = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


# -- kafka-python: the definitions ----------------------------------------------------------------


def their_versions(text: str | None, otherwise: range) -> range:
    parsed = BaseField.parse_versions(text)
    if parsed is None:
        return otherwise
    return range(parsed[0], parsed[1] + 1) if parsed[0] >= 0 else range(0)


def default_of(json: dict[str, Any], version: int) -> Any:
    """A default as we would write it."""
    text = json.get("default", "")
    kind = json["type"]
    if text == "null":
        return None
    if kind.startswith("[]"):
        return list
    if kind == "bool":
        return str(text).lower() == "true"
    if kind in FIXED and kind != "uuid":
        return int(str(text), 0) if text != "" else 0
    return {"uuid": ZERO_UUID, "string": text, "bytes": b"", "records": None}.get(kind)


def check_struct(ours: type, theirs: list[dict[str, Any]], version: int, flexible: bool) -> None:
    mine = [field for field in FIELDS[ours] if version in field.versions]
    other = [json for json in theirs if version in their_versions(json["versions"], range(0))]
    assert [field.name for field in mine] == [
        BaseField.underscore_name(json["name"]) for json in other
    ]
    for field, json in zip(mine, other, strict=True):
        check_field(field, json, version, flexible)


def check_field(field: Field, json: dict[str, Any], version: int, flexible: bool) -> None:
    kind = json["type"]
    inner = field
    if kind.startswith("[]"):
        assert field.kind == "array"
        assert field.item is not None
        inner, kind = field.item, kind[2:]
    if inner.struct is not None:
        # where both sides use one name, our request's has its side in front
        assert inner.struct.__name__.removeprefix("Request") == kind.removeprefix("Request")
        check_struct(inner.struct, json["fields"], version, flexible)
    else:
        assert inner.kind == kind
    assert (version in field.null) == (
        version in their_versions(json.get("nullableVersions"), range(0))
    )
    assert field.tag == json.get("tag")
    if field.tag is not None:
        assert version in their_versions(json["taggedVersions"], range(0))
    assert field.ignorable <= json.get("ignorable", False)
    # Tagged structs and the records of fetch answers differ on purpose (see schema.py, fetch.py).
    if inner.struct is None and field.kind != "records":
        assert field.default == default_of(json, version)


@each_of(THEIRS)
def test_fields_are_those_of_kafka_python(cls: type[Message]) -> None:
    json = load_json(cls.__name__)
    assert json["apiKey"] == cls.api_key
    theirs = their_versions(json["validVersions"], range(0))
    assert set(versions(cls)) <= set(theirs)
    flexible = their_versions(json["flexibleVersions"], range(0))
    first = flexible.start if len(flexible) else NEVER
    assert cls.flexible == first or min(cls.flexible, first) > cls.versions[1]
    for version in versions(cls):
        check_struct(cls, json["fields"], version, version >= cls.flexible)


@each_of(THEIRS)
def test_fields_that_old_versions_drop_are_marked_as_kafka_marks_them(cls: type[Message]) -> None:
    def check(owner: type, theirs: list[dict[str, Any]]) -> None:
        by_name = {BaseField.underscore_name(json["name"]): json for json in theirs}
        for field in FIELDS[owner]:
            json = by_name[field.name]
            if any(version not in field.versions for version in versions(cls)):
                assert field.ignorable == json.get("ignorable", False), field.name
            inner = field.struct if field.item is None else field.item.struct
            if inner is not None:
                check(inner, json["fields"])

    check(cls, load_json(cls.__name__)["fields"])


# -- kafka-python: values -------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Values in one form, whoever made them."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Enum):
        return value.value
    return value


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other, version)
    elif type(ours) in FIELDS:
        for field in FIELDS[type(ours)]:
            # They give permissions other names and make sets of them.
            if version in field.versions and field.name not in PERMISSIONS:
                value = getattr(ours, field.name)
                if value is None and field.kind == "struct" and field.tag is not None:
                    continue  # not sent: they have a struct of defaults
                assert_same(value, getattr(theirs, field.name), version)
    else:
        assert plain(ours) == plain(theirs)


def kafka_python(cls: type[Message]) -> Any:
    return next(
        getattr(module, cls.__name__) for module in KAFKA_PYTHON if hasattr(module, cls.__name__)
    )


@each_version_of(THEIRS)
def test_kafka_python_reads_what_we_write(cls: type[Message], version: int) -> None:
    theirs = kafka_python(cls)

    @QUICK
    @given(st.one_of(instances(cls, version), st.just(full(cls, version))))
    def compare(message: Message) -> None:
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error they read version 0, whatever was asked for
        assert_same(message, theirs.decode(written(message, version), version=version), version)

    compare()


# -- kio ------------------------------------------------------------------------------------------


def within_kio(field: Field) -> st.SearchStrategy[Any] | None:
    """Values that kio can hold: it reads error codes, durations and times as such."""
    if field.name.endswith("error_code"):
        return st.sampled_from([code.value for code in ErrorCode])
    if field.kind == "int64" and field.name.endswith("_ms"):
        return st.integers(0, 1 << 40)
    return None


@every_version
def test_kio_reads_and_writes_the_same_bytes(cls: type[Message], version: int) -> None:
    load: Any = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    schema = load(cls.api_key, version)
    reader, writer = entity_reader(schema), entity_writer(schema)

    @QUICK
    @given(st.one_of(instances(cls, version, within_kio), st.just(full(cls, version))))
    def compare(message: Message) -> None:
        data = written(message, version)
        read, size = reader(data, 0)
        assert size == len(data)
        out = BytesIO()
        writer(out, read)
        assert out.getvalue() == data

    compare()


def test_error_codes_are_those_of_kio() -> None:
    theirs = {code.value: code.name.upper() for code in ErrorCode}
    ours = {int(error): error.name for error in Error}
    for code, name in theirs.items():
        assert ours[code] == name
    assert len(ours) >= len(theirs) > 100
