"""Records as lines and as JSON."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.cli_records import BadLine, Line, from_json, text_parser, to_json
from ottla.broker.cli_sender import size_bound
from ottla.wire.records import HEADER_SIZE, Record, build_batch

contents = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
names = st.binary(max_size=5) | st.sampled_from([b"a", b"base64"])
times = st.integers(0, 2**63 - 1) | st.just(-1)
all_records = st.builds(
    Record,
    st.integers(0, 2**62),
    times,
    contents,
    contents,
    st.lists(st.tuples(names, contents), max_size=4).map(tuple),
)


@given(st.integers(0, 2**31 - 1), all_records)
def test_json_keeps_every_byte_of_a_record(partition: int, record: Record) -> None:
    line = json.dumps(to_json(partition, record), ensure_ascii=False).encode()
    assert from_json(line) == Line(
        record.key, record.value, record.headers, record.timestamp, partition
    )


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"value":"v"}', Line(None, b"v")),
        (' { "value" : null , "key" : "" } ', Line(b"", None)),
        ('{"value":{"a": [1.50, "x"], "a":1e5}}', Line(None, b'{"a":[1.50,"x"],"a":1e5}')),
        ('{"value":5,"key":[1, 2]}', Line(b"[1,2]", b"5")),
        ('{"value":"\\u00fc"}', Line(None, "ü".encode())),
        ('{"value_base64":"/w=="}', Line(None, b"\xff")),
        ('{"value_base64":null,"key_base64":"AA=="}', Line(b"\0", None)),
        ('{"value":"","headers":{"a":null}}', Line(None, b"", ((b"a", None),))),
        ('{"value":"","headers":[["a",""],["a",""]]}', Line(None, b"", ((b"a", b""), (b"a", b"")))),
        ('{"value":"","headers":[["a",{"base64":"/w=="}]]}', Line(None, b"", ((b"a", b"\xff"),))),
        ('{"value":"","headers":null,"timestamp":null,"partition":null}', Line(None, b"")),
        ('{"value":"","timestamp":1700000000000}', Line(None, b"", (), 1_700_000_000_000)),
        ('{"value":"","timestamp":"2023-11-14T22:13:20Z"}', Line(None, b"", (), 1_700_000_000_000)),
        ('{"value":"","timestamp":"2023-11-14"}', Line(None, b"", (), 1_699_920_000_000)),
        ('{"value":"","partition":3,"offset":9}', Line(None, b"", (), None, 3)),
    ],
)  # fmt: skip
def test_json_that_is_taken(line: str, record: Line) -> None:
    assert from_json(line.encode()) == record


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", 'is not a JSON object: give {"value": ...}'),
        ('["a"]', "is not a JSON object"),
        ("null", "is not a JSON object"),
        ("{}", 'has no value: give "value", "value_base64", or "value": null for a tombstone'),
        ('{"key":"k"}', "has no value"),
        ('{"vlue":"a"}', "has an unknown field 'vlue': it may have value, value_base64, key"),
        ('{"Value":"a"}', "has an unknown field 'Value'"),
        ('{"value":"a","value":"b"}', "has the field 'value' twice"),
        ('{"value":"a","value_base64":"YQ=="}', "has both value and value_base64"),
        ('{"value_base64":"?"}', "value_base64: it is not base64"),
        ('{"value_base64":5}', "value_base64: it is not base64"),
        ('{"value":"\\ud800"}', "value: half of a surrogate pair is not a character"),
        ('{"value":NaN}', "NaN is not JSON"),
        ('{"value":}', "is not a valid JSON record: expecting value at column 10"),
        ('{"value":', "it ends where a value is expected"),
        ('{"value":1', ", or } expected, not its end, at column 11"),
        ('{"value" 1}', ": expected, not '1', at column 10"),
        ('{"value":1,}', "\" expected, not '}', at column 12"),
        ('{"value":1} x', "something follows the object at column 13"),
        ("{" + '"value":' + "[" * 200_000, "is nested too deeply"),
        ('{"value":"v","timestamp":"soon"}', 'timestamp "soon": it must be milliseconds'),
        ('{"value":"v","timestamp":1.5}', "timestamp 1.5: it must be milliseconds"),
        ('{"value":"v","timestamp":true}', "timestamp true: it must be"),
        ('{"value":"v","timestamp":-2}', "timestamp -2: it must be"),
        ('{"value":"v","timestamp":99999999999999999999}', "it must be milliseconds"),
        ('{"value":"v","partition":"0"}', 'partition "0": it must be a whole number, 0 or more'),
        ('{"value":"v","partition":-1}', "partition -1: it must be a whole number"),
        ('{"value":"v","partition":false}', "partition false: it must be a whole number"),
        ('{"value":"v","headers":"a"}', "neither a list of [name, value] pairs nor an object"),
        ('{"value":"v","headers":["a"]}', 'a header that is not a [name, value] pair: "a"'),
        ('{"value":"v","headers":[["a"]]}', "a header that is not a [name, value] pair"),
        ('{"value":"v","headers":[[null,"1"]]}', "a header whose name is null"),
        ('{"value":"v","headers":{"a":1}}', "header 'a': it must be text, null or"),
        ('{"value":"v","headers":{"a":"1","a":"2"}}', "has a header twice: give headers as a list"),
    ],
)
def test_json_that_is_refused_in_words(line: str, words: str) -> None:
    with pytest.raises(BadLine) as caught:
        from_json(line.encode())
    assert words in str(caught.value)


def test_bytes_that_are_not_utf_8_are_refused_in_words() -> None:
    with pytest.raises(BadLine, match="is not UTF-8"):
        from_json(b'{"value":"\xff"}')


@given(st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_no_line_of_json_ends_in_another_error(line: bytes) -> None:
    for text in (line, b'{"value":' + line + b"}", b'{"value":1,"headers":' + line + b"}"):
        with suppress(BadLine):
            assert isinstance(from_json(text), Line)


def test_plain_lines() -> None:
    assert text_parser(None, None)(b"a:b") == Line(None, b"a:b")
    keyed = text_parser(b":", b"NULL")
    assert keyed(b"a:b:c") == Line(b"a", b"b:c")
    assert keyed(b":") == Line(b"", b"")
    assert keyed(b"NULL:NULL") == Line(None, None)
    with pytest.raises(BadLine, match="has no ':' between key and value"):
        keyed(b"a")


@given(st.lists(all_records, min_size=1, max_size=20))
def test_the_bound_of_a_record_holds_for_what_is_encoded(records: list[Record]) -> None:
    numbered = [record._replace(offset=n) for n, record in enumerate(records)]
    bound = sum(size_bound(Line(each.key, each.value, each.headers)) for each in numbered)
    assert len(build_batch(numbered)) <= HEADER_SIZE + bound
