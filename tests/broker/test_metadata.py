"""Topics and settings: what is visible when, and what survives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.config import ServerConfig
from ottla.broker.metadata import NewTopic, ResourceType, Topics
from ottla.broker.metadata_rows import UnknownRow, config_row, scan_configs, topic_row
from ottla.broker.topic_names import check_name
from ottla.group.outcome import Place
from ottla.log.errors import LogError, WriteFailed
from ottla.log.options import Change, StoreOptions, Table
from ottla.log.store import Store
from ottla.wire.errors import Error, KafkaError

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def open_store(path: Path) -> Store:
    return Store.open(
        path, options=StoreOptions(durability="os"), now_ms=1, boot_id="boot", post=None
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def config() -> ServerConfig:
    return ServerConfig()


@pytest.fixture
def topics(store: Store, config: ServerConfig) -> Topics:
    return Topics(store, config)


def new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    own = {key.replace("_", "."): value for key, value in configs.items()}
    return NewTopic(name, name.encode().rjust(16, b"\1"), partitions, own)


def error_of(topics: Topics, name: str) -> Error:
    with pytest.raises(KafkaError) as caught:
        topics.check_new_name(name)
    return caught.value.error


# ------------------------------------------------------------------------------------------ topics


def test_a_topic_is_decided_on_at_once_and_seen_when_it_is_committed(
    store: Store, topics: Topics
) -> None:
    ticket = topics.create([new("a", 2)])
    assert topics.get("a") is None
    assert topics.by_id(new("a").topic_id) is None
    assert list(topics) == []
    with pytest.raises(KafkaError):
        topics.partition("a", 0)
    assert error_of(topics, "a") is Error.TOPIC_ALREADY_EXISTS
    seen = []
    ticket.then(lambda _: seen.append(topics.get("a")))
    store.flush()
    assert seen == [topics.get("a")], "who waits for the ticket sees the topic"
    assert seen[0] is not None
    assert topics.by_id(new("a").topic_id) is seen[0]
    assert [topics.partition("a", i).number for i in (0, 1)] == list(seen[0].partitions)


def test_topics_come_in_the_order_of_their_names(store: Store, topics: Topics) -> None:
    topics.create([new("b"), new("a"), new("c")])
    store.flush()
    assert [topic.name for topic in topics] == ["a", "b", "c"]
    assert len(topics) == 3


@pytest.mark.parametrize("index", [-1, 1, 2**31 - 1])
def test_a_partition_that_is_not_there(store: Store, topics: Topics, index: int) -> None:
    topics.create([new("a")])
    store.flush()
    with pytest.raises(KafkaError) as caught:
        topics.partition("a", index)
    assert caught.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path / "d")
    topics = Topics(store, ServerConfig())
    topics.create([new("a", 3, retention_ms="5"), new("gone")])
    topics.add_partitions("a", 5)
    topics.delete(["gone"])
    topics.set_configs([(BROKER, "", {"message.max.bytes": "77"}), (BROKER, "1", {})])
    store.flush()
    before = topics.get("a")
    store.close()
    store = open_store(tmp_path / "d")
    config = ServerConfig()
    again = Topics(store, config)
    assert again.get("a") == before
    assert again.get("gone") is None
    assert config.cluster == {"message.max.bytes": "77", "min.insync.replicas": "1"}
    assert before is not None
    assert before.config.max_message_bytes == 77
    assert store.settings(before.partitions[4]).retention_ms == 5
    store.close()


def test_a_topic_made_again_has_other_partitions_and_none_of_the_settings(
    store: Store, topics: Topics
) -> None:
    topics.create([new("a", 1, retention_ms="5")])
    store.flush()
    first = topics.get("a")
    topics.delete(["a"])
    topics.create([NewTopic("a", b"2" * 16, 1, {})])
    store.flush()
    second = topics.get("a")
    assert first is not None
    assert second is not None
    assert first.partitions != second.partitions
    assert second.topic_id == b"2" * 16
    assert topics.by_id(first.topic_id) is None
    assert second.config.retention_ms == 604_800_000
    assert list(scan_configs(store)) == []


def test_a_deleted_topic_is_seen_until_its_deletion_is_committed(
    store: Store, topics: Topics
) -> None:
    topics.create([new("a")])
    store.flush()
    topics.delete(["a"])
    assert topics.get("a") is not None
    assert topics.admitted("a") is None
    topics.check_new_name("a")
    store.flush()
    assert topics.get("a") is None


def test_the_log_is_told_what_the_settings_of_a_topic_say(store: Store, topics: Topics) -> None:
    topics.create([new("a", 1, retention_ms="5", cleanup_policy="compact,delete")])
    store.flush()
    (number,) = topics.get("a").partitions  # type: ignore[union-attr]
    settings = store.settings(number)
    assert (settings.retention_ms, settings.delete, settings.compact) == (5, True, True)
    topics.set_configs([(TOPIC, "a", {"retention.bytes": "-9"})])
    store.flush()
    settings = store.settings(number)
    assert (settings.retention_ms, settings.retention_bytes) == (604_800_000, -1)
    assert (settings.delete, settings.compact) == (True, False)


# --------------------------------------------------------------------------------------- trap 16


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 249, "...", "-"])
def test_trap_16_names_that_are_fine(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_trap_16_names_that_are_not(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_name(name)
    assert caught.value.error is Error.INVALID_TOPIC_EXCEPTION


def test_trap_16_a_dot_and_an_underscore_collide_before_they_are_committed(
    store: Store, topics: Topics
) -> None:
    topics.create([new("a.b_c")])
    assert error_of(topics, "a_b.c") is Error.INVALID_TOPIC_EXCEPTION
    store.flush()
    assert error_of(topics, "a_b_c") is Error.INVALID_TOPIC_EXCEPTION
    topics.delete(["a.b_c"])
    topics.check_new_name("a_b_c")


def test_kafkas_own_log_of_topics_is_no_topic(topics: Topics) -> None:
    assert error_of(topics, "__cluster_metadata") is Error.INVALID_REQUEST


# ------------------------------------------------------------------------------------- settings


def test_settings_of_a_topic_count_when_they_are_committed(store: Store, topics: Topics) -> None:
    topics.create([new("a")])
    store.flush()
    topics.set_configs([(TOPIC, "a", {"max.message.bytes": "9"})])
    assert topics.own_configs(TOPIC, "a") == {"max.message.bytes": "9"}
    assert topics.get("a").config.max_message_bytes == 1048588  # type: ignore[union-attr]
    store.flush()
    assert topics.get("a").config.max_message_bytes == 9  # type: ignore[union-attr]
    assert topics.get("a").rules.max_message_bytes == 9  # type: ignore[union-attr]


def test_settings_of_the_broker_reach_topics_that_do_not_say_otherwise(
    store: Store, topics: Topics, config: ServerConfig
) -> None:
    topics.create([new("own", 1, max_message_bytes="5"), new("heir")])
    store.flush()
    topics.set_configs([(BROKER, "", {"message.max.bytes": "7"})])
    assert "message.max.bytes" not in config.cluster
    store.flush()
    assert topics.get("own").config.max_message_bytes == 5  # type: ignore[union-attr]
    assert topics.get("heir").config.max_message_bytes == 7  # type: ignore[union-attr]
    topics.set_configs([(BROKER, "1", {"message.max.bytes": "8"})])
    store.flush()
    assert topics.get("heir").config.max_message_bytes == 8  # type: ignore[union-attr]
    topics.set_configs([(BROKER, "1", {}), (BROKER, "", {})])
    store.flush()
    assert topics.get("heir").config.max_message_bytes == 1048588  # type: ignore[union-attr]
    assert topics.configured(TOPIC) == ["own"]


def test_a_topic_admitted_beside_broker_settings_gets_them(store: Store, topics: Topics) -> None:
    topics.create([new("a")])
    topics.set_configs([(BROKER, "", {"message.max.bytes": "7"})])
    topics.create([new("b")])
    store.flush()
    assert topics.get("a").config.max_message_bytes == 7  # type: ignore[union-attr]
    assert topics.get("b").config.max_message_bytes == 7  # type: ignore[union-attr]


def test_topics_with_equal_settings_share_them(store: Store, topics: Topics) -> None:
    topics.create([new("a"), new("b")])
    store.flush()
    assert topics.get("a").effective is topics.get("b").effective  # type: ignore[union-attr]


# -------------------------------------------------------------------------------- what moves what


def test_whoever_answers_from_all_topics_is_told_of_every_change(
    store: Store, topics: Topics
) -> None:
    calls: list[int] = []
    topics.on_change(lambda: calls.append(topics.version))
    topics.create([new("a")])
    assert not calls
    store.flush()
    topics.add_partitions("a", 2)
    store.flush()
    topics.delete(["a"])
    store.flush()
    assert calls == sorted(set(calls))
    assert len(calls) == 3


def test_a_failed_commit_takes_back_what_was_admitted(store: Store, topics: Topics) -> None:
    topics.create([new("kept")])
    store.flush()
    topics.create([new("lost")])
    topics.delete(["kept"])
    reset: list[LogError] = [WriteFailed("the disk is gone")]
    topics._reset(reset[0])
    assert topics.admitted("lost") is None
    assert topics.admitted("kept") is not None
    topics.check_new_name("lost")


# ------------------------------------------------------------------------------------------ rows


def test_a_partition_knows_where_it_belongs(tmp_path: Path) -> None:
    """By the log's number, without a look at all topics."""
    store = open_store(tmp_path / "data")
    topics = Topics(store, ServerConfig())
    topics.create([new("a", 2), new("b")])
    store.flush()
    topics.add_partitions("a", 3)
    assert len([number for number in range(100) if topics.place(number)]) == 3, "as committed"
    store.flush()
    gone = topics.get("b")
    assert gone is not None
    topics.delete(["b"])
    topics.set_configs([(TOPIC, "a", {"retention.ms": "1000"}), (BROKER, "", {})])
    store.flush()
    for again in (topics, Topics(store, ServerConfig())):
        topic = again.get("a")
        assert topic is not None
        assert [again.place(number) for number in topic.partitions] == [
            Place("a", topic.topic_id, index) for index in range(3)
        ]
        assert again.place(gone.partitions[0]) is None
        assert len([number for number in range(100) if again.place(number)]) == 3
    store.close()


def test_rows_are_as_the_design_page_says() -> None:
    assert topic_row("a", b"I" * 16, [1, 258]) == Change(
        Table.TOPICS, b"a", b"\1" + b"I" * 16 + b"\2\0\0\0" + b"\1\0\0\0" + b"\2\1\0\0"
    )
    assert config_row(TOPIC, "a", {"k": "v1"}) == Change(
        Table.CONFIGS, b"\2a", b"\1" + b"\1\0k" + b"\2\0\0\0v1"
    )
    assert config_row(BROKER, "", {}) == Change(Table.CONFIGS, b"\4", None)


def test_a_row_of_a_later_version_is_refused_and_named(store: Store) -> None:
    store.change([Change(Table.TOPICS, b"a", b"\2" + b"I" * 16 + b"\0\0\0\0")])
    store.flush()
    with pytest.raises(UnknownRow, match="the row of topic a has format 2"):
        Topics(store, ServerConfig())
