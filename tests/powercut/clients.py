"""Clients of a broker, each with things of its own: what they asked for, and what must be true.

A client asks one thing at a time, so after a cut a broker shows what its first n requests come to,
n being those that were answered, or one more. `Client.shown` looks, `Client.wanted` computes; the
same code looks at a served process (Served) and at a broker without sockets (tests/broker).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

from tests.broker.txnkit import TxnProducer, group_offset, seen
from tests.powercut.world import without_place

from ottla.broker.cli_client import Connection
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error
from ottla.wire.records import Record, build_batch, records, walk
from ottla.wire.schema import Message

Fact = tuple[Any, ...]
#: Records of now: retention would take older ones.
TIME_MS: Final = time.time_ns() // 1_000_000
_TOPIC: Final = 2
_SET: Final = 0
_EARLIEST: Final = -2


class Calls(Protocol):
    """One connection."""

    def call(self, request: Message, version: int) -> Any:
        """Ask and have the answer."""


class Place(Protocol):
    """A broker that can be connected to."""

    def client(self) -> Calls:
        """A connection."""


class Served:
    """A broker in a process of its own."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = Connection(host, int(port))

    def client(self) -> Calls:
        return self

    def call(self, request: Message, version: int) -> Any:
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.replace("Request", "Response"))
        return self._connection.call(request, response, version)

    def close(self) -> None:
        self._connection.close()


class Client:
    """What one of them does. `facts` are its requests; each call is given the place."""

    #: Topic of its own, made before it begins: partitions, settings.
    topic: ClassVar[tuple[int, dict[str, str]] | None] = None

    def __init__(self, name: str, mark: Callable[[str], None], seed: int) -> None:
        self.name = name
        self.mark = mark
        self.random = random.Random(f"{name} {seed}")
        self.facts: list[Fact] = []
        self.count = 0

    def ask(self, fact: Fact) -> None:
        """Before it is sent."""
        self.facts.append(fact)
        self.mark(f"{self.name} asked {len(self.facts)}")

    def told(self) -> None:
        """The answer is there."""
        self.mark(f"{self.name} acked {len(self.facts)}")

    def act(self, place: Place) -> None:
        """One request, or a few that belong together."""
        raise NotImplementedError

    def go_on(self, place: Place, known: Sequence[Fact]) -> None:
        """After a cut that left these: one more request, which is to find everything in order."""
        self.facts = list(known)
        self.act(place)

    @staticmethod
    def wanted(facts: Sequence[Fact]) -> Any:
        raise NotImplementedError

    @classmethod
    def shown(cls, place: Place, name: str) -> Any:
        raise NotImplementedError


def make_topic(place: Place, name: str, partitions: int, settings: dict[str, str]) -> None:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    answer = place.client().call(CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == 0, answer


def log_start(place: Place, topic: str) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    found = place.client().call(request, 5).topics[0].partitions[0]
    assert found.error_code == 0, found
    return int(found.offset)


def fetch(place: Place, topic: str) -> tuple[int, int, list[tuple[int, bytes]]]:
    """Log start and end, base offset and bytes of each batch of partition 0."""
    client, found = place.client(), list[tuple[int, bytes]]()
    start = offset = log_start(place, topic)
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[partition])])
        (answer,) = client.call(request, 12).responses[0].partitions
        assert answer.error_code == 0, answer.error_code
        data, before = bytes(answer.records or b""), offset
        for pos, header in walk(data):
            offset = header.next_offset
            found.append((header.base_offset, data[pos : pos + header.size]))
        if offset == before:
            assert answer.high_watermark == offset
            return start, offset, found


def produce(place: Place, topic: str, batch: bytes) -> int:
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    found = place.client().call(request, 9).responses[0].partition_responses[0]
    assert found.error_code == 0, Error(found.error_code)
    return int(found.base_offset)


class Writer(Client):
    """Batches into a partition, whose log start it moves now and then."""

    topic = 1, {"segment.bytes": str(1 << 20), "segment.ms": "300"}

    def act(self, place: Place) -> None:
        start, end, _ = self.wanted(self.facts)
        if self.random.random() < 0.05 and end > start:
            to = self.random.randint(start, end)
            self.ask(("start", to))
            part = DeleteRecordsPartition(partition_index=0, offset=to)
            topics = [DeleteRecordsTopic(name=self.name, partitions=[part])]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=30_000)
            answer = place.client().call(request, 2).topics[0].partitions[0]
            assert (answer.error_code, answer.low_watermark) == (0, to), answer
        else:
            size = self.random.choice((60, 900, 9_000, 70_000))
            count = self.random.randint(1, 3)
            rows = [Record(i, TIME_MS, None, self.random.randbytes(size)) for i in range(count)]
            batch = bytes(build_batch(rows))
            self.ask(("batch", batch, count))
            base = produce(place, self.name, batch)
            assert base == end, f"{self.name}: offset {base} was given out where {end} is next"
        self.told()

    @staticmethod
    def wanted(facts: Sequence[Fact]) -> Any:
        """Log start and end; base offset, end and bytes of the batches between."""
        start, end, batches = 0, 0, []
        for kind, what, *more in facts:
            if kind == "start":
                start = what
            else:
                batches.append((end, end + more[0], without_place(what)[8:]))
                end += more[0]
        return start, end, [batch for batch in batches if batch[1] > start]

    @classmethod
    def shown(cls, place: Place, name: str) -> Any:
        start, end, found = fetch(place, name)
        return (
            start,
            end,
            [
                (base, base + sum(1 for _ in records(batch)), without_place(batch)[8:])
                for base, batch in found
            ],
        )


class Keyed(Client):
    """Records with keys into a compacted topic."""

    topic = (
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "300",
            "max.compaction.lag.ms": "500",
        },
    )

    def act(self, place: Place) -> None:
        self.count += 1
        rows = [
            Record(i, TIME_MS, b"%d" % self.random.randrange(30), self.random.randbytes(200))
            for i in range(self.random.randint(1, 4))
        ]
        self.ask(("rows", [(row.key, row.value) for row in rows]))
        produce(place, self.name, bytes(build_batch(rows)))
        self.told()

    @staticmethod
    def wanted(facts: Sequence[Fact]) -> Any:
        """The latest value of each key."""
        return {key: value for _, rows in facts for key, value in rows}

    @classmethod
    def shown(cls, place: Place, name: str) -> Any:
        _, _, found = fetch(place, name)
        return {row.key: row.value for _, batch in found for row in records(batch)}


class Committer(Client):
    """A group's offset, with a word on it."""

    topic = 1, {}

    def act(self, place: Place) -> None:
        self.count += 1
        offset, word = len(self.facts), self.random.randbytes(20).hex()
        self.ask((offset, word))
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=word
        )
        topics = [OffsetCommitRequestTopic(name=self.name, partitions=[part])]
        request = OffsetCommitRequest(group_id=f"group of {self.name}", topics=topics)
        answer = place.client().call(request, 8).topics[0].partitions[0]
        assert answer.error_code == 0, Error(answer.error_code)
        self.told()

    @staticmethod
    def wanted(facts: Sequence[Fact]) -> Any:
        return facts[-1] if facts else (-1, "")

    @classmethod
    def shown(cls, place: Place, name: str) -> Any:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=f"group of {name}", topics=topics)
        answer = place.client().call(OffsetFetchRequest(groups=[group]), 8)
        found = answer.groups[0].topics[0].partitions[0]
        assert found.error_code == 0
        return found.committed_offset, found.metadata or ""


class Transactor(Client):
    """Transactions over two partitions and a group's offset."""

    topic = 2, {"retention.ms": "-1"}  # TxnProducer's records are years old

    def act(self, place: Place) -> None:
        producer = TxnProducer(place, self.name, self.random.random() < 0.5)  # type: ignore[arg-type] # has clients
        producer.begin()
        for _ in range(self.random.randint(1, 3)):
            if not self._transact(producer):
                return  # its successor takes it back

    def _transact(self, producer: TxnProducer) -> bool:
        """False: it was left open."""
        self.count += 1
        number = len(self.facts) * 1000 + self.count
        values = [b"%d-%d" % (number, i) for i in range(2)]
        committed = self.random.random() < 0.7
        for index, value in enumerate(values):
            error = producer.send(self.name, index, value)
            assert error is Error.NONE, error
        error = producer.offsets(f"group of {self.name}", self.name, 0, number)
        assert error is Error.NONE, error
        if self.random.random() < 0.1:
            return False
        self.ask((committed, values, number))
        error = producer.end(committed)
        assert error is Error.NONE, error
        self.told()
        return True

    @staticmethod
    def wanted(facts: Sequence[Fact]) -> Any:
        """What readers of committed records see of both partitions; the group's offset."""
        done = [(values, number) for committed, values, number in facts if committed]
        both = [[values[index] for values, _ in done] for index in range(2)]
        return both, done[-1][1] if done else -1

    @classmethod
    def shown(cls, place: Place, name: str) -> Any:
        both = [seen(place, name, index) for index in range(2)]  # type: ignore[arg-type]
        error, offset = group_offset(place, f"group of {name}", name)  # type: ignore[arg-type]
        assert error is Error.NONE
        return both, offset


class Admin(Client):
    """Topics made, enlarged, configured, deleted."""

    def act(self, place: Place) -> None:
        topics = self.wanted(self.facts)
        client, pick = place.client(), self.random.random()
        name = self.random.choice(sorted(topics)) if topics else ""
        if not topics or (pick < 0.4 and len(topics) < 6):
            name = f"{self.name}-{len(self.facts)}"
            partitions = self.random.randint(1, 5)
            self.ask(("make", name, partitions, "1000000"))
            make_topic(place, name, partitions, {"retention.bytes": "1000000"})
        elif pick < 0.6:
            value = str(self.random.randint(1, 1 << 40))
            self.ask(("set", name, value))
            config = AlterableConfig(name="retention.bytes", config_operation=_SET, value=value)
            resource = AlterConfigsResource(
                resource_type=_TOPIC, resource_name=name, configs=[config]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            assert client.call(request, 1).responses[0].error_code == 0
        elif pick < 0.8:
            count = topics[name][0] + self.random.randint(1, 3)
            self.ask(("grow", name, count))
            topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
            answer = client.call(CreatePartitionsRequest(topics=[topic], timeout_ms=30_000), 3)
            assert answer.results[0].error_code == 0, answer
        else:
            self.ask(("delete", name))
            deleted = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
            assert client.call(deleted, 5).responses[0].error_code == 0
        self.told()

    @staticmethod
    def wanted(facts: Sequence[Fact]) -> Any:
        """Partitions and retention.bytes of each topic."""
        topics: dict[str, tuple[int, str]] = {}
        for kind, name, *more in facts:
            if kind == "make":
                topics[name] = more[0], more[1]
            elif kind == "set":
                topics[name] = topics[name][0], more[0]
            elif kind == "grow":
                topics[name] = more[0], topics[name][1]
            else:
                del topics[name]
        return topics

    @classmethod
    def shown(cls, place: Place, name: str) -> Any:
        client = place.client()
        answer = client.call(MetadataRequest(topics=None), 9)
        topics = {}
        for topic in answer.topics:
            if topic.name.startswith(f"{name}-"):
                resource = DescribeConfigsResource(
                    resource_type=_TOPIC,
                    resource_name=topic.name,
                    configuration_keys=["retention.bytes"],
                )
                told = client.call(DescribeConfigsRequest(resources=[resource]), 4)
                value = told.results[0].configs[0].value
                topics[topic.name] = len(topic.partitions), value
        return topics


CLIENTS: Final[dict[str, type[Client]]] = {
    "writer": Writer,
    "writer-2": Writer,
    "keyed": Keyed,
    "committer": Committer,
    "transactor": Transactor,
    "admin": Admin,
}
