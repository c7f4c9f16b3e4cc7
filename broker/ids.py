"""Random ids in the shape of Kafka's Uuid."""

from __future__ import annotations

import base64
import os

_DASH = 62  # of the URL-safe alphabet of base64


def new_id() -> bytes:
    """Sixteen random bytes whose text does not begin with "-": on a command line that is an option
    (Kafka's Uuid.randomUuid avoids it too)."""
    while True:
        made = os.urandom(16)
        if made[0] >> 2 != _DASH:
            return made


def id_text(found: bytes) -> str:
    """As Kafka's tools print it: 22 characters."""
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode()
