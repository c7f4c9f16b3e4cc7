"""Ids as Kafka makes and prints them."""

from __future__ import annotations

import pytest

from ottla.broker.ids import id_text, new_id


def test_no_id_looks_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x00" * 15 + b"\xff"]
    assert [id_text(made)[0] for made in drawn[:2]] == ["-", "-"]
    monkeypatch.setattr("os.urandom", lambda count: drawn.pop(0))
    assert id_text(new_id()) == "AAAAAAAAAAAAAAAAAAAA_w"
    assert drawn == []
