"""Where the broker listens and what it tells clients."""

from __future__ import annotations

import pytest

from ottla.broker.config import ServerConfig
from ottla.broker.config_values import ConfigError
from ottla.broker.listeners import Listener


def listeners(**settings: str) -> dict[str, Listener]:
    static = {key.replace("_", "."): value for key, value in settings.items()}
    return {listener.name: listener for listener in ServerConfig(static).listeners}


def told(listener: Listener) -> tuple[str, int]:
    return listener.advertised_host, listener.advertised_port


def test_what_is_advertised_is_where_it_listens_unless_said_otherwise() -> None:
    found = listeners(listeners="PLAINTEXT://10.0.0.1:9000")
    assert told(found["PLAINTEXT"]) == ("10.0.0.1", 9000)
    found = listeners(
        listeners="PLAINTEXT://0.0.0.0:9000", advertised_listeners="PLAINTEXT://kafka:19000"
    )
    assert told(found["PLAINTEXT"]) == ("kafka", 19000)
    assert str(found["PLAINTEXT"]) == "PLAINTEXT://0.0.0.0:9000"


def test_several_listeners_have_names_of_their_own_and_the_controllers_is_not_opened() -> None:
    found = listeners(
        listeners="internal://:29092,TC-0://0.0.0.0:9092,CONTROLLER://:9093",
        advertised_listeners="INTERNAL://broker:29092,TC-0://localhost:32768",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,TC-0:plaintext,CONTROLLER:PLAINTEXT",
        controller_listener_names="controller",
        inter_broker_listener_name="INTERNAL",
        process_roles="broker,controller",
    )
    assert {name: told(listener) for name, listener in found.items()} == {
        "INTERNAL": ("broker", 29092),
        "TC-0": ("localhost", 32768),
    }


def test_a_free_port_becomes_the_advertised_one_once_it_is_known() -> None:
    (listener,) = listeners(listeners="PLAINTEXT://127.0.0.1:0").values()
    assert told(listener.opened(4711)) == ("127.0.0.1", 4711)
    (listener,) = listeners(
        listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://host:80"
    ).values()
    assert told(listener.opened(4711)) == ("host", 80)


def test_ipv6_hosts_are_in_brackets() -> None:
    (listener,) = listeners(listeners="PLAINTEXT://[::1]:9092").values()
    assert (listener.host, str(listener)) == ("::1", "PLAINTEXT://[::1]:9092")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "set advertised.listeners"),
        ({"listeners": "localhost:9092"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "between 0 and 65535"),
        ({"listeners": "PLAINTEXT://h:-1"}, "between 0 and 65535"),
        ({"listeners": ""}, "must name a listener"),
        ({"listeners": "SSL://h:1"}, "SSL is not served yet"),
        ({"listeners": "FRONT://h:1"}, "add FRONT:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,plaintext://h:2"}, "names a listener twice"),
        ({"advertised_listeners": "OTHER://h:1"}, "is not the name of one of listeners"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "must be a host that clients reach"),
        ({"inter_broker_listener_name": "X"}, "is not one of listeners"),
        ({"listener_security_protocol_map": "A:TLS"}, "must be NAME:one of PLAINTEXT"),
        (
            {
                "listeners": "PLAINTEXT://h:1,B://h:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "two listeners share an address",
        ),
    ],
)
def test_what_is_refused_and_how(settings: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match="listener") as caught:
        listeners(**settings)
    assert says in str(caught.value)
