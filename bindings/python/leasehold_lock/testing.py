"""Fixtures of pytest: clients on a ``memory:`` store that is new in each test, and their clock.

Name them in ``conftest.py``: ``pytest_plugins = ["leasehold_lock.testing"]``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from . import Client, _native, aio, connect
from ._types import Seconds

_numbers = itertools.count()


@pytest.fixture
def leasehold_url() -> str:
    """The URL of the store of this test, for code that connects by itself."""
    return f"memory:leasehold-testing-{next(_numbers)}"


@pytest.fixture
def leasehold(leasehold_url: str) -> Iterator[Client]:
    """A client for threads."""
    with connect(leasehold_url) as client:
        yield client


@pytest.fixture
def leasehold_aio(leasehold_url: str) -> Iterator[aio.Client]:
    """A client of the same store for the event loop in which the test first uses it."""
    client = aio.connect(leasehold_url)
    yield client
    _native.Client.close([client._core], 5).wait()  # Its event loop may have ended.


class Clock:
    """The clock of clients, and of the ``memory:`` stores of this process."""

    def advance(self, seconds: Seconds) -> None:
        """Lets so much time pass at once, as if the process had stood still for so long.

        Leases whose TTL is over are lost, waits whose time is over end with ``Timeout``, and
        renewals that are due are sent. Other stores and asyncio's own timers keep their time.
        """
        _native.advance(seconds).wait()


@pytest.fixture
def leasehold_clock() -> Clock:
    """The clock, to be set ahead by ``advance``. It runs on by itself."""
    return Clock()
