"""What goes into the group machine beside the request, and what comes out of it.

A Call says who asks: a ticket to answer by, the version, the client, fresh random text. An Outcome
is the rows to commit and the answers that may leave once they are committed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from ottla.wire.schema import Message

GROUPS: Final = "groups"
"""Table of groups: u32 number -> GroupRow (rows.py)."""
OFFSETS: Final = "offsets"
"""Table of committed offsets: u32 group number, u32 partition id -> Offset (rows.py)."""
PENDING_OFFSETS: Final = "pending offsets"
"""Table of offsets that open transactions will commit: u32 group number, i64 producer id, u32
partition id -> PendingOffset (rows.py)."""

Ticket: TypeAlias = object
"""Names a request that waits for its answer; opaque to the machine, which only hands it back."""

Record: TypeAlias = tuple[str, bytes, bytes | None]
"""Table, key and new value; None deletes. Rows are absolute: writing one twice is harmless."""


@dataclass(slots=True)
class Call:
    """The request's surroundings. `unique` is random text, used only by a JoinGroup without an id.
    `client_id` is "" when the client's is null, `client_host` is as Kafka shows it: "/1.2.3.4".
    """

    ticket: Ticket
    version: int
    client_id: str = ""
    client_host: str = ""
    unique: str = ""
    group_operations: int = 0
    """What the client may do with groups, as bits by AclOperation, should it ask (KIP-430)."""


@dataclass(slots=True)
class Rebalanced:
    """One rebalance that came to its end: a stable generation, or an empty group."""

    group_id: str
    generation_id: int
    reason: str
    members: int
    took_ms: int
    """From the request or timeout that began it to the leader's assignment."""


@dataclass(slots=True)
class Outcome:
    """What one request or one deadline did."""

    group_ids: tuple[str, ...]
    """The groups it is about: whoever asks about them next sees the records, once committed."""
    records: list[Record] = field(default_factory=list)
    """One atomic change. When it cannot be committed the machine must be loaded anew."""
    replies: list[tuple[Ticket, Message]] = field(default_factory=list)
    """To be sent after the commit of `records` and of all earlier ones of these groups."""
    rebalances: list[Rebalanced] = field(default_factory=list)
    """For the log file and the metrics."""

    def reply(self, call: Call, response: Message) -> None:
        self.replies.append((call.ticket, response))


class Rows(Protocol):
    """What is committed, as the machine reads it."""

    def get(self, table: str, key: bytes) -> bytes | None: ...

    def scan(self, table: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All rows whose key starts with `prefix`, in key order."""
        ...

    def page(
        self, table: str, prefix: bytes, after: bytes, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """The same in parts: about `limit` rows behind key `after`, and the key to go on after,
        None at the end."""
        ...

    def settled(self, group_id: str) -> bool:
        """Whether everything that the machine gave out for this group is committed."""
        ...


@dataclass(slots=True, frozen=True)
class Place:
    """Where a partition id belongs: the topic's name and id, the partition's index in it."""

    topic: str
    topic_id: bytes
    index: int


class Catalog(Protocol):
    """The topics that exist, as far as offsets need them."""

    def by_name(self, topic: str) -> tuple[bytes, Sequence[int]] | None:
        """Topic id and partition ids by index; None when there is no such topic."""
        ...

    def by_id(self, topic_id: bytes) -> tuple[str, Sequence[int]] | None:
        """Topic name and partition ids by index; None when there is no such topic."""
        ...

    def place(self, partition_id: int) -> Place | None:
        """None when the partition's topic has been deleted."""
        ...
