"""Words for what the system says of a data folder: which path, and which setting to change."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.broker.cli_errors import ClientError

_REMEDIES: Final = {
    errno.EEXIST: "is not a folder",
    errno.ENOTDIR: "is not a folder",
    errno.EACCES: "this user may not use it",
    errno.EPERM: "this user may not use it",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.ENAMETOOLONG: "the name is too long",
}


class FolderUnusable(ClientError):
    """The system refuses what a command does with a folder; the text is one line."""


@contextmanager
def named(folder: Path, setting: str = "") -> Iterator[None]:
    """Raises FolderUnusable where what is done inside ends in an OSError."""
    try:
        yield
    except OSError as error:
        raise unusable(folder, error, setting) from None


def unusable(folder: Path, error: OSError, setting: str = "") -> FolderUnusable:
    """The error in words. `setting`: how this folder was named, for the remedy."""
    path = folder if error.filename is None else error.filename
    said = error.strerror or str(error)
    words = _REMEDIES.get(error.errno or 0)
    if error.errno == errno.ENOENT:
        words = "it cannot be made there" if setting else "there is no such folder or file"
    text = f"{path}: {words} ({said})" if words else f"{path}: {said}"
    if setting:
        text += f": set {setting} to a folder that this user may write"
    return FolderUnusable(text)
