"""The fixtures of ``leasehold_lock.testing``, as users have them."""

from __future__ import annotations

import asyncio
import datetime
import subprocess
import threading

import faces
import leasehold_lock as lh
import pytest
from test_processes import script

before = []
threads, tasks = faces.Threads(), faces.Tasks()


def one_waits(client):
    threads.run(faces.waiting(threads, faces.Awaited(client), "k", 1))


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


def test_leases_end_when_the_clock_is_there(leasehold, leasehold_clock):
    lease = leasehold.mutex("k", ttl=100).lease()
    for ahead in (90, datetime.timedelta(seconds=90)):
        leasehold_clock.advance(ahead)
        lease.renew()
        assert lease.is_valid() and lease.remaining > 90
    leasehold_clock.advance(100)
    assert not lease.is_valid()
    assert lease.lost.wait(60)
    with pytest.raises(lh.Lost):
        lease.check()


def test_who_waits_gets_it_when_the_clock_is_there(leasehold, leasehold_aio, leasehold_clock):
    async def wait():
        waits = asyncio.ensure_future(leasehold_aio.mutex("k").lease(timeout=1000))
        await faces.waiting(tasks, leasehold_aio, "k", 1)
        leasehold_clock.advance(30)
        async with await waits as late:
            assert late.token > lease.token

    lease = leasehold.mutex("k").lease()
    asyncio.run(wait())
    assert not lease.is_valid()


@pytest.mark.parametrize("ahead", [1000, 0])
def test_waits_end_when_the_clock_is_there(leasehold, leasehold_clock, leasehold_url, ahead):
    ended = []

    def wait(lock):
        ended.append(lock.acquire(timeout=1000))
        if ended == [True]:
            lock.release()

    with lh.connect(leasehold_url, waiter_ttl=3600, ttl=3600) as other:
        with leasehold.mutex("k", ttl=3600):
            waits = threading.Thread(target=wait, args=[other.mutex("k")])
            waits.start()
            one_waits(leasehold)
            leasehold_clock.advance(ahead)
            if ahead:
                waits.join()
        waits.join()
    assert ended == [ahead == 0]


def test_a_time_that_is_none_leaves_the_clock(leasehold, leasehold_clock):
    with leasehold.mutex("k") as lease:
        for odd in (-1, float("nan"), "30"):
            with pytest.raises(lh.Invalid, match="seconds"):
                leasehold_clock.advance(odd)
        assert lease.is_valid()


def test_stores_that_others_share_keep_their_time(leasehold_clock, tmp_path):
    text = """
with lh.connect(url) as client, client.mutex("k", ttl=300):
    print(client.mutex("own").acquire(), flush=True)
    sys.stdin.readline()
"""
    url, pipe = f"local:{tmp_path}/store", subprocess.PIPE
    other = subprocess.Popen([*script(tmp_path, text), url], stdin=pipe, stdout=pipe, text=True)
    with other, lh.connect(url) as client:
        assert other.stdout.readline() == "True\n"
        leasehold_clock.advance(1000)
        assert not client.mutex("k").acquire(blocking=False)
        with client.mutex("mine") as lease:
            other.communicate("\n", timeout=60)
            client.mutex("k").lease(60).release()
            assert lease.is_valid()
