"""Types of arguments."""

from __future__ import annotations

import datetime
import os
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Union

_T = TypeVar("_T")

#: A duration: a number of seconds, or a ``timedelta``.
Seconds = Union[float, datetime.timedelta]


class ConnectOptions(TypedDict, total=False):
    """Options of ``connect``."""

    ttl: Seconds | None
    waiter_ttl: Seconds | None
    operation_timeout: Seconds | None
    label: str | None
    user: str | None
    password: str | None
    password_file: str | os.PathLike[str] | None


class LockOptions(TypedDict, total=False):
    """Options of every kind of lock. ``timeout`` is how long to wait for it.

    With ``deadlock_timeout``, one that has waited for so long looks for a deadlock with others that
    have it, and the youngest raises ``Deadlock``. What a thread or a task holds counts as one work.
    """

    timeout: Seconds | None
    deadlock_timeout: Seconds | None
    ttl: Seconds | None
    max_hold: Seconds | None
    min_hold: Seconds | None
    label: str | None
    note: str | None
    unfair: bool


class Holder(NamedTuple):
    """A holder of a key."""

    host: str
    pid: int
    label: str | None
    #: The token of a mutex or a writer; for others the number of the grant.
    token: int
    #: In how many seconds the lease expires without another renewal; ``inf`` for a lock of another
    #: library that never does (``layout=classic``).
    expires_in: float
    #: What it tells of itself, such as the address of a leader.
    note: str | None = None


class Waiter(NamedTuple):
    """A waiter for a key."""

    host: str
    pid: int
    label: str | None
    #: The place in the queue; 1 is next.
    position: int
    expires_in: float


class Inspection(NamedTuple):
    """Who holds a key and who waits for it, when it was read."""

    holders: list[Holder]
    waiters: list[Waiter]


class _Recovered(NamedTuple):
    lease: Any
    is_new: bool


# In two steps, since Python 3.10 has no generic named tuples.
class Recovered(_Recovered, Generic[_T]):
    """What ``recover()`` has got."""

    __slots__ = ()
    lease: _T  # pyright: ignore[reportIncompatibleVariableOverride]
    #: Whether there was nothing to go on with, so that the lease is a new one.
    is_new: bool  # pyright: ignore[reportIncompatibleVariableOverride]
