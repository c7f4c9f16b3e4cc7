"""server.properties and TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.config_files import parse_overrides, parse_properties, read_file
from ottla.broker.config_values import ConfigError


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a\t=\tb", {"a": "b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=b", {}),
        ("  ! a=b", {}),
        ("", {}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b\\ c=d", {"a:b c": "d"}),
        ("a=x\\ty\\\\z", {"a": "x\ty\\z"}),
        ("a=\\u00e9", {"a": "é"}),
        ("a=\\q", {"a": "q"}),
        ("a=b,\\\n    c", {"a": "b,c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=# not a comment", {"a": "# not a comment"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(line: str, expected: dict[str, str]) -> None:
    assert parse_properties(line) == expected


def test_toml_tables_and_dotted_keys_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ottla.toml"
    path.write_text(
        """
        num.partitions = 3
        auto.create.topics.enable = false
        listeners = ["A://:1", "B://:2"]
        log.cleaner.min.cleanable.ratio = 0.25
        [log.retention]
        ms = 5
        [ottla]
        durability = "os"
        """
    )
    assert read_file(path) == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "listeners": "A://:1,B://:2",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "log.retention.ms": "5",
        "ottla.durability": "os",
    }


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: cannot be read: No such file"):
        read_file(tmp_path / "none.properties")
    bad = tmp_path / "bad.toml"
    bad.write_text("a = = b")
    with pytest.raises(ConfigError, match=r"bad\.toml: is not TOML"):
        read_file(bad)
    latin = tmp_path / "latin.properties"
    latin.write_bytes(b"a=\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 2"):
        read_file(latin)


def test_overrides_are_key_value_pairs() -> None:
    assert parse_overrides(["a=1", " b = x=y "]) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match="--override=a: must be key=value"):
        parse_overrides(["a"])
