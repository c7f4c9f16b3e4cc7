"""What a commit changed of the state, when it is read from its file again."""

from __future__ import annotations

from ottla.log.commit import IDEMPOTENT, Commit
from ottla.log.producers import Producers
from ottla.log.state import State
from ottla.log.transactions import read_end
from ottla.wire.records import walk


def replay_commit(
    commit: Commit,
    file: memoryview,
    slots: dict[int, int],
    state: State,
    producers: Producers,
) -> None:
    """Apply a commit that the checkpoint lacks; one that it has is left alone.

    slots: where the commit's values lie in `file`. Raises BadCommit.
    """
    if commit.number <= state.applied:
        return
    if commit.entries:
        state.apply(commit.changes())
    for row in commit.rows:
        if row.flags & IDEMPOTENT:
            start = slots[row.slot] + row.position
            replay_batches(
                row.partition, file[start : start + row.length], commit.time_ms, producers
            )


def replay_batches(partition: int, batches: memoryview, time_ms: int, producers: Producers) -> None:
    """What batches of producers with an id, and markers, say of them. Raises CorruptBatch."""
    for pos, header in walk(batches):
        if header.is_control:
            end = read_end(batches[pos : pos + header.size], header)
            if end is not None:
                producers.replay_end(partition, header, end, time_ms)
        elif header.has_producer:
            producers.replay(partition, header, time_ms)
