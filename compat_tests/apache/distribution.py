"""Where Apache Kafka's jars are, and how to run one of its main classes.

The jars come from Maven Central (pom.xml beside this file) into `.cache/apache-<version>/libs`,
once. OTTLA_APACHE_HOME names a prepared distribution instead: any folder with `libs/*.jar`, such
as an unpacked release of Apache Kafka.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
POM = HERE / "pom.xml"
LOG4J = HERE / "log4j2.properties"

# The command-line tools in use, by the name of their script in a release of Apache Kafka.
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    "kafka-server-start": "kafka.Kafka",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}


class Unavailable(Exception):
    """There is no Java, or no way to get the jars; the text says what to install."""


def version() -> str:
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text())
    assert found, f"no kafka.version in {POM}"
    return found.group(1)


def home() -> Path:
    """The folder that holds `libs`, prepared or not."""
    if named := os.environ.get("OTTLA_APACHE_HOME"):
        return Path(named)
    return ROOT / ".cache" / f"apache-{version()}"


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise Unavailable(
            "no java on PATH: install a JRE, 17 or newer (Debian: openjdk-17-jdk-headless)"
        )
    return found


def libs() -> Path:
    """The folder of jars, fetched through Maven when it is not there yet."""
    folder = home() / "libs"
    if any(folder.glob("kafka-clients-*.jar")):
        return folder
    if "OTTLA_APACHE_HOME" in os.environ:
        raise Unavailable(f"OTTLA_APACHE_HOME: no kafka-clients jar in {folder}")
    return prepare()


def prepare() -> Path:
    """Fetch the jars; safe to call from several processes at once. Returns the libs folder."""
    java()
    mvn = shutil.which("mvn")
    if mvn is None:
        raise Unavailable(
            "no mvn on PATH: install Maven, or set OTTLA_APACHE_HOME to an Apache Kafka"
        )
    final = home() / "libs"
    final.parent.mkdir(parents=True, exist_ok=True)
    with (final.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            return final
        partial = final.with_name("libs.partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run(
            [
                mvn,
                "-B",
                "-ntp",
                "-q",
                "-f",
                str(POM),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={partial}",
            ],
            check=True,
        )
        partial.rename(final)
    return final


def jvm(heap: str) -> list[str]:
    """The beginning of a command line; behind it come the class path and the main class."""
    return [
        java(),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        # What a JVM leaves behind when it is killed goes with the test run.
        f"-Djava.io.tmpdir={tempfile.gettempdir()}",
        "-XX:-UsePerfData",
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
    ]


def command(tool: str, *arguments: str, heap: str = "256m") -> list[str]:
    """The command line that runs a tool of TOOLS, or a main class by its full name."""
    return [
        *jvm(heap),
        # These run for a second or two: the second compiler costs more than it gives.
        *(["-XX:TieredStopAtLevel=1"] if tool != "kafka-server-start" else []),
        "-cp",
        f"{libs()}/*",
        TOOLS.get(tool, tool),
        *arguments,
    ]
