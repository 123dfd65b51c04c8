"""Fixtures of pytest: clients on a ``memory:`` store that is new in each test.

Name them in ``conftest.py``: ``pytest_plugins = ["leasehold_lock.testing"]``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from . import Client, aio, connect

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
    client._core.close(5).wait()  # Its event loop may have ended.
