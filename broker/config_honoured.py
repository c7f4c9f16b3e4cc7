"""Which of Kafka's configuration keys Ottla acts on, with one line each on what they do here.

A key in none of these tables is known, described with Kafka's default, and without effect: a file
that sets it is told so once. A request that changes it is refused, unless it is in `config_kept`.
"""

from __future__ import annotations

from typing import NamedTuple


class Honoured(NamedTuple):
    """`doc`: what the key does, for DescribeConfigs and docs/configuration.md. `default`: ours
    where it is not Kafka's. `dynamic`: IncrementalAlterConfigs changes it at once."""

    doc: str
    default: str | None = None
    dynamic: bool = False


_D = "Default of the topic setting "

BROKER: dict[str, Honoured] = {
    # Where it listens
    "listeners": Honoured(
        "Where the broker listens: NAME://host:port, with commas. No host: every interface.",
        default="PLAINTEXT://127.0.0.1:9092",
    ),
    "advertised.listeners": Honoured(
        "The addresses that clients are told, by listener name; unset: those of listeners."
    ),
    "listener.security.protocol.map": Honoured(
        "Which protocol a listener name speaks; only PLAINTEXT is served so far."
    ),
    "controller.listener.names": Honoured("Listeners of these names are accepted and not opened."),
    "process.roles": Honoured("Must hold broker where it is set; there is no controller to run."),
    "socket.listen.backlog.size": Honoured("Connections the system may hold before we accept."),
    "socket.receive.buffer.bytes": Honoured(
        "The system's receive buffer of a connection; -1: the system chooses, and adapts it.",
        default="-1",
    ),
    "socket.send.buffer.bytes": Honoured(
        "The system's send buffer of a connection; -1: the system chooses, and adapts it.",
        default="-1",
    ),
    "socket.request.max.bytes": Honoured("Largest request; a larger one ends its connection."),
    "connections.max.idle.ms": Honoured("Silent connections are closed after this time."),
    "max.connections": Honoured(
        "Most connections at once; a further one is closed, and so is one for which there is no"
        " file descriptor beside those kept for the log (an eighth of all, at least 64).",
        dynamic=True,
    ),
    "max.connections.per.ip": Honoured(
        "Most connections from one address; a further one is closed.", dynamic=True
    ),
    "ottla.connection.send.max.bytes": Honoured(
        "Bytes that may wait to be sent to one connection before it is no longer read from."
    ),
    "ottla.fetch.session.cache.max.partitions": Honoured(
        "Partitions that are remembered, in all fetch sessions together."
    ),
    "ottla.request.max.bytes": Honoured(
        "Largest request that is not a Produce; a larger one ends its connection."
    ),
    "ottla.send.max.bytes": Honoured(
        "Bytes that may wait to be sent over all connections; beyond it, Fetch answers one batch."
    ),
    "ottla.connection.parked.max.requests": Honoured(
        "Requests of one connection that may be read ahead of their answers."
    ),
    "queued.max.request.bytes": Honoured(
        "Bytes of requests that may wait for their answer, over all connections, before those that"
        " own them are no longer read from; -1: no bound.",
        default=str(64 << 20),
    ),
    # Who it is
    "node.id": Honoured("This node's number, kept in the data folder.", default="1"),
    "broker.id": Honoured("Older name of node.id.", default="1"),
    "broker.rack": Honoured("Told to clients as this node's rack."),
    "ottla.cluster.id": Honoured(
        "The cluster's id, kept in the data folder; made up when a folder is first used."
    ),
    # Where and how safely it keeps
    "log.dirs": Honoured("The data folder; one only.", default="./ottla-data"),
    "log.dir": Honoured("The data folder where log.dirs is not set.", default="./ottla-data"),
    "ottla.durability": Honoured(
        "fsync: an acknowledged record is on disk. os: it survives the process, not the machine."
    ),
    "ottla.file.mode": Honoured(
        "Permissions of the files made in the data folder, in octal; folders can be entered by"
        " those who may read. Another process that reads the data folder needs the group's."
    ),
    "log.flush.interval.messages": Honoured(_D + "flush.messages.", dynamic=True),
    "log.flush.interval.ms": Honoured(_D + "flush.ms.", dynamic=True),
    "log.retention.check.interval.ms": Honoured(
        "How often the broker checks for records past their retention."
    ),
    # Topics
    "num.partitions": Honoured("Partitions of a topic that is made without a number."),
    "default.replication.factor": Honoured(
        "Replicas of a topic that is made without a number; this one node can keep one."
    ),
    "auto.create.topics.enable": Honoured("Make a topic when a client that wishes so asks for it."),
    "delete.topic.enable": Honoured("Whether topics may be deleted."),
    "max.request.partition.size.limit": Honoured(
        "Most partitions in one answer to DescribeTopicPartitions."
    ),
    "compression.type": Honoured(_D + "compression.type.", dynamic=True),
    "compression.gzip.level": Honoured(_D + "compression.gzip.level.", dynamic=True),
    "compression.lz4.level": Honoured(_D + "compression.lz4.level.", dynamic=True),
    "compression.zstd.level": Honoured(_D + "compression.zstd.level.", dynamic=True),
    "log.cleaner.backoff.ms": Honoured(
        "How often the broker checks for topics that need compaction.", dynamic=True
    ),
    "log.cleaner.dedupe.buffer.size": Honoured(
        "Bytes that the keys of one compaction may take, at 200 a key; with more it takes several.",
        dynamic=True,
    ),
    "log.cleaner.enable": Honoured("Whether topics with cleanup.policy=compact are compacted."),
    "log.cleaner.delete.retention.ms": Honoured(_D + "delete.retention.ms.", dynamic=True),
    "log.cleaner.max.compaction.lag.ms": Honoured(_D + "max.compaction.lag.ms.", dynamic=True),
    "log.cleaner.min.cleanable.ratio": Honoured(_D + "min.cleanable.dirty.ratio.", dynamic=True),
    "log.cleaner.min.compaction.lag.ms": Honoured(_D + "min.compaction.lag.ms.", dynamic=True),
    "log.cleanup.policy": Honoured(_D + "cleanup.policy.", dynamic=True),
    "log.message.timestamp.after.max.ms": Honoured(
        _D + "message.timestamp.after.max.ms.", dynamic=True
    ),
    "log.message.timestamp.before.max.ms": Honoured(
        _D + "message.timestamp.before.max.ms.", dynamic=True
    ),
    "log.message.timestamp.type": Honoured(_D + "message.timestamp.type.", dynamic=True),
    "log.retention.bytes": Honoured(_D + "retention.bytes.", dynamic=True),
    "log.retention.hours": Honoured(_D + "retention.ms, in hours; the coarsest of three."),
    "log.retention.minutes": Honoured(_D + "retention.ms, in minutes; wins over hours."),
    "log.retention.ms": Honoured(_D + "retention.ms; wins over minutes and hours.", dynamic=True),
    "log.roll.hours": Honoured(_D + "segment.ms, in hours."),
    "log.roll.ms": Honoured(_D + "segment.ms; wins over hours.", dynamic=True),
    "log.segment.bytes": Honoured(_D + "segment.bytes.", dynamic=True),
    "message.max.bytes": Honoured(_D + "max.message.bytes.", dynamic=True),
    "min.insync.replicas": Honoured(
        _D + "min.insync.replicas. It is altered for the cluster, never for one broker.",
        dynamic=True,
    ),
    # Produce and fetch
    "fetch.max.bytes": Honoured(
        "Most bytes of records in one Fetch answer, but for a first batch that is larger. Less than"
        " Kafka's, so that one answer neither holds up nor outweighs the others.",
        default=str(8 << 20),
    ),
    "max.incremental.fetch.session.cache.slots": Honoured("Fetch sessions that are remembered."),
    "producer.id.expiration.ms": Honoured(
        "An idempotent producer's state is forgotten after this time without a batch.",
        dynamic=True,
    ),
    "ottla.producer.states.max.count": Honoured(
        "Idempotent producers that are remembered, one for each partition they write to; about 370"
        " bytes each. Beyond it those that sent longest ago are forgotten as if they had expired."
    ),
    "transaction.max.timeout.ms": Honoured("Longest transaction timeout a producer may ask for."),
    "transaction.partition.verification.enable": Honoured(
        "Refuse a transactional write whose partition was not added to the transaction. Without it"
        " a client that is wrong or late can leave a transaction open that nobody ends.",
        dynamic=True,
    ),
    "transactional.id.expiration.ms": Honoured(
        "A transactional id is forgotten after this time without a transaction."
    ),
    # Groups
    "group.initial.rebalance.delay.ms": Honoured(
        "How long an empty group waits for more members before its first rebalance.", default="0"
    ),
    "group.min.session.timeout.ms": Honoured("Shortest session timeout a member may ask for."),
    "group.max.session.timeout.ms": Honoured("Longest session timeout a member may ask for."),
    "group.max.size": Honoured("Most members of one group."),
    "offset.metadata.max.bytes": Honoured("Longest metadata string of an offset commit."),
    "offsets.retention.minutes": Honoured("Offsets of a group without members live this long."),
    "offsets.retention.check.interval.ms": Honoured(
        "How often the broker checks for expired offsets."
    ),
    "transaction.state.log.num.partitions": Honoured(
        "Partitions of __transaction_state, which is empty."
    ),
    "offsets.topic.num.partitions": Honoured(
        "Partitions of __consumer_offsets, which is empty; DescribeTransactions tells by them, as"
        " Kafka does, whose groups' offsets a transaction will move."
    ),
}

_ONE_NODE = " There is one replica, so more than 1 refuses acks=all with NOT_ENOUGH_REPLICAS."
_SYNCED = (
    " Under ottla.durability=fsync every record is flushed before it is acknowledged, sooner than"
    " any value asks; under os only the default is accepted."
)

TOPIC: dict[str, str] = {
    "cleanup.policy": (
        "delete: retention removes old records. compact: the latest record of each key stays, and"
        " records must have keys. Both may be given."
    ),
    "compression.type": "producer keeps batches as they came; any other value recompresses them.",
    "compression.gzip.level": "Level where compression.type is gzip.",
    "compression.lz4.level": "Level where compression.type is lz4.",
    "compression.zstd.level": "Level where compression.type is zstd.",
    "delete.retention.ms": (
        "Deletion markers (null values) go this long after the compaction that found them first."
    ),
    "flush.messages": "Records after which a flush to disk is forced." + _SYNCED,
    "flush.ms": "Time after which a flush to disk is forced." + _SYNCED,
    "max.compaction.lag.ms": (
        "A compacted topic is checked for older values at least this often, whatever the ratio."
    ),
    "max.message.bytes": "Largest record batch, as sent; a larger one is MESSAGE_TOO_LARGE.",
    "message.timestamp.after.max.ms": "How far a record's timestamp may lie in the future.",
    "message.timestamp.before.max.ms": "How far a record's timestamp may lie in the past.",
    "message.timestamp.type": "CreateTime: the producer's. LogAppendTime: the broker's clock.",
    "min.cleanable.dirty.ratio": (
        "A compacted topic's partition is compacted when more than this part of its bytes, in"
        " closed files, came since the last time."
    ),
    "min.compaction.lag.ms": (
        "A compacted topic's records younger than this, and those behind them, are left as they"
        " are."
    ),
    "min.insync.replicas": "Replicas an acks=all write needs." + _ONE_NODE,
    "retention.bytes": "A partition's oldest records go when it holds more; -1: no bound.",
    "retention.ms": "Records go when they are older; -1: never.",
    "segment.bytes": "Most bytes of one partition in one file of the log.",
    "segment.ms": "Longest time that a file of the log stays open for writing.",
}
