"""Where the broker listens and what it tells clients: listeners and advertised.listeners."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.broker.config_values import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED = ("PLAINTEXT",)
_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]]*)):(-?[0-9]+)")


class Listener(NamedTuple):
    """One place to listen. `host` "" means every interface, `port` 0 one that is free then.

    Metadata answers the advertised address of the listener that the request came in by.
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    def opened(self, port: int) -> Listener:
        """The same listener once the system gave it `port`."""
        advertised = self.advertised_port or port
        return self._replace(port=port, advertised_port=advertised)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class _Endpoint(NamedTuple):
    name: str
    host: str
    port: int


def parse_listeners(text: Callable[[str], str | None]) -> tuple[Listener, ...]:
    """The listeners that the settings describe, those of the controller left out.

    `text` gives a setting's text by key. Raises ConfigError that names the setting at fault.
    """
    protocols = _protocol_map(text("listener.security.protocol.map") or "")
    controllers = _names(text("controller.listener.names") or "")
    own = {e.name: e for e in _endpoints("listeners", text) if e.name not in controllers}
    told = {e.name: e for e in _endpoints("advertised.listeners", text)}
    if not own:
        raise ConfigError("listeners", text("listeners"), "must name a listener for clients")
    for name in told.keys() - own.keys() - controllers:
        raise ConfigError("advertised.listeners", name, "is not the name of one of listeners")
    inter_broker = text("inter.broker.listener.name")
    if inter_broker and inter_broker.upper() not in own:
        raise ConfigError("inter.broker.listener.name", inter_broker, "is not one of listeners")
    _refuse_shared_ports(own)
    return tuple(
        _listener(endpoint, told.get(name), _protocol(name, protocols))
        for name, endpoint in own.items()
    )


def _listener(own: _Endpoint, told: _Endpoint | None, protocol: str) -> Listener:
    if told is None:
        if own.host in ("0.0.0.0", "::"):
            raise ConfigError(
                "listeners",
                f"{own.name}://{own.host}:{own.port}",
                "no client can connect to that address; set advertised.listeners to one it can",
            )
        told = own._replace(host=own.host or socket.getfqdn())
    elif told.host in ("", "0.0.0.0", "::"):
        raise ConfigError("advertised.listeners", told.host, "must be a host that clients reach")
    return Listener(own.name, protocol, own.host, own.port, told.host, told.port)


def _endpoints(key: str, text: Callable[[str], str | None]) -> list[_Endpoint]:
    endpoints = []
    for part in (text(key) or "").split(","):
        match = _ENDPOINT.fullmatch(part.strip())
        if part.strip() and not match:
            raise ConfigError(key, part.strip(), "must be NAME://host:port")
        if match:
            endpoint = _Endpoint(match[1].upper(), match[2] or match[3], int(match[4]))
            if not 0 <= endpoint.port <= 65535:
                raise ConfigError(key, part.strip(), "the port must be between 0 and 65535")
            endpoints.append(endpoint)
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, name, "names a listener twice")
    return endpoints


def _refuse_shared_ports(own: Mapping[str, _Endpoint]) -> None:
    seen: set[tuple[str, int]] = set()
    for endpoint in own.values():
        place = (endpoint.host, endpoint.port)
        if endpoint.port and place in seen:
            raise ConfigError("listeners", endpoint.port, "two listeners share an address")
        seen.add(place)


def _protocol_map(text: str) -> dict[str, str]:
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = pair.partition(":")
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(
                "listener.security.protocol.map",
                pair,
                f"must be NAME:one of {', '.join(PROTOCOLS)}",
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            "listeners",
            name,
            f"no protocol: add {name}:PLAINTEXT to listener.security.protocol.map",
        )
    if protocol not in SERVED:
        raise ConfigError(
            "listeners", name, f"{protocol} is not served yet, only {', '.join(SERVED)}"
        )
    return protocol


def _names(text: str) -> set[str]:
    return {name.strip().upper() for name in text.split(",") if name.strip()}


def bound_socket(
    listener: Listener, infos: list[Any], receive_bytes: int, send_bytes: int
) -> socket.socket:
    """A socket at one of the addresses that getaddrinfo found for the listener, not listening yet,
    so that receive buffers are set before a client can connect and the window can be agreed upon.
    Sizes of -1 are left to the system. Raises OSError, which names the listener."""
    family, kind, proto, _, address = _preferred(infos, not listener.host)
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not listener.host:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option, size in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            if size > 0:
                bound.setsockopt(socket.SOL_SOCKET, option, size)
        bound.setblocking(False)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"listeners: {listener}: {error.strerror}") from error
    return bound


def _preferred(infos: list[Any], every: bool) -> Any:
    """Of a host's addresses the IPv4 one; for all interfaces the IPv6 one, which takes both."""
    family = socket.AF_INET6 if every and socket.has_dualstack_ipv6() else socket.AF_INET
    return next((info for info in infos if info[0] == family), infos[0])
