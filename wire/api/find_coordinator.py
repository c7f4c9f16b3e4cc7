"""FindCoordinator: the broker that looks after a group or a transactional id."""

from ottla.wire.schema import Message, array, int8, int16, int32, message, string, struct


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    """The coordinator of one key, from v4 of several; key_type 0 group, 1 transaction, 2 share."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


@struct
class Coordinator:
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", null="4+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    """The address of each key's coordinator."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", null="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
