"""Free ports that stay ours while a broker is down."""

from __future__ import annotations

import os
import random
import re
import socket

# Below the range from which Linux takes the ports of outgoing connections (32768 and up). A port
# from that range may be taken by any client while the broker restarts; worse, a client that keeps
# trying a closed port on loopback may be given that same port as its own and connect to itself.
LOWEST, HIGHEST = 15000, 32000
SHARES = 17
"""Processes of one test run take their ports from shares of their own: each may have brokers that
are down and come back to their port."""

_given: set[int] = set()


def free_port(count: int = 1) -> int:
    """The first of `count` consecutive ports nobody listens on, given to nobody here before."""
    worker = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    share = int(worker[0]) % SHARES if worker else random.randrange(SHARES)
    size = (HIGHEST - LOWEST) // SHARES
    for _ in range(500):
        first = LOWEST + share * size + random.randrange(0, size - count, 2)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return first
    raise OSError(f"no {count} free ports between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
