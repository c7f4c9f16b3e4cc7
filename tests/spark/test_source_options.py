"""The Python data source's options: each is honoured or refused by name."""

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructType
from pyspark_ottla import DefaultSource
from pyspark_ottla.errors import BadOption
from pyspark_ottla.offsets import (
    EARLIEST,
    LATEST,
    Partition,
    assigned,
    check_complete,
    ending,
    from_json,
    starting,
    to_json,
)
from pyspark_ottla.options import OPTIONS, READ_BATCH, READ_STREAM, WRITE, Options
from pyspark_ottla.properties import REFUSED, consumer_config, producer_config, translate

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**options: str) -> Options:
    return Options(READ_BATCH, BROKERS | {key.replace("__", "."): v for key, v in options.items()})


def kafka(use: str = READ_BATCH, /, **properties: str) -> dict[str, str | bool]:
    named = {f"kafka.{key.replace('_', '.')}": value for key, value in properties.items()}
    settings = translate(Options(use, BROKERS | named))
    return dict(producer_config(settings) if use == WRITE else consumer_config(settings, "group"))


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict(BROKERS | options))


# ------------------------------------------------------------------------------------- which ones


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(BadOption, match=r"^maxOffset: is no option of format ottla; for batch"):
        batch(maxOffset="1")


@pytest.mark.parametrize("name", sorted(OPTIONS))
@pytest.mark.parametrize("use", [READ_BATCH, READ_STREAM, WRITE])
def test_an_option_is_taken_where_it_means_something_only(name: str, use: str) -> None:
    given = BROKERS | {name.upper(): "1"}
    if use in OPTIONS[name]:
        assert Options(use, given).get(name) == "1"
    else:
        with pytest.raises(BadOption, match=f"^{name}: is for .* not for {use}"):
            Options(use, given)


def test_brokers_are_needed() -> None:
    with pytest.raises(BadOption, match=r"^kafka\.bootstrap\.servers: is missing"):
        Options(READ_BATCH, {"subscribe": "t"})


def test_a_path_is_refused() -> None:
    with pytest.raises(BadOption, match=r"\.load\(\) without a path"):
        batch(path="/some/where")


def test_what_spark_hands_to_a_sink_is_its_own() -> None:
    given = BROKERS | {"checkpointLocation": "/c", "queryName": "q", "topic": "t"}
    assert Options(WRITE, given).get("topic") == "t"
    with pytest.raises(BadOption, match=r"^checkpointLocation"):
        Options(READ_STREAM, given)


@pytest.mark.parametrize("given", [{}, {"subscribe": "t", "assign": '{"t":[0]}'}])
def test_one_strategy(given: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="give exactly one"):
        batch(**given).strategy()


@pytest.mark.parametrize(
    ("text", "millis"),
    [("200ms", 200), ("15m", 900_000), ("2 min", 120_000), ("1h", 3_600_000), ("7", 7)],
)
def test_times(text: str, millis: int) -> None:
    given = Options(READ_STREAM, BROKERS | {"maxTriggerDelay": text})
    assert given.duration_ms("maxTriggerDelay", 1) == millis


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_counts_are_positive(text: str) -> None:
    with pytest.raises(BadOption, match=r"^minPartitions"):
        batch(minPartitions=text).number("minPartitions")


def test_true_or_false() -> None:
    assert batch(failOnDataLoss="FALSE").flag("failOnDataLoss", True) is False
    with pytest.raises(BadOption, match=r"^failOnDataLoss: 'no' is neither"):
        batch(failOnDataLoss="no").flag("failOnDataLoss", True)


# ---------------------------------------------------------------------------------------- offsets


def test_defaults_are_the_connectors() -> None:
    assert starting(batch()).everywhere == EARLIEST
    assert starting(Options(READ_STREAM, BROKERS)).everywhere == LATEST
    assert ending(batch()).everywhere == LATEST


def test_offsets_of_each_partition() -> None:
    found = starting(batch(startingOffsets='{"a":{"0":23,"1":-2}}'))
    assert found.offsets == {Partition("a", 0): 23, Partition("a", 1): EARLIEST}
    check_complete(found, [Partition("a", 0), Partition("a", 1)])
    with pytest.raises(BadOption, match=r"^startingOffsets: .* a-2 are missing"):
        check_complete(found, [Partition("a", number) for number in range(3)])
    with pytest.raises(BadOption, match="a-1 are not read"):
        check_complete(found, [Partition("a", 0)])


def test_a_timestamp_wins() -> None:
    found = starting(
        batch(
            startingTimestamp="5",
            startingOffsetsByTimestamp='{"a":{"0":7}}',
            startingOffsets="earliest",
        )
    )
    assert (found.option, found.everywhere_time) == ("startingTimestamp", 5)


@pytest.mark.parametrize(
    "text", ["soon", "[]", '{"a":[0]}', '{"a":{"x":1}}', '{"a":{"0":"y"}}', '{"a":{"0":-3}}',
             '{"a":{"0":true}}', '{"a":{"0":1.5}}']
)  # fmt: skip
def test_offsets_that_make_no_sense(text: str) -> None:
    with pytest.raises(BadOption, match=r"^startingOffsets: "):
        starting(batch(startingOffsets=text))


def test_a_batch_begins_before_the_end_and_ends_after_the_beginning() -> None:
    for option, text in [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"a":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"a":{"0":-2}}'),
    ]:
        look = starting if option == "startingOffsets" else ending
        with pytest.raises(BadOption, match=f"^{option}: a batch cannot"):
            look(batch(**{option: text}))


def test_assign() -> None:
    assert assigned('{"b":[1,0],"a":[2]}') == [
        Partition("a", 2),
        Partition("b", 0),
        Partition("b", 1),
    ]
    for text in ("a", "{}", '{"a":0}', '{"a":["x"]}'):
        with pytest.raises(BadOption, match=r"^assign: "):
            assigned(text)


def test_offsets_look_like_the_connectors() -> None:
    offsets = {Partition("t", 10): 3, Partition("t", 9): 4, Partition("s", 0): 0}
    assert to_json(offsets) == {"s": {"0": 0}, "t": {"9": 4, "10": 3}}
    assert from_json(to_json(offsets)) == offsets


# ----------------------------------------------------------------------------------- the client's


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_client_cannot_honour_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match=f"^kafka.{name}: ."):
        translate(Options(READ_BATCH, BROKERS | {f"kafka.{name}": "1"}))


def test_java_names_become_librdkafkas() -> None:
    found = kafka(fetch_max_wait_ms="7", request_timeout_ms="9000", receive_buffer_bytes="4096")
    assert found["fetch.wait.max.ms"] == "7"
    assert found["socket.timeout.ms"] == "9000"
    assert found["socket.receive.buffer.bytes"] == "4096"
    found = kafka(WRITE, buffer_memory="33554432", max_request_size="5000000", acks="1")
    assert found["queue.buffering.max.kbytes"] == "32768"
    assert found["message.max.bytes"] == "5000000"
    assert "enable.idempotence" not in found
    assert kafka(WRITE)["enable.idempotence"] == "true"


def test_reading_moves_by_nobody_elses_word() -> None:
    found = kafka(group_id="mine")
    assert found["auto.offset.reset"] == "error"
    assert found["enable.auto.commit"] == "false"
    assert found["group.id"] == "mine"
    assert found["isolation.level"] == "read_uncommitted"  # Java's default, not librdkafka's
    assert kafka(isolation_level="READ_COMMITTED")["isolation.level"] == "read_committed"
    with pytest.raises(BadOption, match=r"^kafka\.isolation\.level: 'both'"):
        kafka(isolation_level="both")


def test_what_the_source_honours_itself() -> None:
    named = {"kafka.default.api.timeout.ms": "1500", "kafka.max.poll.records": "77"}
    found = translate(Options(READ_BATCH, BROKERS | named))
    assert (found.api_timeout, found.chunk) == (1.5, 77)
    assert found.client == {"bootstrap.servers": "localhost:9092"}
    with pytest.raises(BadOption, match=r"^kafka\.max\.poll\.records: is for reads"):
        translate(Options(WRITE, BROKERS | named))
    with pytest.raises(BadOption, match=r"^kafka\.isolation\.level: is for reads"):
        kafka(WRITE, isolation_level="read_committed")


def test_user_and_password_of_a_jaas_line() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    found = kafka(
        sasl_jaas_config=f'{module} required username="me" password="p\\"w;" ;',
        sasl_mechanism="SCRAM-SHA-256",
    )
    assert (found["sasl.username"], found["sasl.password"]) == ("me", 'p"w;')
    with pytest.raises(BadOption, match=r"^kafka\.sasl\.jaas\.config: is understood for"):
        kafka(
            sasl_jaas_config="com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
        )


def test_keys_and_certificates() -> None:
    found = kafka(
        ssl_truststore_location="/ca.pem",
        ssl_truststore_type="PEM",
        ssl_keystore_location="/me.p12",
        ssl_keystore_type="PKCS12",
        ssl_keystore_password="x",
        ssl_endpoint_identification_algorithm="",
    )
    assert found["ssl.ca.location"] == "/ca.pem"
    assert found["ssl.keystore.location"] == "/me.p12"
    assert found["ssl.endpoint.identification.algorithm"] == "none"
    assert not any(name.startswith("ssl.truststore") for name in found)
    for kind in ("ssl.truststore", "ssl.keystore"):
        with pytest.raises(BadOption, match=rf"^kafka\.{kind}\.type: only PEM"):
            translate(Options(READ_BATCH, BROKERS | {f"kafka.{kind}.location": "/a.jks"}))


# ------------------------------------------------------------------------------------- the source


def test_the_columns_are_the_connectors() -> None:
    plain = "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"  # noqa: E501
    assert source().schema().simpleString() == plain + ">"
    with_headers = source(includeHeaders="true").schema()
    assert with_headers.simpleString() == plain + ",headers:array<struct<key:string,value:binary>>>"
    with pytest.raises(BadOption, match=r"^schema: .* leave \.schema\(\) out"):
        source(subscribe="t").reader(StructType().add("value", StringType()))


def test_readers_and_errors_travel() -> None:
    found = source(subscribe="t", groupIdPrefix="p")
    for made in (found.reader(found.schema()), found.streamReader(found.schema())):
        assert type(pickle.loads(pickle.dumps(made))) is type(made)
    error = pickle.loads(pickle.dumps(BadOption("a", "b")))
    assert str(error) == "a: b"


def test_a_topic_cannot_be_overwritten() -> None:
    schema = StructType().add("value", StringType())
    with pytest.raises(BadOption, match="only grows"):
        source(topic="t").writer(schema, overwrite=True)
    with pytest.raises(BadOption, match="only grows"):
        source(topic="t").streamWriter(schema, overwrite=True)


def test_columns_that_cannot_be_written_are_named() -> None:
    from pyspark.sql.types import IntegerType

    string = StructType().add("value", StringType())
    with pytest.raises(BadOption, match=r"^topic: is missing"):
        source().writer(string, overwrite=False)
    with pytest.raises(BadOption, match=r"^column value: is missing; there are key"):
        source(topic="t").writer(StructType().add("key", StringType()), overwrite=False)
    with pytest.raises(BadOption, match=r"^column value: is int, not string or binary: cast it"):
        source(topic="t").writer(StructType().add("value", IntegerType()), overwrite=False)
    with pytest.raises(BadOption, match=r"^subscribe: is for batch reads"):
        source(subscribe="t").writer(string, overwrite=False)
