"""The fixtures of ``leasehold_lock.testing``, as users have them."""

from __future__ import annotations

import asyncio

import leasehold_lock as lh
import pytest

before = []


@pytest.mark.parametrize("number", range(2))
def test_each_test_has_a_store_of_its_own(leasehold, number):
    lock = leasehold.mutex("k")
    assert lock.acquire(blocking=False)
    assert not any(one.owned() for one in before), "the fixture releases what a test leaves"
    before.append(lock)


def test_both_clients_are_of_one_store(leasehold, leasehold_aio, leasehold_url):
    async def use():
        assert not await leasehold_aio.mutex("k").acquire(blocking=False)
        return await leasehold_aio.mutex("left").lease()

    with leasehold.mutex("k"):
        before.append(asyncio.run(use()))
        with lh.connect(leasehold_url) as other, pytest.raises(lh.Timeout):
            other.mutex("k").lease(timeout=0)


def test_a_client_for_tasks_is_closed_after_its_loop(leasehold_aio):
    assert before and not before[-1].is_valid()
    assert leasehold_aio.url is None
