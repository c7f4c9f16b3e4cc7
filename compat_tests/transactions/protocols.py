"""The versions in which clients of different ages speak of transactions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Protocol:
    """The versions in which a client speaks. Old and new are KIP-890's transaction version 1 and 2:
    the new one adds partitions by writing to them and bumps the epoch at every end."""

    name: str
    init: int
    add: int
    produce: int
    add_offsets: int
    offsets: int
    end: int

    @property
    def adds(self) -> bool:
        """Whether a partition must be added before it is written to."""
        return self.end < 5


OLDEST = Protocol("oldest", init=0, add=0, produce=3, add_offsets=0, offsets=0, end=0)
OLD = Protocol("old", init=4, add=3, produce=9, add_offsets=3, offsets=3, end=3)
BETWEEN = Protocol("between", init=5, add=5, produce=11, add_offsets=4, offsets=4, end=4)
"""Knows TRANSACTION_ABORTABLE, and not yet the new protocol."""
NEW = Protocol("new", init=5, add=5, produce=12, add_offsets=4, offsets=5, end=5)
