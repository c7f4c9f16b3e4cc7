"""One partition, as the loop sees it."""

from __future__ import annotations


class Partition:
    """Offsets of one partition. `number` is the log's own, never used again for another."""

    __slots__ = ("high_watermark", "leader_epoch", "log_end_offset", "log_start_offset", "number")

    def __init__(self, number: int, log_start_offset: int, end: int, leader_epoch: int) -> None:
        self.number = number
        self.log_start_offset = log_start_offset
        #: The next offset to be given out (admitted).
        self.log_end_offset = end
        #: The end of what is committed.
        self.high_watermark = end
        #: Never falls (a client ignores metadata with an older one).
        self.leader_epoch = leader_epoch

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers may see."""
        return self.high_watermark
