"""The lines of the broker's log: all in one format, on standard error.

plain: `2026-11-21T23:29:58.412+01:00 WARNING ottla.broker.connections: the message`. The lines of a
traceback follow, indented. json: one object a line, with the fields time, level, logger, message
and, where there is a traceback, exception.

A message may hold names that clients have chosen. Characters that could end a line or steer a
terminal are escaped here, once for all of them: a line that does not begin with a blank is ours.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import datetime
from typing import Final

from ottla.broker.loggers import escaped

#: The logger of what is said about the broker as a whole.
OTTLA: Final = "ottla"


class Plain(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {escaped(record.getMessage())}"
        traceback = _traceback(self, record)
        return "\n    ".join([line, *map(escaped, traceback.splitlines())])


class Json(logging.Formatter):
    """For programs."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        traceback = _traceback(self, record)
        if traceback:
            fields["exception"] = traceback
        return json.dumps(fields)  # ASCII: also of half a surrogate pair


FORMATS: Final[dict[str, type[logging.Formatter]]] = {"plain": Plain, "json": Json}


def begin(level: str, form: str) -> None:
    """Send all log lines, warnings and exceptions of threads to standard error, formatted.

    level: as logging has it, in any case. form: a key of FORMATS. Where the process has handlers
    already, the log is theirs.
    """
    if logging.root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    logging.root.addHandler(handler)
    logging.root.setLevel(level.upper())
    logging.captureWarnings(True)
    threading.excepthook = _thread_failed


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit and args.exc_value is not None:
        name = args.thread.name if args.thread else "?"
        logging.getLogger(OTTLA).error("thread %s failed", name, exc_info=args.exc_value)


def _time(record: logging.LogRecord) -> str:
    """ISO 8601 to the millisecond, local, with its distance from UTC."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
