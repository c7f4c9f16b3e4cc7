"""What the group machine sees of a broker, as dictionaries: committed rows, and topics."""

from collections.abc import Iterator

from ottla.group.outcome import GROUPS, OFFSETS, PENDING_OFFSETS, Outcome, Place


class Disk:
    """The committed rows of the tables, with the queue of what is admitted in front."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {
            GROUPS: {},
            OFFSETS: {},
            PENDING_OFFSETS: {},
        }
        self.queue: list[Outcome] = []

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.tables[table].get(key)

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        rows = self.tables[table]
        return iter([(key, rows[key]) for key in sorted(rows) if key.startswith(prefix)])

    def page(
        self, table: str, prefix: bytes, after: bytes, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        rows = [row for row in self.scan(table, prefix) if row[0] > after]
        return rows[:limit], rows[limit - 1][0] if len(rows) > limit else None

    def settled(self, group_id: str) -> bool:
        return not any(group_id in outcome.group_ids for outcome in self.queue)

    def apply(self, outcome: Outcome) -> None:
        for table, key, value in outcome.records:
            if value is None:
                self.tables[table].pop(key, None)
            else:
                self.tables[table][key] = value


class Topics:
    """Topics "t0", "t1", ... with partition ids 100, 101, ...; 200, 201, ...; and so on."""

    def __init__(self) -> None:
        self.partitions: dict[str, list[int]] = {}
        self.ids: dict[str, bytes] = {}
        self.next_id = 100

    def add(self, name: str, partitions: int) -> None:
        self.partitions[name] = [self.next_id + index for index in range(partitions)]
        self.ids[name] = self.next_id.to_bytes(16)
        self.next_id += 100

    def remove(self, name: str) -> list[int]:
        del self.ids[name]
        return self.partitions.pop(name)

    def by_name(self, topic: str) -> tuple[bytes, list[int]] | None:
        found = self.partitions.get(topic)
        return None if found is None else (self.ids[topic], found)

    def by_id(self, topic_id: bytes) -> tuple[str, list[int]] | None:
        for name, known in self.ids.items():
            if known == topic_id:
                return name, self.partitions[name]
        return None

    def place(self, partition_id: int) -> Place | None:
        for name, partitions in self.partitions.items():
            if partition_id in partitions:
                return Place(name, self.ids[name], partitions.index(partition_id))
        return None
