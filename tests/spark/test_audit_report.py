"""The page that an audit writes, from figures made by hand."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from ottla.spark.audit import Audit, PartitionAudit, PartitionSide
from ottla.spark.audit_report import write_report


def test_the_page_names_both_sides_and_prints_every_digit_of_their_hashes(tmp_path: Path) -> None:
    left, right = "0123456789abcdef" * 2, "0123456789abcdef0123456789abcde0"
    row = PartitionAudit(
        0,
        PartitionSide(records=2, first=0, last=1, hash=left),
        PartitionSide(records=2, first=0, last=1, hash=right),
        differences={"records with other content": 1},
    )
    write_report(
        Audit("topic orders at a:9092", "archive ./lake of orders", "offsets", [row], []),
        str(tmp_path / "audit.html"),
    )
    page = (tmp_path / "audit.html").read_text()
    cells = re.findall("<td>(.*?)</td>", page)
    assert cells[:4] == ["left", "topic orders at a:9092", "right", "archive ./lake of orders"]
    assert {left, right} <= set(cells)
    pictures = re.findall('base64,([^"]+)"', page)
    assert [base64.b64decode(picture)[:4] for picture in pictures] == [b"\x89PNG"] * 2
