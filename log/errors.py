"""What can go wrong with the log. Each text names the file or setting and the way out.

The broker turns any LogError into KAFKA_STORAGE_ERROR in one place; protocol errors (a bad
sequence, an offset out of range) are KafkaError and come from wire.
"""

from __future__ import annotations

from pathlib import Path


class LogError(Exception):
    """Base of everything the log raises about its files."""


class FolderLocked(LogError):
    """Another process has the folder open."""


class NewerFormat(LogError):
    """The folder was written by a later version of Ottla."""


class NotALog(LogError):
    """The folder holds something, but no log of ours."""


class UncleanFolder(LogError):
    """Open under durability=os when the machine went down: what is on disk may be torn."""


class Damaged(LogError):
    """Bytes of `path` are not what was written; everything else stays readable."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


class MissingRecords(LogError):
    """Offsets `first` up to `last` of a partition lay in a file that was set aside."""

    def __init__(self, path: Path, partition: int, first: int, last: int) -> None:
        super().__init__(
            f"{path} is damaged and set aside; it held offsets {first} to {last} of partition"
            f" {partition} (internal number). `ottla repair` brings back what can be read of it"
        )
        self.path = path
        self.first = first
        self.last = last


class WriteFailed(LogError):
    """A commit did not reach the disk; what was queued behind it failed with it."""


class DiskFull(WriteFailed):
    """Too little room for the commit and the reserve; writes work again when there is room."""

    def __init__(self, path: Path, free: int, needed: int) -> None:
        #: What is missing, without the remedy.
        self.what = f"no room in {path}: {free} bytes free, {needed} needed (with the reserve)"
        super().__init__(
            f"{self.what}. Free some space or lower retention; writing continues by itself then"
        )
        self.free = free
        self.needed = needed


class Closed(LogError):
    """The store is closed."""
