"""What both faces have in common.

Calls that wait are written here once, as coroutines. ``_threads`` drives them on the calling
thread, and ``aio`` lets its event loop await them.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import secrets
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from . import _native
from ._errors import LeaseholdError, make
from ._types import (
    ConnectOptions, Holder, Inspection, LockOptions, Recovered, Seconds, Waiter,
)

if TYPE_CHECKING:
    import logging
    from types import FrameType

    from typing_extensions import Self, Unpack

_T = TypeVar("_T")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Lock = TypeVar("_Lock", bound="BaseLock[Any]")
_Election = TypeVar("_Election", bound="BaseElection[Any]")
_LeaseT = TypeVar("_LeaseT", bound="BaseLease")


class _NotPickled:
    _instead = "send the URL and the key, and connect there"

    def __reduce__(self) -> NoReturn:
        what = f"a {type(self).__name__} belongs to its process and cannot be pickled"
        raise TypeError(f"{what}: {self._instead}")


class BaseClient(_NotPickled, Generic[_Lock, _Election]):
    """A client of a store, which makes locks. Share it among all that use the store."""

    _makes: type[_Lock]
    _elects: type[_Election]

    def __init__(self, url: str, **options: Unpack[ConnectOptions]) -> None:
        self._core = _native.Client(url, options)
        _clients[id(self)] = self

    @property
    def url(self) -> str | None:
        """The store's URL without a password; ``None`` before it is connected."""
        return self._core.url

    async def _run(self, op: _native.Op[_T]) -> _T:
        return op.wait()

    def _leave(self) -> None:
        """At the end of the process, ends what would wait for ever."""

    def _lock(self, of: str, keys: Iterable[str], options: LockOptions, **mode: Any) -> _Lock:
        return self._makes(self, self._core.lock(of, keys, options, **mode))

    def mutex(self, key: str, **options: Unpack[LockOptions]) -> _Lock:
        """A lock on ``key`` that one holds at a time. No I/O."""
        return self._lock("mutex", [key], options)

    def rwlock(self, key: str, **options: Unpack[LockOptions]) -> RwLock[_Lock]:
        """A pair of locks on ``key``: many may read, or one may write. No I/O."""
        read = self._lock("rwlock", [key], options, shared=True)
        return RwLock(read, self._lock("rwlock", [key], options))

    def semaphore(
        self, key: str, permits: int, *, take: int = 1, **options: Unpack[LockOptions]
    ) -> _Lock:
        """A lock on ``key`` that takes ``take`` of ``permits`` permits. No I/O."""
        for name, number in (("permits", permits), ("take", take)):
            if not 0 < number < 2**32:
                raise make("Invalid", f"{name}={number} is not a number of permits", key=key)
        return self._lock("semaphore", [key], options, permits=(permits, take))

    def reentrant(
        self, key: str, owner: str | None = None, **options: Unpack[LockOptions]
    ) -> _Lock:
        """A mutex that its owner can acquire again: this thread or task, or ``owner``. No I/O.

        An ``owner`` is a secret of 32 hexadecimal digits, such as ``uuid.uuid4().hex``, which
        threads, tasks and processes share that are one owner. Who adopts or recovers a lease can
        enter again only if it names the owner of that lease.

        >>> lock = lh.connect("memory:").reentrant("orders/42")
        >>> with lock, lock:
        ...     lock.owned()
        True
        """
        if not isinstance(owner, (str, type(None))):
            raise make("Invalid", "an owner must be a text of 32 hexadecimal digits", key=key)
        lock = self._lock("reentrant", [key], options)
        lock._enters, lock._shared_owner = True, owner
        return lock

    def multi(
        self, keys: Iterable[str], *, shared: bool = False, **options: Unpack[LockOptions]
    ) -> _Lock:
        """A lock on all of ``keys``, which never deadlocks with another of them. No I/O.

        >>> with lh.connect("memory:").multi(["alice", "bob"]) as lease:
        ...     list(lease.tokens)
        ['alice', 'bob']
        """
        # A text is no list of its letters.
        if isinstance(keys, str):
            raise TypeError(f"multi() needs a list of keys: write [{keys!r}]")
        return self._lock("multi", list(keys), options, shared=shared)

    def election(self, key: str, **options: Unpack[LockOptions]) -> _Election:
        """An election on ``key``, whose leader shows its ``note``. No I/O."""
        # Without one, too: whoever takes a leadership over does not show that of the leader before.
        given = {"note": "", **options}
        return self._elects(self, self._core.lock("election", [key], given))

    async def inspect(self, key: str) -> Inspection:
        """Reads who holds ``key`` and who waits for it."""
        holders, waiters = await self._run(self._core.inspect(key))
        return Inspection([Holder(*row) for row in holders], [Waiter(*row[:5]) for row in waiters])

    async def audit_log(
        self, key: str | None = None, since: Seconds | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Who was granted ``key``, or any, and how each hold ended: at most ``limit`` entries.

        ``since`` is how many seconds ago the first may be. The store keeps the log if its URL
        has ``audit=``. Times are seconds since 1970.
        """
        import json

        if not 0 <= limit < 2**32:
            raise make("Invalid", f"limit={limit} is not a number of entries", key=key)
        text: str = await self._run(self._core.audit_log(key, since, limit))
        entries: list[dict[str, Any]] = json.loads(text)
        for entry in entries:
            entry.update({name: entry[name] / 1e6 for name in entry.keys() & _TIMES})
            for who in entry.keys() & {"owner", "by"}:
                entry[who] = {_LONG[name]: value for name, value in entry[who].items()}
        return entries

    async def break_key(self, key: str) -> int:
        """Takes the key from its holders, for administrators. Returns how many these were."""
        return await self._run(self._core.break_key(key))

    async def close(self, timeout: Seconds = 5) -> bool:
        """Releases all that the client holds, and ends all waits with ``Closed``.

        Returns whether the store has confirmed each release within ``timeout``.
        """
        return await self._run(_native.Client.close([self._core], timeout))

    async def __aenter__(self) -> Self:
        _listen()
        await self._run(self._core.connect())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        await self._run(_native.Client.close([self._core], 5))

    def __repr__(self) -> str:
        return f"<{_name(self)} of {self.url or 'a store that is not connected'}>"


# How the core writes entries.
_LONG = {"h": "host", "p": "pid", "l": "label", "c": "context"}
_TIMES = {"at", "asked", "since", "deadline", "kept_until"}
_clients: weakref.WeakValueDictionary[int, BaseClient[Any, Any]] = weakref.WeakValueDictionary()


@atexit.register
def _release_at_exit() -> None:
    # A copy, since threads that go on may make others meanwhile.
    clients = [client for ref in _clients.valuerefs() if (client := ref()) is not None]
    # A forked process that has connected to nothing has nothing to release, and starts no thread.
    if clients := [client for client in clients if client.url is not None]:
        for client in clients:
            client._leave()
        _native.Client.close([client._core for client in clients], 1).wait()


_released_with: int | None = None


def _release_with_process() -> None:
    global _released_with
    if _released_with != os.getpid():
        _released_with = os.getpid()
        process = sys.modules.get("multiprocessing.process")
        # A child of ``multiprocessing`` ends with ``os._exit``, and without ``atexit``.
        if getattr(process, "_parent_process", None) is not None:
            from multiprocessing.util import Finalize

            Finalize(None, _release_at_exit, exitpriority=0)


_LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40}
_logger: logging.Logger | None = None
#: The process that logs, and from which level on.
_listening: tuple[int, int] | None = None
_log_threads: dict[int, object] = {}


def _listen() -> None:
    """Tells from which level on this process logs; a thread takes the records from the core."""
    global _logger
    if _logger is None:
        # Who has not imported it does not listen.
        if "logging" not in sys.modules:
            return
        import logging

        _logger = logging.getLogger(__package__)
    if _listening != (now := (os.getpid(), _logger.getEffectiveLevel())):
        _listen_as(now, _logger)


def _listen_as(now: tuple[int, int], logger: logging.Logger) -> None:
    global _listening
    _listening, (process, level) = now, now
    _native.listen(next((name for name, of in _LEVELS.items() if of >= level), "OFF"))
    # One of several threads that are here starts it.
    if _log_threads.setdefault(process, me := object()) is me:
        thread = threading.Thread(target=_log, args=(logger,), name="leasehold-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # None is to be had, as at the end of the interpreter: the next call tries again.
            del _log_threads[process]
            _native.listen("OFF")
            _listening = None


def _log(logger: logging.Logger) -> None:
    global _listening
    import signal

    # They are for the threads of the program.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        try:
            records = _native.records().wait()
        except LeaseholdError:
            # The core cannot begin, as where no descriptor is left: the next call tries again.
            _log_threads.pop(os.getpid(), None)
            _native.listen("OFF")
            _listening = None
            return
        for level, message in records:
            try:
                logger.log(_LEVELS[level], "%s", message)
            except BaseException as error:
                # Of a handler, and it is nobody's: others are still to be told, which closes await.
                try:
                    sys.excepthook(type(error), error, error.__traceback__)
                except BaseException as failed:
                    sys.__excepthook__(type(failed), failed, failed.__traceback__)


class RwLock(Generic[_Lock]):
    """A read-write lock: ``with lock.read as lease`` or ``with lock.write as lease``."""

    def __init__(self, read: _Lock, write: _Lock) -> None:
        self.read, self.write = read, write


class BaseLock(_NotPickled, Generic[_LeaseT]):
    """A lock of a client. It is cheap, and may be shared: each thread or task has its leases."""

    _makes: type[_LeaseT]
    _for_tasks: bool
    #: The number of this thread or task, which no other ever has.
    _holder: Callable[[], int]
    #: Whether each owner may enter again: this thread or task, if none is named.
    _enters = False
    _shared_owner: str | None = None
    _guarded: Callable[[Callable[..., Any], bool], Callable[..., Any]]

    def __init__(self, client: BaseClient[Any, Any], core: _native.Lock) -> None:
        self._client, self._core = client, core
        self._detects = core.detects_deadlocks
        #: What is held by this object: by whom, and by which block, if any. The last is last.
        self._leases: dict[_LeaseT, tuple[int, object]] = {}

    @property
    def key(self) -> str:
        """The key; the first of several."""
        return self._core.keys[0]

    @property
    def keys(self) -> list[str]:
        """The keys, in the order in which they were named."""
        return self._core.keys

    def owned(self) -> bool:
        """Whether this thread holds it by this object, or any task. No round trip."""
        held = list(self._leases.items())
        ours = (lease for lease, (by, _) in held if self._for_tasks or self._is_here(by))
        return any(lease.is_valid() for lease in ours)

    async def acquire(
        self, blocking: bool | None = True, timeout: Seconds | None = -1, *,
        blocking_timeout: Seconds | None = None, sleep: float | None = None,
    ) -> bool:
        """Acquires it for this thread or task, and returns whether it did.

        A ``timeout`` of -1 is that of the lock, and ``None`` is for ever. ``blocking_timeout`` is
        its name in redis-py; ``sleep`` is ignored, since the store wakes who waits. What is
        acquired in a block after its ``release()`` is released at the end of the block.
        """
        limit = timeout if blocking_timeout is None else blocking_timeout
        if blocking is not None and not blocking:
            if timeout != -1:
                raise make("Invalid", "a call that does not wait has no timeout", key=self.key)
            limit = 0
        core = await self._claim(limit, True)
        if core is None:
            return False
        me, held = self._holder(), self._leases
        blocks = [it for it, (by, block) in list(held.items()) if block and by == me]
        left = [it for it in blocks if not it._core.is_open]
        held[self._makes(self._client, core)] = held.pop(left[-1]) if left else (me, None)
        return True

    async def lease(self, timeout: Seconds | None = -1) -> _LeaseT:
        """Acquires it and returns the lease, for any thread or task. Raises ``Timeout``."""
        return self._makes(self._client, await self._claim(timeout, False))

    async def release(self) -> None:
        """Releases what was acquired here. Raises ``Lost`` if the lease was lost before.

        A thread releases what it has acquired itself; among tasks, any may.
        """
        lease = self._held("release")
        # A block forgets its own lease when it is left, which may be elsewhere, and now.
        _, in_block = self._leases.get(lease, (0, True))
        if not in_block:
            self._leases.pop(lease, None)
        await self._client._run(lease._core.finish())

    async def locked(self) -> bool:
        """Whether anybody holds the key, or any of the keys. A round trip for each."""
        return bool(await BaseLock.holders(self))

    async def holders(self) -> list[Holder]:
        """Who holds the key, or any of the keys."""
        seen = [await BaseClient.inspect(self._client, key) for key in self.keys]
        return [holder for of_key in seen for holder in of_key.holders]

    async def adopt(self, parts: str, *, force: bool = False) -> _LeaseT:
        """Takes over the lease that another process has handed over (``lease.hand_over()``).

        With ``force`` it takes over ``lease.parts()`` of a process that is dead for sure. The
        lease shows the ``note`` of this lock, if it has one. Raises ``Lost`` if there is no such
        lease any more.
        """
        core = await self._take(self._core.adopt(parts, force, self._who()))
        return self._makes(self._client, core)

    async def recover(
        self, parts: str, timeout: Seconds | None = -1
    ) -> Recovered[_LeaseT]:
        """Goes on with the lease of ``parts`` after a crash, or acquires a new one.

        The process that had it has to be dead. The lease has a higher token, and the ``note`` of
        this lock, if it has one.
        """
        recover = self._core.recover(parts, timeout, self._who())
        core, is_new = await self._take(recover)
        return Recovered(self._makes(self._client, core), is_new)

    async def extend(self, additional_time: Seconds, replace_ttl: bool = False) -> bool:
        """Adds seconds to what remains of the lease: leases renew themselves, but not in a pause.

        With ``replace_ttl`` it renews the lease for as many from now. It never shortens one.

        >>> lock = lh.connect("memory:", ttl=30).mutex("backup")
        >>> with lock as lease:
        ...     lock.extend(60) and lease.remaining > 80
        True
        """
        lease = self._held("extend")
        if not replace_ttl:
            additional = _native.duration("additional_time", additional_time).total_seconds()
            additional_time = additional + lease.remaining
        await BaseLease.renew(lease, additional_time)
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
        ... def nightly() -> str:
        ...     return "done"
        >>> with client.mutex("nightly"):
        ...     print(nightly())
        None
        >>> nightly()
        'done'
        """
        wrong = "guard() needs a function: write @lock.guard(), below @classmethod"
        if hasattr(skip_if_busy, "__call__"):
            raise TypeError(wrong)

        def decorate(function: _Function) -> _Function:
            import inspect

            if not callable(function):
                raise TypeError(wrong)
            if is_any(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
                raise TypeError("guard() cannot hold a lock for a generator: use a block in it")
            if is_any(function, inspect.iscoroutinefunction) is not self._for_tasks:
                face = "connect() for a plain" if self._for_tasks else "aio.connect() for an async"
                raise TypeError(f"guard() needs a lock of leasehold_lock.{face} function")
            return functools.wraps(function)(self._guarded(function, skip_if_busy))  # type: ignore

        return decorate

    def _who(self) -> tuple[str | None, int | None]:
        """The secret of who may enter again, and the number of this thread's or task's work."""
        owner, work = self._shared_owner, None
        if owner is None and self._enters:
            owner = f"{_secret ^ os.getpid() << 64 ^ self._holder():032x}"
        if self._detects:
            work = hash((_secret, os.getpid(), self._holder())) % 2**64
        return owner, work

    def _claim(self, limit: Seconds | None, or_none: bool) -> Coroutine[Any, Any, Any]:
        """Waits for a lease of the core, which with ``or_none`` may be none."""
        return self._take(self._core.acquire(limit, or_none, self._who()))

    def _take(self, op: _native.Op[_T]) -> Coroutine[Any, Any, _T]:
        """Waits for what holds a key then, and is released with the process."""
        _listen()
        _release_with_process()
        return self._client._run(op)

    async def __aenter__(self) -> _LeaseT:
        block = self._block(sys._getframe())
        lease = self._makes(self._client, await self._claim(-1, False))
        self._leases[lease] = (self._holder(), block)
        return lease

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        lease = self._of_block(self._block(sys._getframe()))
        self._leases.pop(lease, None)
        await BaseLease.__aexit__(lease, kind)

    def _is_here(self, holder: int) -> bool:
        return holder == self._holder()

    def _block(self, frame: FrameType | None) -> object:
        """The frame that has the block, which a generator may leave on another thread.

        An object that keeps it leaves it in another function, perhaps in a frame of that address.
        """
        for _ in range(1 if self._for_tasks else 3):
            frame = frame and frame.f_back
        return id(frame), frame and frame.f_code

    def _of_block(self, block: object) -> _LeaseT:
        """Of that block; if an object keeps it, of the last of this thread or task, or the first.

        Fixtures and dependencies leave a block where they have not entered it.
        """
        blocks = [(it, by, of) for it, (by, of) in reversed(list(self._leases.items())) if of]
        ours = [it for it, _, of in blocks if of == block]
        ours = ours or [it for it, by, _ in blocks if self._is_here(by)]
        ours = ours or [it for it, _, _ in reversed(blocks)] or [self._held("leave")]
        return ours[0]

    def _held(self, to: str) -> _LeaseT:
        """The last of this thread or task; among tasks, else the first that another acquired."""
        found = None
        for lease, (by, in_block) in reversed(list(self._leases.items())):
            if lease._core.is_open:
                if self._is_here(by):
                    return lease
                if self._for_tasks and not in_block:
                    found = lease
        if found is None:
            message = f"cannot {to} {self.key!r}: it is not held here"
            raise make("NotHeld", message, key=self.key, operation=to)
        return found

    def __repr__(self) -> str:
        return f"<{_name(self)} of {self.key!r}>"


def is_any(function: Any, *kinds: Callable[[Any], bool]) -> bool:
    """Whether a function, or an object that is called like one, is of one of these kinds."""
    # `inspect` looks into neither a partial call of such an object nor a static method.
    while isinstance(function, (functools.partial, staticmethod)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return any(is_of(it) for it in (function, type(function).__call__) for is_of in kinds)


#: By it threads and tasks are owners that nobody else can guess, and by a number of their own:
#: those that Python gives them are used again.
_secret, numbers = secrets.randbits(128), itertools.count(1)


class BaseElection(BaseLock[_LeaseT]):
    """An election: a mutex whose holder leads. The token of its lease is the term."""

    async def leader(self) -> Holder | None:
        """Who leads now."""
        leaders = self._client._core.leaders(self.key)
        row = await self._client._run(leaders.next())
        return row and Holder(*row)

    async def leaders(self) -> AsyncGenerator[Holder | None, None]:
        """Yields who leads now, and then each change; ``None`` is nobody."""
        leaders = self._client._core.leaders(self.key)
        while True:
            row = await self._client._run(leaders.next())
            yield row and Holder(*row)

    async def __aiter__(self) -> AsyncGenerator[_LeaseT, None]:
        """Leads again and again: yields the lease of each term, and resigns it after its turn."""
        while True:
            term = await BaseLock.lease(self)
            try:
                yield term
            finally:
                await BaseLease.__aexit__(term, GeneratorExit)


class LossEvent:
    """Tells of the loss of a lease, like an ``Event`` that leasehold sets."""

    def __init__(self, client: BaseClient[Any, Any], core: _native.Lease) -> None:
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
    _instead = "hand it over with hand_over(), and adopt it there"

    def __init__(self, client: BaseClient[Any, Any], core: _native.Lease) -> None:
        self._client, self._core = client, core

    @property
    def key(self) -> str:
        """The key; the first of several."""
        return self._core.tokens[0][0]

    @property
    def tokens(self) -> dict[str, int | None]:
        """The token of each key."""
        return dict(self._core.tokens)

    @property
    def token(self) -> int | None:
        """The fencing token, higher than that of every lease before. Send it with each write.

        ``None`` for readers and permits, which are not alone, and with ``layout=classic``.
        """
        return self._core.tokens[0][1]

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

    async def set_note(self, note: str) -> None:
        """Replaces the note that others see of its holder, such as the address of a leader."""
        await self._client._run(self._core.set_note(note))

    async def rotate(self) -> None:
        """Replaces the secret id by which it is held, which others may have seen."""
        await self._client._run(self._core.rotate())

    def parts(self) -> str:
        """What ``recover()`` goes on with after a crash. It is a secret. No round trip."""
        return self._core.parts()

    async def hand_over(self) -> str:
        """Gives it away. Returns what ``adopt()`` needs within the TTL, which is a secret.

        With ``local:`` keep this process and its client until then: a lock ends with them there.

        >>> with lh.connect("memory:") as client:
        ...     parts = client.mutex("orders/42").lease().hand_over()
        ...     with client.mutex("orders/42").adopt(parts) as lease:
        ...         lease.is_valid()
        True
        """
        if not self._client._core.hands_over:
            # Given away, it would be taken until its TTL: nobody can adopt it there.
            raise make(
                "Unsupported", "this store cannot give a lease to another client",
                hint="release it here, and acquire it there", key=self.key, operation="hand_over",
            )
        handed_over = await self._client._run(self._core.hand_over(self._client._core))
        return handed_over.take()

    async def release(self) -> bool:
        """Releases it. Returns whether it was held until now; harmless if it is done twice."""
        return await self._client._run(self._core.release())

    async def __aenter__(self) -> Self:
        try:
            self.check()
        except LeaseholdError as ended:
            # Where one of several keys is lost, the others are still held.
            await BaseLease.__aexit__(self, type(ended))
            raise
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
        if core is not None and core.is_open:
            text = f"{self!r} was never released: it is released in the background"
            # Where one of several keys is lost, the others are still held.
            is_lost = core.is_lost
            # Who waits for its loss or records warnings, as pytest does, keeps the core, no hold.
            core.release()
            if not is_lost:
                warnings.warn(text, ResourceWarning, stacklevel=2, source=self)


def _name(self: object) -> str:
    return f"{type(self).__module__}.{type(self).__qualname__}"
