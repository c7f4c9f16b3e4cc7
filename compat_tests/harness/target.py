"""The option --target, for every folder of tests that talks to a broker."""

from __future__ import annotations

from contextlib import suppress

import pytest

from compat_tests.harness.brokers import BROKERS


def add_option(parser: pytest.Parser) -> None:
    """Add it, unless the conftest of another folder has."""
    with suppress(ValueError):
        parser.addoption(
            "--target",
            choices=sorted(BROKERS),
            default="ottla",
            help="the broker to test: Ottla from this tree, or Apache Kafka to compare with",
        )
