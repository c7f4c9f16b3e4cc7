"""The states of a classic group and, in one table, what each of them does and leads to.

Source: Kafka's ClassicGroupState, and the switches over it in GroupMetadataManager and
ClassicGroup.validateOffsetCommit. classic.py and rebalance.py act on this table; nothing else
in the package compares states but for the two questions "has it members" and "is it stable".
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.wire.errors import Error


class State(Enum):
    """Values are the names that ListGroups and DescribeGroups report."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    __hash__ = object.__hash__
    """A member is only equal to itself. Enum's own way takes a call, and each heartbeat asks."""


class Act(Enum):
    """What a state does with a request or an event, where it is not just an error."""

    PARK = auto()
    """Keep the request until the phase is over."""
    STORED = auto()
    """SyncGroup: answer the member's assignment of this generation."""
    REPEAT = auto()
    """JoinGroup: answer this generation again; a rebalance if the member's protocols changed."""
    REPEAT_FOLLOWER = auto()
    """The same, but a leader that rejoins always gets its rebalance: that is how it says that it
    wants to assign anew (partitions were added, topics match now)."""
    REBALANCE = auto()
    """A member less: begin a rebalance."""
    COMPLETE = auto()
    """A member less: complete the join phase, if all that are left have joined."""
    NOTHING = auto()


class Rules(NamedTuple):
    """One row of the table."""

    heartbeat: Error
    """Answer to a heartbeat with the right generation; but for Empty it also renews the session."""
    rejoin: Error | Act
    """JoinGroup of a known member."""
    sync: Error | Act
    """SyncGroup with the right generation and protocol."""
    commit: Error
    """OffsetCommit with the right generation of a known member."""
    gone: Act
    """A member left or its session ended."""
    leads_to: set[State]


_E, _P, _C, _S, _D = State
_OK, _UNKNOWN, _REBALANCE = Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.REBALANCE_IN_PROGRESS

# fmt: off
TABLE: Final[dict[State, Rules]] = {
    #         heartbeat   rejoin             sync        commit      gone             leads to
    _E: Rules(_UNKNOWN,   _UNKNOWN,          _UNKNOWN,   _UNKNOWN,   Act.NOTHING,     {_P, _D}),
    _P: Rules(_REBALANCE, Act.PARK,          _REBALANCE, _OK,        Act.COMPLETE,    {_C, _E}),
    _C: Rules(_OK,        Act.REPEAT,        Act.PARK,   _REBALANCE, Act.REBALANCE,   {_S, _P}),
    _S: Rules(_OK,        Act.REPEAT_FOLLOWER, Act.STORED, _OK,      Act.REBALANCE,   {_P}),
    _D: Rules(_UNKNOWN,   _UNKNOWN,          _UNKNOWN,   _UNKNOWN,   Act.NOTHING,     set()),
}
# fmt: on
