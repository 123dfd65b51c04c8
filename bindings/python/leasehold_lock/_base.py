"""What both faces have in common.

Calls that wait are written here once, as coroutines. ``_threads`` drives them on the calling
thread, and ``aio`` lets its event loop await them.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import os
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from . import _native
from ._errors import LeaseholdError, NotHeld, make
from ._types import ConnectOptions, Holder, Inspection, LockOptions, Seconds, Waiter

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_T = TypeVar("_T")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Lock = TypeVar("_Lock", bound="BaseLock[Any]")
_LeaseT = TypeVar("_LeaseT", bound="BaseLease")


class _NotPickled:
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to its process and cannot be pickled: "
            "send the URL and the key, and connect there"
        )


class BaseClient(_NotPickled, Generic[_Lock]):
    """A client of a store, which makes locks. Share it among all that use the store."""

    _makes: type[_Lock]

    def __init__(self, url: str, **options: Unpack[ConnectOptions]) -> None:
        self._core = _native.Client(url, options)
        _clients.add(self)

    @property
    def url(self) -> str | None:
        """The store's URL without a password; ``None`` before it is connected."""
        return self._core.url

    async def _run(self, op: _native.Op[_T]) -> _T:
        return op.wait()

    def _lock(self, of: str, key: str, options: LockOptions, **mode: Any) -> _Lock:
        return self._makes(self, self._core.lock(of, key, given=options, **mode))

    def mutex(self, key: str, **options: Unpack[LockOptions]) -> _Lock:
        """A lock on ``key`` that one holds at a time. No I/O."""
        return self._lock("mutex", key, options)

    def rwlock(self, key: str, **options: Unpack[LockOptions]) -> RwLock[_Lock]:
        """A pair of locks on ``key``: many may read, or one may write. No I/O."""
        read = self._lock("rwlock", key, options, shared=True)
        return RwLock(read, self._lock("rwlock", key, options))

    def semaphore(
        self, key: str, permits: int, *, take: int = 1, **options: Unpack[LockOptions]
    ) -> _Lock:
        """A lock on ``key`` that takes ``take`` of ``permits`` permits. No I/O."""
        for name, number in (("permits", permits), ("take", take)):
            if not 0 < number < 2**32:
                raise make("Invalid", f"{name}={number} is not a number of permits", key=key)
        return self._lock("semaphore", key, options, permits=(permits, take))

    async def inspect(self, key: str) -> Inspection:
        """Reads who holds ``key`` and who waits for it."""
        holders, waiters = await self._run(self._core.inspect(key))
        return Inspection([Holder(*row) for row in holders], [Waiter(*row) for row in waiters])

    async def break_key(self, key: str) -> int:
        """Takes the key from its holders, for administrators. Returns how many these were."""
        return await self._run(self._core.break_key(key))

    async def close(self, timeout: Seconds = 5) -> bool:
        """Releases all that the client holds, and ends all waits with ``Closed``.

        Returns whether the store has confirmed each release within ``timeout``.
        """
        return await self._run(self._core.close(timeout))

    async def __aenter__(self) -> Self:
        await self._run(self._core.connect())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        await self._run(self._core.close(5))

    def __repr__(self) -> str:
        return f"<{_name(self)} of {self.url or 'a store that is not connected'}>"


_clients: weakref.WeakSet[BaseClient[Any]] = weakref.WeakSet()


_after = {"after_in_parent": _native.forked_here, "after_in_child": _native.forked_there}
os.register_at_fork(before=_native.fork_begins, **_after)


@atexit.register
def _release_at_exit() -> None:
    # A forked process that has connected to nothing has nothing to release, and starts no thread.
    clients = [client._core for client in _clients if client.url is not None]
    if clients:
        _native.Client.close_all(clients, 1).wait()


class RwLock(Generic[_Lock]):
    """A read-write lock: ``with lock.read as lease`` or ``with lock.write as lease``."""

    def __init__(self, read: _Lock, write: _Lock) -> None:
        self.read, self.write = read, write


class BaseLock(_NotPickled, Generic[_LeaseT]):
    """A lock of a client. It is cheap, and may be shared: each thread or task has its leases."""

    _makes: type[_LeaseT]
    _for_tasks: bool
    _holder: Callable[[], int]
    _guarded: Callable[[Callable[..., Any], bool], Callable[..., Any]]

    def __init__(self, client: BaseClient[Any], core: _native.Lock) -> None:
        self._client, self._core = client, core
        self._leases: dict[int, list[_LeaseT]] = {}

    @property
    def key(self) -> str:
        """The key."""
        return self._core.key

    def owned(self) -> bool:
        """Whether this thread or task holds it by this object. No round trip."""
        return any(lease.is_valid() for lease in self._leases.get(self._holder(), ()))

    async def acquire(
        self, blocking: bool | None = True, timeout: Seconds | None = -1, *,
        blocking_timeout: Seconds | None = None, sleep: float | None = None,
    ) -> bool:
        """Acquires it for this thread or task, and returns whether it did.

        A ``timeout`` of -1 is that of the lock, and ``None`` is for ever. ``blocking_timeout`` is
        its name in redis-py; ``sleep`` is ignored, since the store wakes who waits.
        """
        limit = timeout if blocking_timeout is None else blocking_timeout
        if blocking is not None and not blocking:
            if timeout != -1:
                raise make("Invalid", "a call that does not wait has no timeout", key=self.key)
            limit = 0
        lease = await self._claim(limit, True)
        if lease is not None:
            self._push(lease)
        return lease is not None

    async def lease(self, timeout: Seconds | None = -1) -> _LeaseT:
        """Acquires it and returns the lease, for any thread or task. Raises ``Timeout``."""
        return await self._claim(timeout, False)

    async def release(self) -> None:
        """Releases what was acquired here. Raises ``Lost`` if the lease was lost before."""
        lease = self._pop()
        await self._client._run(lease._core.finish())

    async def locked(self) -> bool:
        """Whether anybody holds the key now. One round trip."""
        return await self._client._run(self._core.locked())

    async def extend(self, additional_time: Seconds, replace_ttl: bool = False) -> bool:
        """Adds seconds to what remains of the lease: leases renew themselves, but not in a pause.

        With ``replace_ttl`` it renews the lease for as many from now. It never shortens one.

        >>> lock = lh.connect("memory:", ttl=30).mutex("backup")
        >>> with lock as lease:
        ...     lock.extend(60) and lease.remaining > 80
        True
        """
        lease = self._held("extend")
        if isinstance(additional_time, datetime.timedelta):
            additional_time = additional_time.total_seconds()
        await BaseLease.renew(lease, additional_time + (0 if replace_ttl else lease.remaining))
        return True

    async def reacquire(self) -> bool:
        """Renews the lease for its TTL, from now. Raises ``Lost``."""
        await BaseLease.renew(self._held("reacquire"))
        return True

    def guard(self, skip_if_busy: bool = False) -> Callable[[_Function], _Function]:
        """A decorator of functions that run under the lock, each call with a lease of its own.

        With ``skip_if_busy`` a call does not wait, and returns ``None`` if the key is busy.

        >>> client = lh.connect("memory:")
        >>> @client.mutex("nightly").guard(skip_if_busy=True)
        ... def nightly():
        ...     return "done"
        >>> with client.mutex("nightly"):
        ...     print(nightly())
        None
        >>> nightly()
        'done'
        """

        def decorate(function: _Function) -> _Function:
            import inspect

            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError("guard() cannot hold a lock for a generator: use a block in it")
            if inspect.iscoroutinefunction(function) is not self._for_tasks:
                face = "connect() for a plain" if self._for_tasks else "aio.connect() for an async"
                raise TypeError(f"guard() needs a lock of leasehold_lock.{face} function")
            return functools.wraps(function)(self._guarded(function, skip_if_busy))  # type: ignore

        return decorate

    async def _claim(self, limit: Seconds | None, or_none: bool) -> _LeaseT:
        core = await self._client._run(self._core.acquire(limit, or_none))
        return self._makes(self._client, core) if core else None  # type: ignore[return-value]

    async def __aenter__(self) -> _LeaseT:
        return self._push(await BaseLock.lease(self))

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        await BaseLease.__aexit__(self._pop(), kind)

    def _push(self, lease: _LeaseT) -> _LeaseT:
        self._leases.setdefault(self._holder(), []).append(lease)
        return lease

    def _held(self, to: str) -> _LeaseT:
        leases = self._leases.get(self._holder())
        if not leases:
            raise NotHeld(f"cannot {to} {self.key!r}: it is not held here")
        return leases[-1]

    def _pop(self) -> _LeaseT:
        lease, holder = self._held("release"), self._holder()
        self._leases[holder].pop()
        if not self._leases[holder]:
            del self._leases[holder]
        return lease

    def __repr__(self) -> str:
        return f"<{_name(self)} of {self.key!r}>"


class LossEvent:
    """Tells of the loss of a lease, like an ``Event`` that leasehold sets."""

    def __init__(self, client: BaseClient[Any], core: _native.Lease) -> None:
        self._client, self._core = client, core

    def is_set(self) -> bool:
        """Whether the lease is lost. No round trip."""
        return self._core.is_lost

    async def wait(self, timeout: Seconds | None = None) -> bool:
        """Waits for the loss. ``False`` if the lease is released first, or the time is over."""
        return await self._client._run(self._core.lost(timeout))


class BaseLease(_NotPickled):
    """A lease on a key: a hold that expires unless it is renewed, which happens by itself."""

    _tells = LossEvent

    def __init__(self, client: BaseClient[Any], core: _native.Lease) -> None:
        self._client, self._core = client, core

    @property
    def key(self) -> str:
        """The key."""
        return self._core.key

    @property
    def token(self) -> int | None:
        """The fencing token, higher than that of every lease before. Send it with each write.

        ``None`` for readers and permits, which are not alone.
        """
        return self._core.token

    @property
    def remaining(self) -> float:
        """How many seconds the lease is valid without another renewal. No round trip."""
        return self._core.remaining

    def is_valid(self) -> bool:
        """Whether the lease is valid now. No round trip."""
        return self._core.remaining > 0

    def check(self) -> None:
        """Raises ``Lost`` if the lease is lost or released. No round trip."""
        self._core.check()

    @property
    def lost(self) -> LossEvent:
        """Set as soon as the lease is lost."""
        return self._tells(self._client, self._core)

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Renews it now: for its TTL, or for ``ttl`` from now. That never shortens it."""
        await self._client._run(self._core.renew(ttl))

    async def release(self) -> bool:
        """Releases it. Returns whether it was held until now; harmless if it is done twice."""
        return await self._client._run(self._core.release())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None:
            await self._client._run(self._core.finish())
            return
        # The exception of the work is what its caller has to see.
        try:
            await self._client._run(self._core.release())
        except LeaseholdError:
            pass

    def __repr__(self) -> str:
        token = "" if self.token is None else f" with token {self.token}"
        state = "valid" if self.is_valid() else "over"
        return f"<{_name(self)} of {self.key!r}{token}, {state}>"

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and core.is_open and not core.is_lost:
            text = f"{self!r} was never released: it is released in the background"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


def _name(self: object) -> str:
    return f"{type(self).__module__}.{type(self).__qualname__}"
