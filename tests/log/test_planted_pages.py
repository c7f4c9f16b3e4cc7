"""A rewritten file has no pages: what looks like one in it was written by a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.logkit import make_batch
from tests.log.test_power_cut import forged, leaf_page, planted_batch

from ottla.log.commit import Extent
from ottla.log.folder import Folder, SealedName
from ottla.log.options import Change, Table
from ottla.log.rewrite import write_sealed
from ottla.log.salvage import Salvage
from ottla.wire.records import patch


def write(folder: Folder, name: SealedName, batches: list[bytearray]) -> Path:
    def extents() -> Iterator[Extent]:
        for offset, batch in enumerate(batches):
            patch(batch, 0, offset, 0)
            yield Extent(7, 0, offset, offset, 5, len(batch), [batch])

    total = sum(map(len, batches))
    made = write_sealed(folder, name, (1, 2), extents(), total, lambda: None)
    assert made is not None
    return made.path


@pytest.mark.parametrize(("generation", "footer"), [(0, True), (1, True), (1, False)])
def test_a_rewritten_file_without_its_header_gives_back_its_own_commits_only(
    tmp_path: Path, generation: int, footer: bool
) -> None:
    folder = Folder(tmp_path / "data")
    name = SealedName(10, 30, generation)
    payload = forged(12, [Change(Table.TOPICS, b"t", b"planted")], salt=5)
    shift, page = 0, 1
    for _ in range(2):  # the second time it begins where a page would
        planted = planted_batch(leaf_page(page, 12, payload), shift)
        path = write(folder, name, [planted, make_batch(size=100)])
        at = path.read_bytes().index(leaf_page(page, 12, payload))
        shift = (shift - at) % 4096
        page = -(-at // 4096)
    assert at % 4096 == 0
    data = bytearray(path.read_bytes())
    data[:40] = bytes(40)
    if not footer:
        data[-80:] = bytes(80)
    path.write_bytes(data)
    (found,) = Salvage(path, 10).commits()
    assert found.commit.number == 10
    assert not found.hurt
    assert sum(len(piece.data) for piece in found.pieces) == len(planted) + len(
        make_batch(size=100)
    )
    folder.close()
