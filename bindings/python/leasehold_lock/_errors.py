"""The exceptions. Each says what the caller can do."""

from __future__ import annotations


class LeaseholdError(Exception):
    """The base of all exceptions of leasehold."""

    #: What to do about it, if there is advice.
    hint: str | None = None
    #: The key, if it is about one.
    key: str | None = None
    #: What failed: ``"acquire"``, ``"renew"``, ``"release"``...
    operation: str | None = None
    #: After how many seconds another try may succeed.
    retry_after: float | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class Timeout(LeaseholdError, TimeoutError):
    """The key did not become free in time. Try later."""

    lock_file: str | None = None  #: The path, if it is of a ``FileLock``.


class Deadlock(LeaseholdError):
    """The claim was part of a deadlock. Release all locks of this work, and start it again."""


class Lost(LeaseholdError):
    """The lease is lost. Stop now: another may hold the key."""


class Unavailable(LeaseholdError, ConnectionError):
    """The store did not answer, or cannot do it now. It is safe to ask again."""


class Refused(LeaseholdError):
    """The store refused, with a reason."""


class Invalid(LeaseholdError, ValueError):
    """The request is invalid. Correct it."""


class Unsupported(LeaseholdError):
    """The store does not support it."""


class Corrupt(LeaseholdError):
    """The key has data that is damaged, or not leasehold's. Nothing was overwritten."""


class Closed(LeaseholdError):
    """The client is closed, or belongs to another process. Connect again."""


class NotHeld(LeaseholdError, RuntimeError):
    """This thread or task does not hold the lock that it releases."""


class Fenced(LeaseholdError):
    """A write was refused: a higher token has been seen, so its lease is over."""


_KINDS = {kind.__name__: kind for kind in LeaseholdError.__subclasses__()}


def make(
    kind: str, message: str, hint: str | None = None, key: str | None = None,
    operation: str | None = None, retry_after: float | None = None,
) -> LeaseholdError:
    """The exception of an error of the core."""
    error = _KINDS.get(kind, LeaseholdError)(message)
    error.hint, error.key, error.operation, error.retry_after = hint, key, operation, retry_after
    return error
