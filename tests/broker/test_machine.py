"""What the broker asks of the machine."""

from __future__ import annotations

import resource

import pytest

from ottla.broker import machine


def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        machine.allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_where_the_system_names_no_bound_but_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits[0])
        if limits[0] > 10_240:  # as macOS
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    machine.allow_descriptors()
    assert asked == [1 << 20, 10_240]
