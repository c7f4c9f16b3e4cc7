"""What can be wrong with a command is said before Spark starts, which takes seconds."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError
from ottla.spark.records import key_values

# A broker that restarts is back by then; an address that is wrong should not cost a minute and a
# half, which is what a job that is under way waits.
FIRST_ANSWER_S = 20.0
NAMED = 10  # topics that an error lists

Options = Mapping[str, tuple[str, ...]]
# By job, the options that name ...
READ_FOLDERS: Options = {
    "compact": ("archive",),
    "replay": ("archive",),
    "backfill": ("archive",),
    "audit": ("archive",),
}
WRITTEN_FOLDERS: Options = {
    "archive": ("archive",),
    "compact": ("archive",),
    "replay": ("state",),
    "backfill": ("checkpoint", "to_folder"),
    "flights": ("folder",),
}
WRITTEN_FILES: Options = {"audit": ("report",), "profile": ("report",)}
TOPICS = {"archive": "topic", "backfill": "topic", "audit": "topic", "profile": "topic"}


def check(args: argparse.Namespace) -> None:
    """Folders, files, broker and topics of a command. Raises JobError that names the option."""
    settings: dict[str, dict[str, str]] = {}
    for option in ("kafka", "conf"):
        settings[option] = key_values(getattr(args, option, ()), f"--{option}")
    for option, path in _local(args, READ_FOLDERS):
        _readable(option, path)
    for option, path in _local(args, WRITTEN_FOLDERS):
        _writable(option, path)
    for option, path in _local(args, WRITTEN_FILES):
        if path.is_dir():
            raise JobError(f"{option} {path}: is a folder; name a file in it")
        _writable(option, path.absolute().parent, made=False)
    if not hasattr(args, "bootstrap_server"):
        return
    names = getattr(args, TOPICS.get(args.job, ""), None) or []
    topics = [names] if isinstance(names, str) else names
    _there("--bootstrap-server", args.bootstrap_server, settings["kafka"], "--topic", topics)
    if other := getattr(args, "other_topic", None):
        place = args.other_bootstrap_server or args.bootstrap_server
        option = "--other-bootstrap-server" if args.other_bootstrap_server else "--bootstrap-server"
        _there(option, place, settings["kafka"], "--other-topic", [other])


def _local(args: argparse.Namespace, table: Options) -> list[tuple[str, Path]]:
    """Options of this job that name a path of a file system, with it."""
    given: list[tuple[str, Any]] = [(name, getattr(args, name)) for name in table.get(args.job, ())]
    return [
        (f"--{name.replace('_', '-')}", Path(text.removeprefix("file://")))
        for name, text in given
        if text is not None and "://" not in text.removeprefix("file://")
    ]


def _readable(option: str, path: Path) -> None:
    if not path.exists():
        raise JobError(f"{option} {path}: no such folder; `ottla-spark archive` makes one")
    if not path.is_dir():
        raise JobError(f"{option} {path}: is a file, not the folder of an archive")
    if not os.access(path, os.R_OK | os.X_OK):
        raise JobError(f"{option} {path}: may not be read by this user")


def _writable(option: str, path: Path, *, made: bool = True) -> None:
    """A folder that is there, or (`made`) that can be made."""
    there = path.absolute()
    while made and not there.exists():
        there = there.parent
    if not there.exists():
        raise JobError(f"{option}: there is no folder {there}; make it first")
    if not there.is_dir():
        raise JobError(f"{option} {path}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise JobError(f"{option} {path}: {there} may not be written by this user")


def _there(
    option: str, bootstrap: str, settings: dict[str, str], topic_option: str, topics: list[str]
) -> None:
    cluster = Cluster(bootstrap, settings, patience=FIRST_ANSWER_S)
    try:
        known = cluster.topic_names()
    except JobError as error:
        reason = str(error).rsplit(": ", 1)[-1]
        raise JobError(
            f"{option} {bootstrap}: no broker answers there ({reason}). Is it running (`ottla "
            "serve`), is the address right, does it want --kafka security.protocol=...?"
        ) from error
    for topic in topics:
        if topic not in known:
            own = [name for name in known if not name.startswith("__")]
            close = get_close_matches(topic, own, NAMED, cutoff=0.0)  # the closest first
            some = ", ".join(close) + (", ..." if len(own) > NAMED else "")
            raise JobError(
                f"{topic_option} {topic}: no such topic at {bootstrap}; it has: {some or 'none'}"
            )
