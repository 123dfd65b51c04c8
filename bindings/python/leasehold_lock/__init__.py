"""Distributed locks on Redis and other stores: fair, fenced, and renewed by themselves.

>>> import leasehold_lock as lh
>>> with lh.connect("memory:") as client:
...     with client.mutex("orders/42", timeout=5) as lease:
...         print("write with the token" if lease.token else "not fenced")
write with the token

``leasehold_lock.aio`` has the same for asyncio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._base import RwLock
from ._errors import (
    Closed, Corrupt, Deadlock, Fenced, Invalid, LeaseholdError, Lost, NotHeld, Refused, Timeout,
    Unavailable, Unsupported,
)
from ._threads import Client, Election, Lease, Lock, LossEvent, connect
from ._types import Holder, Inspection, Recovered, Waiter

if TYPE_CHECKING:
    from . import aio as aio
    from . import fence as fence
    from ._file import FileLock

__all__ = [
    "Client", "Closed", "Corrupt", "Deadlock", "Election", "Fenced", "FileLock", "Holder",
    "Inspection", "Invalid", "Lease", "LeaseholdError", "Lock", "LossEvent", "Lost", "NotHeld",
    "Recovered", "Refused", "RwLock", "Timeout", "Unavailable", "Unsupported", "Waiter", "connect",
]


def __getattr__(name: str) -> Any:
    # Who has no event loop does not wait for the import of asyncio.
    if name in ("aio", "fence"):
        return importlib.import_module(f".{name}", __name__)
    if name == "FileLock":
        return importlib.import_module("._file", __name__).FileLock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
