"""Files out of Maven's repositories into folders that appear complete or not at all."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = "OTTLA_CACHE"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"

Say = Callable[[str], None]


class JarsUnavailable(Exception):
    """The jars cannot be had; the text says what to install or to set."""


@dataclass(frozen=True)
class Artifact:
    """One file of a Maven repository."""

    group: str
    name: str
    version: str

    def file_name(self, kind: str = "jar") -> str:
        return f"{self.name}-{self.version}.{kind}"


def filled(final: Path, fill: Callable[[Path], None]) -> list[Path]:
    """The jars of a folder; one that is not there is made by `fill`, which gets a folder beside it.

    All or nothing, also when several processes ask at once. Raises what `fill` raises."""
    if not final.exists():
        final.parent.mkdir(parents=True, exist_ok=True)
        with final.with_name(final.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not final.exists():
                with tempfile.TemporaryDirectory(dir=final.parent, prefix="partial-") as partial:
                    into = Path(partial) / "jars"
                    fill(into)
                    into.rename(final)
    return sorted(final.glob("*.jar"))


def copy(artifact: Artifact, into: Path, kind: str = "jar") -> Path:
    """Let Maven bring one file into a folder. Raises JarsUnavailable with what Maven said."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise JarsUnavailable(
            f"no mvn on PATH: install Maven (Debian: maven; macOS: brew install maven), or let "
            f"{CACHE} name a folder that another machine has filled"
        )
    done = subprocess.run(
        [
            *(mvn, "-B", "-ntp", "-q", COPY),
            f"-Dartifact={artifact.group}:{artifact.name}:{artifact.version}:{kind}",
            f"-DoutputDirectory={into}",
            "-Dmdep.useBaseVersion=true",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=into.parent,  # not beside a pom.xml of the user's
    )
    copied = into / artifact.file_name(kind)
    if done.returncode or not copied.exists():
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        reason = said[0] if said else f"mvn ended with {done.returncode}"
        raise JarsUnavailable(f"{artifact.file_name(kind)}: {reason}")
    return copied


def to_stderr(text: str) -> None:
    """A Say for commands whose output is read by others."""
    print(text, file=sys.stderr, flush=True)
