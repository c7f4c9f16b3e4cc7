"""Free ports that stay ours while a broker is down."""

from __future__ import annotations

import random
import socket

# Below the range from which Linux takes the ports of outgoing connections (32768 and up). A port
# from that range may be taken by any client while the broker restarts; worse, a client that keeps
# trying a closed port on loopback may be given that same port as its own and connect to itself.
LOWEST, HIGHEST = 15000, 32000


def free_port(count: int = 1) -> int:
    """The first of `count` consecutive ports nobody listens on."""
    for _ in range(500):
        first = random.randrange(LOWEST, HIGHEST, 2)
        if all(_is_free(first + i) for i in range(count)):
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
