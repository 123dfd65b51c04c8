"""A lock on a path, with the calls of the package ``filelock``."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from ._base import is_any
from ._errors import LeaseholdError, Refused, Timeout
from ._threads import Client, Lease

_Function = TypeVar("_Function", bound=Callable[..., Any])

_clients: weakref.WeakValueDictionary[str, Client] = weakref.WeakValueDictionary()


class FileLock(contextlib.ContextDecorator):
    """Does not exclude users of ``filelock`` on that path, needs a local disk, not for Windows.

    The calls are those of ``filelock.FileLock``; a thread may acquire it several times. The lock
    is in the directory ``.leasehold`` beside the path. ``poll_interval`` is ignored.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     lock = lh.FileLock(os.path.join(directory, "cache.lock"), timeout=5)
    ...     with lock, lock.acquire(timeout=1):
    ...         print(lock.is_locked, lock.lock_counter)
    True 2
    """

    def __init__(
        self, lock_file: str | os.PathLike[str], timeout: float = -1, *, blocking: bool = True,
        poll_interval: float = 0.05,
    ) -> None:
        self.lock_file, self.timeout = os.fspath(lock_file), timeout
        self.blocking, self.poll_interval = blocking, poll_interval
        self._directory, name = os.path.split(os.path.realpath(lock_file))
        inside = os.path.join(self._directory, ".leasehold")
        self._url = "local:" + urllib.parse.quote(os.fsencode(inside))
        key = os.fsencode(name).decode(errors="backslashreplace")  # A name need not be UTF-8.
        self._lock = _clients.setdefault(self._url, Client(self._url)).mutex(key)
        self._of_thread = threading.local()

    @property
    def _levels(self) -> list[Lease]:
        """The lease of this thread, as many times as it has acquired it in this process."""
        levels: list[Lease] = self._of_thread.__dict__.setdefault(str(os.getpid()), [])
        return levels

    @property
    def lock_counter(self) -> int:
        """How many times this thread has acquired it."""
        return len(self._levels)

    @property
    def is_locked(self) -> bool:
        """Whether this thread holds it. No round trip."""
        return any(lease.is_valid() for lease in self._levels)

    def acquire(
        self, timeout: float | None = None, poll_interval: float | None = None, *,
        blocking: bool | None = None,
    ) -> _Acquired:
        """Acquires it; ``with lock.acquire()`` releases it. Raises ``Timeout``, ``Lost``."""
        limit = self.timeout if timeout is None else timeout
        limit = limit if (self.blocking if blocking is None else blocking) else 0
        if self._levels:
            self._levels[-1].check()
            self._levels.append(self._levels[-1])
        else:
            try:
                lease = self._lease(None if limit < 0 or limit == float("inf") else limit)
            except Timeout as busy:
                busy.lock_file = self.lock_file
                raise
            self._levels.append(lease)
        return _Acquired(self)

    def _lease(self, limit: float | None) -> Lease:
        if self._lock._client.url is None:
            os.makedirs(self._directory, exist_ok=True)
            return self._lock.lease(limit)
        began = time.monotonic()
        try:
            return self._lock.lease(limit)
        except Refused:
            # Its directory may have been removed: a client does not go on in another.
            client = _clients[self._url] = Client(self._url)
            self._lock = client.mutex(self._lock.key)
        if limit is not None:
            limit = max(0.0, limit - (time.monotonic() - began))
        return self._lease(limit)

    def release(self, force: bool = False) -> None:
        """Releases it once, or entirely with ``force``; harmless if not held. Raises ``Lost``."""
        if force:
            del self._levels[:-1]
        if len(self._levels) > 1:
            self._levels.pop()
        elif self._levels:
            self._levels.pop().__exit__(None)

    def __call__(self, function: _Function) -> _Function:
        """Holds it while ``function`` runs."""
        import inspect

        kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
        if is_any(function, *kinds):
            raise TypeError("FileLock holds for plain functions only: use a block in this one")
        return super().__call__(function)

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        with contextlib.suppress(*([LeaseholdError] if kind else [])):
            self.release()


class _Acquired:
    """What ``with lock.acquire()`` releases."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def __enter__(self) -> FileLock:
        return self.lock

    def __exit__(self, *error: Any) -> None:
        self.lock.__exit__(*error)
