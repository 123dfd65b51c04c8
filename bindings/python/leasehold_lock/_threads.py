"""The face for threads: each call of the base is driven on the calling thread."""

from __future__ import annotations

import functools
import sys
import threading
import warnings

from . import _base


def _wait(call, ends=False):
    # Another thread may be in the middle of its import.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if running is not None and running() is not None:
        try:
            _warn_that_it_blocks()
        except RuntimeWarning:
            # Warnings are errors here: what ends a hold is done all the same.
            if not ends:
                call.close()
                raise
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a call of this face has suspended")


def _waiting(call, name):
    ends = call.__name__ in ("__aexit__", "release", "close")

    @functools.wraps(call)
    def waiting(*args, **kwargs):
        return _wait(call(*args, **kwargs), ends)

    waiting.__name__, waiting.__module__ = name, "leasehold_lock"
    return waiting


def _iterating(call, name):
    @functools.wraps(call)
    def iterating(*args, **kwargs):
        steps = call(*args, **kwargs)
        try:
            while True:
                yield _wait(steps.__anext__())
        finally:
            _wait(steps.aclose(), True)

    iterating.__name__, iterating.__module__ = name, "leasehold_lock"
    return iterating


def _not_async(self, *error):
    raise TypeError(f"a {type(self).__name__} of connect() is for threads: use leasehold_lock.aio")


def _face(cls):
    """Gives the class each coroutine of its base as a call that waits."""
    cls.__module__ = __package__
    for name, call in vars(cls.__base__).items():
        is_call = name.startswith("__") or not name.startswith("_")
        flags = getattr(call, "__code__", _face.__code__).co_flags
        makes = _waiting if flags & 0x80 else _iterating  # CO_COROUTINE, CO_ASYNC_GENERATOR
        if is_call and flags & 0x280:
            plain = name.replace("__a", "__")
            setattr(cls, plain, makes(call, plain))
            if plain != name:
                setattr(cls, name, _not_async)
    return cls


class _Thread(threading.local):
    def __init__(self):
        self.number = next(_base.numbers)


_thread = _Thread()


@_face
class LossEvent(_base.LossEvent):
    """Tells of the loss of a lease, like a ``threading.Event`` that leasehold sets."""


@_face
class Lease(_base.BaseLease):
    """A lease for threads."""

    _tells = LossEvent


@_face
class Lock(_base.BaseLock):
    """A lock for threads: ``with lock as lease``, or the calls of ``threading.Lock``."""

    _makes, _for_tasks, _holder = Lease, False, staticmethod(lambda: _thread.number)

    def _guarded(self, function, skip):
        def guarded(*args, **kwargs):
            core = _wait(self._claim(0 if skip else -1, skip))
            if core is None:
                return None
            with Lease(self._client, core):
                return function(*args, **kwargs)

        return guarded


@_face
class Election(_base.BaseElection, Lock):
    """An election for threads: ``with election as lease``, or ``for lease in election``."""


@_face
class Client(_base.BaseClient):
    """A client for threads, which share it. ``connect`` makes it."""

    _makes, _elects = Lock, Election


def connect(url, **options):
    """Opens the store at ``url``, such as ``redis://host/``, ``local:`` or ``memory:``."""
    return _wait(_base.BaseClient.__aenter__(Client(url, **options)))


@functools.cache
def _warn_that_it_blocks():
    text = "this call of leasehold_lock blocks the running event loop: use leasehold_lock.aio"
    warnings.warn(text, RuntimeWarning, stacklevel=4)
