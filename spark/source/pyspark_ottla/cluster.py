"""What the driver asks the brokers: which partitions there are, and where they begin and end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pyspark_ottla.errors import INSTALL, BadOption, BrokerError, MissingPackage, UnknownTopic
from pyspark_ottla.offsets import EARLIEST, LATEST, Offsets, Partition, assigned
from pyspark_ottla.options import Options, Strategy
from pyspark_ottla.properties import Settings

#: Kafka's own topics, which a pattern never means.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_UNKNOWN_PROPERTY: Final = re.compile(r'"([^"]+)"')


def kafka() -> Any:
    """The package confluent_kafka. Raises MissingPackage."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingPackage(
            "format ottla needs the package confluent-kafka on the driver and on every executor:"
            f" {INSTALL}"
        ) from error
    return confluent_kafka


def make_client(build: Callable[[Any], Any], config: Mapping[str, object]) -> Any:
    """A client of librdkafka. Raises BadOption for what it does not take."""
    try:
        return build(dict(config))
    except kafka().KafkaException as error:
        text = error.args[0].str() if hasattr(error.args[0], "str") else str(error)
        name = _UNKNOWN_PROPERTY.search(text)
        raise BadOption(f"kafka.{name[1]}" if name else "kafka.*", text) from None


class Topic(NamedTuple):
    """A topic as the brokers know it."""

    id: str
    partitions: list[int]


class Cluster:
    """The brokers, asked by one admin client that is made when it is first needed."""

    def __init__(self, options: Options, settings: Settings) -> None:
        self._settings = settings
        #: fetchOffset.numRetries and fetchOffset.retryIntervalMs, as in the connector.
        self._retries = options.number("fetchOffset.numRetries", 3, least=0) or 0
        self._pause = (options.number("fetchOffset.retryIntervalMs", 10, least=0) or 0) / 1000
        self._admin: Any = None
        #: Each topic's id when it was first described.
        self._ids: dict[str, str] = {}
        #: Topics that have had another id since: they were deleted and made anew.
        self.made_anew: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Spark copies readers to executors; connections stay behind."""
        return {**self.__dict__, "_admin": None}

    def close(self) -> None:
        """Let the connections go; a later question makes new ones."""
        self._admin = None

    # -------------------------------------------------------------------------------- partitions

    def partitions(self, strategy: Strategy) -> list[Partition]:
        """The partitions that the option names, sorted. Raises UnknownTopic, BadOption."""
        if strategy.option == "assign":
            wanted = assigned(strategy.text)
            topics = self.topics({partition.topic for partition in wanted})
            for partition in wanted:
                if partition.number not in topics[partition.topic].partitions:
                    raise UnknownTopic(f"assign: there is no partition {partition}")
            return wanted
        if strategy.option == "subscribe":
            names = {name.strip() for name in strategy.text.split(",") if name.strip()}
            if not names:
                raise BadOption("subscribe", "names no topic")
        else:
            names = self._matching(strategy.text)
        return sorted(
            Partition(name, number)
            for name, topic in (self.topics(names) if names else {}).items()
            for number in topic.partitions
        )

    def _matching(self, text: str) -> set[str]:
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise BadOption(
                "subscribePattern", f"{text!r} is no regular expression: {error}"
            ) from None
        names = self._ask(
            "list the topics", lambda admin, seconds: admin.list_topics(timeout=seconds)
        ).topics
        return {name for name in names if pattern.fullmatch(name)} - INTERNAL_TOPICS

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Id and partitions of each topic. Raises UnknownTopic."""
        wanted = sorted(names)
        collection = kafka().TopicCollection(wanted)

        def describe(admin: Any, seconds: float) -> dict[str, Topic]:
            found = admin.describe_topics(collection, request_timeout=seconds)
            return {name: _topic(future.result()) for name, future in found.items()}

        found: dict[str, Topic] = self._ask(f"describe the topics {', '.join(wanted)}", describe)
        self.made_anew |= {
            name
            for name, topic in found.items()
            if self._ids.setdefault(name, topic.id) != topic.id
        }
        return found

    def cluster_id(self) -> str:
        """The cluster's id."""
        found = self._ask(
            "describe the cluster",
            lambda admin, seconds: admin.describe_cluster(request_timeout=seconds).result(),
        )
        return str(found.cluster_id)

    # ----------------------------------------------------------------------------------- offsets

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        """The first offset there is, of each partition."""
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        """The offset behind the last record; under read_committed, behind the last one of which
        it is known whether it is committed."""
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def offsets(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Offsets in place of EARLIEST and LATEST; others stay as they are."""
        spec = kafka().admin.OffsetSpec
        specs = {EARLIEST: spec.earliest(), LATEST: spec.latest()}
        asked = {p: specs[value] for p, value in wanted.items() if value in specs}
        return {**wanted, **self._list_offsets(asked)}

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """The first offset whose record is from that time (ms) on or later; None: there is none."""
        spec = kafka().admin.OffsetSpec.for_timestamp
        found = self._list_offsets({p: spec(time_ms) for p, time_ms in times.items()})
        return {
            partition: found[partition] if found[partition] >= 0 else None for partition in times
        }

    def _list_offsets(self, specs: Mapping[Partition, Any]) -> Offsets:
        if not specs:
            return {}
        client = kafka()
        level = client.IsolationLevel[self._settings.isolation_level.upper()]
        request = {client.TopicPartition(*partition): spec for partition, spec in specs.items()}

        def ask(admin: Any, seconds: float) -> Offsets:
            found = admin.list_offsets(request, isolation_level=level, request_timeout=seconds)
            return {
                Partition(asked.topic, asked.partition): future.result().offset
                for asked, future in found.items()
            }

        answer: Offsets = self._ask("list offsets", ask)
        return answer

    # ------------------------------------------------------------------------------------ asking

    def _ask(self, what: str, ask: Callable[[Any, float], Any]) -> Any:
        """The answer, asked for again while the brokers are away (default.api.timeout.ms), or
        when they refuse for a reason that passes (fetchOffset.numRetries). Raises BrokerError."""
        client = kafka()
        deadline = time.monotonic() + self._settings.api_timeout
        refused = 0
        while True:
            if self._admin is None:
                self._admin = make_client(client.admin.AdminClient, self._settings.shared())
            left = max(deadline - time.monotonic(), 0.1)
            try:
                return ask(self._admin, left)
            except client.KafkaException as raised:
                error = raised.args[0]
            away = error.code() in _away(client)
            refused += not away
            if error.code() == client.KafkaError.UNKNOWN_TOPIC_OR_PART and refused > self._retries:
                raise UnknownTopic(f"cannot {what}: {error.str()}")
            if refused > self._retries or not (away or _passes(client, error)):
                raise BrokerError(f"cannot {what}: {error.str()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"cannot {what}: no answer from {self._settings.client['bootstrap.servers']}"
                    f" within kafka.default.api.timeout.ms ({error.str()})"
                )
            time.sleep(max(self._pause, 0.1) if away else self._pause)


def _topic(found: Any) -> Topic:
    return Topic(str(found.topic_id), sorted(part.id for part in found.partitions))


def _away(client: Any) -> set[int]:
    error = client.KafkaError
    return {error._TRANSPORT, error._TIMED_OUT, error._ALL_BROKERS_DOWN, error._RESOLVE}


def _passes(client: Any, error: Any) -> bool:
    kinds = client.KafkaError
    return bool(error.retriable()) or error.code() in {
        kinds.UNKNOWN_TOPIC_OR_PART,  # a topic that was made just now
        kinds.LEADER_NOT_AVAILABLE,
        kinds.NOT_LEADER_FOR_PARTITION,
        kinds.REQUEST_TIMED_OUT,
        kinds._UNKNOWN_PARTITION,
    }
