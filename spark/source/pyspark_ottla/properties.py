"""`kafka.*` options: from the names of Java's clients to librdkafka's.

Most names are the same in both. Those that differ are translated, those that mean nothing to this
source are refused with the reason, and any other goes to librdkafka, which refuses what it does
not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark_ottla.errors import BadOption
from pyspark_ottla.options import WRITE, Options

_NO_GROUP: Final = "this source joins no group: leave it out (commitGroupId commits to one)"
_BYTES: Final = "keys and values are bytes here: cast or decode the columns in Spark"
_NO_TRANSACTION: Final = "the sink writes at least once, without transactions: leave it out"
_OURS: Final = "is set by the data source: leave it out"
_JVM: Final = "is a class or a setting of the JVM, and there is none here: leave it out"
_NOT_CREATED: Final = "reading never creates a topic: leave it out"

#: Why a property is refused.
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "is always `error` here: say where to begin with startingOffsets",
    "enable.auto.commit": "the checkpoint keeps the offsets; commitGroupId commits them too",
    "auto.commit.interval.ms": "the checkpoint keeps the offsets; commitGroupId commits them too",
    "enable.auto.offset.store": _OURS,
    "enable.partition.eof": _OURS,
    "delivery.report.only.error": _OURS,
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "partition.assignment.strategy": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
    "allow.auto.create.topics": _NOT_CREATED,
    "exclude.internal.topics": "subscribePattern never takes Kafka's internal topics: leave it out",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "transactional.id": _NO_TRANSACTION,
    "transaction.timeout.ms": _NO_TRANSACTION,
    "partitioner.class": "is a JVM class: use kafka.partitioner (the default is murmur2_random,"
    " which puts keys where Java's producer puts them)",
    **dict.fromkeys(
        [
            "interceptor.classes", "metric.reporters", "metrics.num.samples",
            "metrics.recording.level", "metrics.sample.window.ms", "auto.include.jmx.reporter",
            "security.providers", "sasl.client.callback.handler.class",
            "sasl.login.callback.handler.class", "sasl.login.class", "ssl.engine.factory.class",
            "ssl.provider", "ssl.protocol", "ssl.enabled.protocols", "ssl.keymanager.algorithm",
            "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
            "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
        ],
        _JVM,
    ),
}  # fmt: skip

#: Java's name -> librdkafka's, the value as it is.
_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}

#: librdkafka warns when a client that does not consume is given one of these.
_CONSUMER_ONLY: Final = frozenset(
    {
        "group.id", "isolation.level", "check.crcs", "client.rack", "fetch.wait.max.ms",
        "fetch.queue.backoff.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes",
        "fetch.max.bytes", "fetch.min.bytes", "fetch.error.backoff.ms", "queued.min.messages",
        "queued.max.messages.kbytes", "enable.partition.eof", "enable.auto.commit",
        "enable.auto.offset.store", "auto.offset.reset", "coordinator.query.interval.ms",
    }
)  # fmt: skip

#: librdkafka tells each disconnection of an idle client on standard error; from 5 up it does not.
_QUIET: Final = {"log_level": "5"}

_LOGIN: Final = re.compile(r"\s*([\w.]+)\s+required\b(.*);\s*", re.DOTALL)
_LOGIN_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|(\S+))""")


@dataclass(frozen=True)
class Settings:
    """librdkafka's properties, and those of Java's clients that this source honours itself."""

    client: dict[str, str] = field(default_factory=dict)
    #: default.api.timeout.ms: how long the driver waits for an answer, in seconds.
    api_timeout: float = 60.0
    #: max.poll.records: how many records are taken from the client at once.
    chunk: int = 2000
    #: max.block.ms: how long a write waits for room in the client, in seconds.
    block_timeout: float = 60.0

    @property
    def isolation_level(self) -> str:
        return self.client.get("isolation.level", "read_uncommitted")

    def shared(self) -> dict[str, str]:
        """What any kind of client takes."""
        given = {name: value for name, value in self.client.items() if name not in _CONSUMER_ONLY}
        return _QUIET | given


def translate(options: Options) -> Settings:
    """The client's settings. Raises BadOption for a property that is refused."""
    client: dict[str, str] = {}
    own: dict[str, float] = {}
    writes = options.use == WRITE
    for name, value in options.kafka.items():
        if name in REFUSED:
            raise BadOption(f"kafka.{name}", REFUSED[name])
        if name in ("default.api.timeout.ms", "max.poll.records", "max.block.ms"):
            own[name] = _positive(name, value)
        elif name in _RENAMED:
            client[_RENAMED[name]] = value
        elif name == "request.timeout.ms" and not writes:
            client["socket.timeout.ms"] = value
        elif name == "buffer.memory":
            client["queue.buffering.max.kbytes"] = str(max(1, _positive(name, value) // 1024))
        elif name == "ssl.endpoint.identification.algorithm":
            client[name] = value.strip() or "none"
        elif name == "isolation.level":
            client[name] = _one_of(name, value, "read_uncommitted", "read_committed")
        elif name == "sasl.jaas.config":
            client.update(_login(value))
        elif not name.startswith(("ssl.truststore.", "ssl.keystore.")):
            client[name] = value
    client.update(_stores(options.kafka))
    if writes and "max.poll.records" in own:
        raise BadOption("kafka.max.poll.records", "is for reads: leave it out")
    if not writes and "max.block.ms" in own:
        raise BadOption("kafka.max.block.ms", "is for writes: leave it out")
    return Settings(
        client,
        own.get("default.api.timeout.ms", 60_000) / 1000,
        int(own.get("max.poll.records", 2000)),
        own.get("max.block.ms", 60_000) / 1000,
    )


def consumer_config(settings: Settings, group_id: str) -> dict[str, str]:
    """Of a client that reads ranges: it joins no group and never moves by itself. Java's defaults
    where librdkafka has others that show."""
    return {
        **_QUIET,
        "isolation.level": "read_uncommitted",
        "check.crcs": "true",
        # A range whose end lies in a gap at the end of the log waits for one empty answer.
        "fetch.wait.max.ms": "100",
        # A full queue is looked at again soon: a range is read as fast as it goes.
        "fetch.queue.backoff.ms": "2",
        **settings.client,
        "group.id": settings.client.get("group.id", group_id),
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
    }


def producer_config(settings: Settings) -> dict[str, str | bool]:
    """Java's defaults: what is acknowledged is on all replicas, once; keys go where Java's
    producer puts them."""
    given = settings.client
    wrong = sorted(_CONSUMER_ONLY & given.keys())
    if wrong:
        raise BadOption(f"kafka.{wrong[0]}", "is for reads: leave it out")
    defaults = {
        "acks": "all",
        "linger.ms": "5",
        "delivery.timeout.ms": "120000",
        "partitioner": "murmur2_random",
    }
    if given.get("acks", "all") in ("all", "-1"):
        defaults["enable.idempotence"] = "true"
    return {**_QUIET, **defaults, **given, "delivery.report.only.error": True}


def _positive(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise BadOption(f"kafka.{name}", f"{value!r} is no positive whole number")
    return number


def _one_of(name: str, value: str, *allowed: str) -> str:
    found = value.strip().lower()
    if found not in allowed:
        raise BadOption(f"kafka.{name}", f"{value!r} is none of {', '.join(allowed)}")
    return found


def _login(text: str) -> dict[str, str]:
    """User and password of a JAAS line, such as
    `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";`
    """
    match = _LOGIN.fullmatch(text)
    module = match[1].rsplit(".", 1)[-1] if match else ""
    if match is None or module not in ("PlainLoginModule", "ScramLoginModule"):
        raise BadOption(
            "kafka.sasl.jaas.config",
            "is understood for PlainLoginModule and ScramLoginModule; for other mechanisms give"
            " librdkafka's own settings, such as kafka.sasl.oauthbearer.*",
        )
    found = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for name, quoted, bare in _LOGIN_OPTION.findall(match[2])
    }
    if not {"username", "password"} <= found.keys():
        raise BadOption("kafka.sasl.jaas.config", "names no username and password")
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _stores(given: Mapping[str, str]) -> dict[str, str]:
    """Where keys and certificates are: PEM and PKCS12 work without a JVM, JKS does not."""
    client: dict[str, str] = {}
    trust = given.get("ssl.truststore.location")
    if trust is not None:
        if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise BadOption(
                "kafka.ssl.truststore.type",
                "only PEM can be read without a JVM: `keytool -exportcert -rfc -keystore STORE"
                " -alias NAME` prints a certificate as PEM; then set this option to PEM",
            )
        client["ssl.ca.location"] = trust
    key = given.get("ssl.keystore.location")
    if key is not None:
        kind = given.get("ssl.keystore.type", "JKS").upper()
        if kind == "PEM":
            client["ssl.certificate.location"] = client["ssl.key.location"] = key
        elif kind == "PKCS12":
            client["ssl.keystore.location"] = key
        else:
            raise BadOption(
                "kafka.ssl.keystore.type",
                "only PEM and PKCS12 can be read without a JVM: `keytool -importkeystore"
                " -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12` converts",
            )
    password = given.get("ssl.keystore.password")
    if password is not None:
        client["ssl.keystore.password"] = password
    return client
