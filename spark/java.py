"""Is there a Java that can run Spark? Asked first: Spark's own answer is a page of shell script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
INSTALL = f"install {OLDEST} or newer (Debian: openjdk-17-jre-headless; macOS: openjdk@17)"


def problem() -> str | None:
    """Why Spark's Java will not run and what to do; None when it will.

    It is the one of JAVA_HOME, else the one on PATH, as Spark's own scripts choose."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        return f"JAVA_HOME is {home}, which has no bin/java: unset it, or let it name a Java"
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return f"no java on PATH: {INSTALL}"
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = asked.stderr + asked.stdout
    if asked.returncode:
        return f"{java} does not run: {said.strip()[:200]}; {INSTALL}"
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found and int(found.group(1)) < OLDEST:
        return f"{java} is Java {found.group(1)}: {INSTALL}, and let JAVA_HOME name it"
    return None
