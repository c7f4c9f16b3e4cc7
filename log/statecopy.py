"""A second, flushed copy of the checkpoint, so that losing the first one loses nothing.

Journals go when segments are dropped or rewritten. Before that happens the checkpoint is copied,
unless a copy is new enough: so a copy and the journals that are left always make up the whole
state, and so do the journals alone while there is no copy. `ottla repair` puts it together again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ottla.log.folder import Folder, create_file, sync_folder
from ottla.log.state import State

_NAME: Final = re.compile(r"state-(\d{20})\.copy")


def copies(folder: Path) -> list[tuple[int, Path]]:
    """The copies there are, the newest first: number of the last commit in them, path."""
    found = []
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match:
            found.append((int(match[1]), path))
    return sorted(found, reverse=True)


def missing_journal(folder: Folder, applied: int) -> int | None:
    """The first commit behind `applied` whose journal is in no file, by the files' names; None if
    all are there. Damage is not looked for."""
    active, sealed, _, _ = folder.names()
    tops = [name for name in sealed if not any(other.hides(name) for other in sealed)]
    wanted = applied + 1
    for name in sorted(tops):
        if name.last < wanted:
            continue
        if name.first > wanted or name.generation:
            return wanted
        wanted = name.last + 1
    # Behind an active segment the next begins with its own next commit.
    return wanted if active and active[0] > wanted else None


class StateCopy:
    """Keeps one copy."""

    def __init__(self, folder: Folder, state: State) -> None:
        self._folder = folder
        self._state = state
        newest = next(iter(copies(folder.path)), None)
        #: Number of the last commit in the copy; 0 without one.
        self.applied = 0 if newest is None else newest[0]

    def make(self) -> None:
        """Copy the checkpoint; the older copy goes. On the background thread. Raises LogError,
        OSError."""
        folder = self._folder
        temporary = folder.path / "state.copy.tmp"
        folder.step("copy: write")
        fd = create_file(temporary, os.O_WRONLY | os.O_TRUNC, folder.file_mode)
        try:
            applied = self._state.copy(fd)
            folder.step("copy: flush")
            os.fsync(fd)
        finally:
            os.close(fd)
        folder.step("copy: rename")
        os.replace(temporary, folder.path / f"state-{applied:020d}.copy")
        sync_folder(folder.path)
        self.applied = applied
        folder.step("copy: remove")
        for other, path in copies(folder.path):
            if other != applied:
                path.unlink()
