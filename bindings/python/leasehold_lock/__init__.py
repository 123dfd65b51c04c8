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
import sys
from typing import TYPE_CHECKING, Any


def _check_interpreter() -> None:
    """Refuses where the native part would load, and then go wrong."""
    if "t" in getattr(sys, "abiflags", ""):
        message = "leasehold-lock does not support free-threaded Python yet: use one with the GIL"
        raise ImportError(message)
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    try:
        interpreters = importlib.import_module(name)
    except ImportError:
        return
    if interpreters.get_current() != interpreters.get_main():
        message = "leasehold-lock does not support subinterpreters: use processes or threads"
        raise ImportError(message)


_check_interpreter()

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
