"""The same locks for asyncio.

A client belongs to the event loop in which it is first used, and so do its locks and leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native
from ._base import BaseClient, BaseElection, BaseLease, BaseLock, LossEvent, RwLock, numbers
from ._errors import LeaseholdError
from ._types import ConnectOptions

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Client", "Election", "Lease", "Lock", "LossEvent", "RwLock", "connect"]

_T = TypeVar("_T")


def connect(url: str, **options: Unpack[ConnectOptions]) -> Client:
    """A client of the store at ``url``: ``async with connect(url) as client``, or await it."""
    return Client(url, **options)


_numbers: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()


def _number() -> int:
    """The number of this task."""
    task = asyncio.current_task()
    if task is None:
        return 0
    return _numbers.get(task) or _numbers.setdefault(task, next(numbers))


class Lease(BaseLease):
    """A lease for tasks."""

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs ``work``, and cancels it as soon as the lease ends; then raises ``Lost``.

        Work under a lease that has ended is not begun. The work is a part of this task: it may
        enter a lock again, and ends before this does.
        """
        try:
            self.check()
        except BaseException:
            if asyncio.iscoroutine(work):
                work.close()
            raise
        # A task that begins at once, as some loops make them, would begin without its number.
        task: asyncio.Task[_T] = (
            asyncio.Task(work) if asyncio.iscoroutine(work) else asyncio.ensure_future(work)
        )
        _numbers.setdefault(task, _number())
        loss = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((task, loss), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            failed = await _end(task, loss)
            if failed is not None:
                raise failed
            raise
        in_time = task.done()
        failed = await _end(task, loss)
        if not in_time:
            loss.result()  # Who cannot hear of a loss says why.
            try:
                self.check()
            except LeaseholdError as lost:
                raise lost from failed
        done = await task
        self.check()
        return done


class Lock(BaseLock[Lease]):
    """A lock for tasks: ``async with lock as lease``, or the calls of ``asyncio.Lock``."""

    _makes, _for_tasks = Lease, True
    _holder = staticmethod(_number)

    def _guarded(self, function: Callable[..., Any], skip: bool) -> Callable[..., Any]:
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            core = await self._claim(0 if skip else -1, skip)
            if core is None:
                return None
            async with Lease(self._client, core) as lease:
                return await lease.run(function(*args, **kwargs))

        return guarded


class Election(BaseElection[Lease], Lock):
    """An election for tasks: ``async with election as lease``, ``async for lease in election``."""


class Client(BaseClient[Lock, Election]):
    """A client for the tasks of one event loop. ``connect`` makes it."""

    _makes, _elects = Lock, Election
    _bridge: _Bridge | None = None

    async def _run(self, op: _native.Op[_T]) -> _T:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "leasehold_lock.aio needs a running asyncio event loop of this process: "
                "use leasehold_lock.connect elsewhere, also under trio"
            ) from None
        bridge = self._bridge
        if bridge is None or bridge.is_inherited and bridge.loop is not loop:
            bridge = self._bridge = _Bridge.of(loop)
        if bridge.loop is not loop:
            raise RuntimeError(f"{self!r} belongs to {bridge.loop!r}, and was called in {loop!r}")
        return await bridge.run(op)

    def _leave(self) -> None:
        # No task of a loop that has stopped leaves a queue, nor takes the lease that has come.
        if self._bridge is not None and not self._bridge.loop.is_running():
            self._bridge._core.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()


async def _end(task: asyncio.Future[Any], *others: asyncio.Future[Any]) -> BaseException | None:
    """Cancels these, and waits until they have ended, also if it is cancelled meanwhile.

    Returns what the first has failed with.
    """
    cancelled = None
    for one in (task, *others):
        one.cancel()
    while pending := [one for one in (task, *others) if not one.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
            for one in pending:
                one.cancel()
    if cancelled is not None:
        raise cancelled
    return None if task.cancelled() else task.exception()


class _Bridge:
    """The bridge of one event loop: see ``src/bridge.rs``. It is closed with its loop."""

    #: Whether it is that of a parent, in a forked child.
    is_inherited = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._core = loop, _native.Bridge()
        loop.add_reader(self._core.fileno(), _Reader(self))

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Bridge:
        bridge = _bridges.get(id(loop))
        if bridge is None or bridge.loop is not loop:
            bridge = _bridges[id(loop)] = cls(loop)
        return bridge

    async def run(self, op: _native.Op[_T]) -> _T:
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        call = self._core.start(op, future)
        try:
            return await future
        except (asyncio.CancelledError, GeneratorExit):
            self._core.cancel(call)
            if future.done() and not future.cancelled():
                future.exception()
            # It may have a lease, which the traceback is not to keep.
            del future
            raise


class _Reader:
    """What a loop drops when it is closed, after its generators: nothing else tells of its end."""

    def __init__(self, bridge: _Bridge) -> None:
        self.bridge = bridge

    def __call__(self) -> None:
        self.bridge._core.drain()

    def __del__(self) -> None:
        self.bridge._core.close()


# A loop holds its bridge by its reader, and so do clients: this does not.
_bridges: weakref.WeakValueDictionary[int, _Bridge] = weakref.WeakValueDictionary()


def _refuse_in_child() -> None:
    """Ends what a forked child awaits of its parent, if the child goes on in its parent's loop.

    In a loop of its own a client has another bridge there.
    """
    for bridge in list(_bridges.values()):
        bridge.is_inherited = True
        # It may be closed, or be that of another thread, which is not there.
        with contextlib.suppress(RuntimeError):
            bridge.loop.call_soon(bridge._core.drain)


os.register_at_fork(after_in_child=_refuse_in_child)
