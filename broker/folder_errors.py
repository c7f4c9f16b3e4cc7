"""Words for what the system says of a data folder: which path, and which setting to change."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

_REMEDIES: Final = {
    errno.EEXIST: "is not a folder",
    errno.ENOTDIR: "is not a folder",
    errno.EACCES: "this user may not use it",
    errno.EPERM: "this user may not use it",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "it cannot be made there",
    errno.ENOSPC: "the disk is full",
    errno.ENAMETOOLONG: "the name is too long",
}


class FolderUnusable(Exception):
    """The system refuses what a command does with a folder; the text is one line."""


def unusable(folder: Path, error: OSError, setting: str = "") -> FolderUnusable:
    """The error in words. `setting`: how this folder was named, for the remedy."""
    path = folder if error.filename is None else error.filename
    said = error.strerror or str(error)
    words = _REMEDIES.get(error.errno or 0)
    text = f"{path}: {words} ({said})" if words else f"{path}: {said}"
    if setting:
        text += f": set {setting} to a folder that this user may write"
    return FolderUnusable(text)
