"""What is of asyncio only: cancellation, loss, event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import os
import random
import signal
import socket
import time
import warnings
import weakref

import faces
import leasehold_lock as lh
import pytest


def scenario(test):
    def run(url):
        async def whole():
            async with lh.aio.connect(url) as client:
                await test(client)

        asyncio.run(whole())

    run.__name__ = test.__name__
    return run


tasks = faces.Tasks()


@scenario
async def test_a_cancelled_task_leaves_the_queue(client):
    async with client.mutex("k"):
        waiter = asyncio.ensure_future(client.mutex("k").acquire())
        await faces.waiting(tasks, client, "k", 1)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.mutex("k").acquire(), 0.02)
        await faces.waiting(tasks, client, "k", 0)
    assert not await client.mutex("k").locked()
    # Before Python 3.12 it is a task of its own that acquires it.
    lock = client.mutex("k")
    assert await asyncio.wait_for(lock.acquire(), 20)
    await lock.release()


@scenario
async def test_cancellation_at_any_time_leaves_nothing_held(client):
    chance = random.Random(1)

    async def work(number):
        async with client.mutex(f"k{number % 3}"):
            await asyncio.sleep(0)

    async def one(number):
        task = asyncio.ensure_future(work(number))
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() / 100)
        task.cancel()
        await asyncio.wait((task,))
        return task.cancelled()

    ends = await asyncio.gather(*(one(number) for number in range(300)))
    assert True in ends
    for number in range(3):
        await faces.free(tasks, client, f"k{number}")


@scenario
async def test_a_release_that_is_cancelled_goes_on(client):
    for _ in range(20):
        lease = await client.mutex("k", timeout=20).lease()
        release = asyncio.ensure_future(lease.release())
        await asyncio.sleep(0)
        release.cancel()
        await asyncio.wait((release,))
        assert not lease.is_valid()
    await faces.free(tasks, client, "k")


@scenario
async def test_a_hand_over_that_is_cancelled_with_its_answer_is_a_release(client):
    loop, lease = asyncio.get_running_loop(), await client.mutex("k", ttl=300).lease()

    class Answer(asyncio.Future):
        def set_result(self, result):
            super().set_result(result)
            giver.cancel()

    def future():
        del loop.create_future  # Only this one.
        return Answer(loop=loop)

    async def give():
        loop.create_future = future
        return await lease.hand_over()

    # The second call of a turn has its answer in another.
    first = asyncio.ensure_future(client.inspect("k"))
    giver = asyncio.ensure_future(give())
    await asyncio.wait((first, giver))
    assert giver.cancelled()
    await faces.free(tasks, client, "k")


@scenario
async def test_work_is_run_and_cancelled_when_the_lease_is_lost(client):
    seen = []

    async def add():
        return 1 + 1

    async def fail():
        raise KeyError("of the work")

    async def long():
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    lease = await client.mutex("k").lease()
    assert await lease.run(add()) == 2
    with pytest.raises(KeyError, match="of the work"):
        await lease.run(fail())

    cancelled = asyncio.ensure_future(lease.run(long()))
    while not seen:
        await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert seen == ["begun", "ended"] and lease.is_valid()

    lost = asyncio.ensure_future(lease.run(long()))
    while len(seen) < 3:
        await asyncio.sleep(0)
    await client.break_key("k")
    with pytest.raises(lh.Lost):
        await lost
    assert seen == ["begun", "ended"] * 2
    for work in (add(), long()):
        with pytest.raises(lh.Lost):
            await lease.run(work)
    with pytest.raises(lh.Lost):
        async with lease:
            pass

    lease = await client.mutex("k").lease()
    released = asyncio.ensure_future(lease.run(long()))
    while len(seen) < 5:
        await asyncio.sleep(0)
    assert await lease.release()
    with pytest.raises(lh.Lost, match="released"):
        await released
    with pytest.raises(lh.Lost, match="released"):
        await lease.run(long())
    assert seen == ["begun", "ended"] * 3, "work without a lease is not begun"


@scenario
async def test_a_guarded_task_is_cancelled_when_its_lease_is_lost(client):
    begun, ends = asyncio.Event(), []

    @client.mutex("k").guard()
    async def nightly():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("ended")

    assert inspect.iscoroutinefunction(nightly)
    lost = asyncio.ensure_future(nightly())
    await begun.wait()
    await client.break_key("k")
    with pytest.raises(lh.Lost):
        await lost
    begun.clear()
    cancelled = asyncio.ensure_future(nightly())
    await begun.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert ends == ["ended"] * 2
    await faces.free(tasks, client, "k")


@scenario
async def test_a_generator_that_another_task_closes_leaves_its_own_block(client):
    pool = client.semaphore("k", 2)

    async def block():
        async with pool as lease:
            yield lease

    async def enter(block):
        return await block.__anext__()

    of_another = block()
    lease = await asyncio.ensure_future(enter(of_another))
    async with pool as mine:
        await of_another.aclose()
        assert mine.is_valid() and not lease.is_valid()
    assert not await pool.locked()


@scenario
async def test_a_close_does_not_wait_for_observers_that_were_cancelled(client):
    changes = client.election("k").leaders()
    assert await changes.__anext__() is None
    next_change = asyncio.ensure_future(changes.__anext__())
    for _ in range(3):
        await asyncio.sleep(0)
    next_change.cancel()
    try:
        await next_change
    except asyncio.CancelledError:
        # Its traceback has the iteration.
        assert await client.close()


@scenario
async def test_a_term_is_over_when_its_loop_was_closed(client):
    election = client.election("k")
    async with contextlib.aclosing(aiter(election)) as terms:
        async for term in terms:
            break
    assert not term.is_valid() and await election.leader() is None


@scenario
async def test_an_object_for_threads_is_no_asynchronous_block(client):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It blocks this loop.
        other = lh.connect("memory:")
        with pytest.raises(TypeError, match="a Lock of connect.. is for threads: use leasehold"):
            async with other.mutex("k"):
                pass
        other.close()


@scenario
async def test_many_tasks_wait_at_once(client):
    async def work(number):
        for _ in range(3):
            async with client.mutex(f"k{number}") as lease:
                lease.check()

    await asyncio.gather(*(work(number) for number in range(64)))
    assert not await client.mutex("k0").locked()


def test_an_object_of_another_loop_is_refused(url):
    async def connect():
        client = await lh.aio.connect(url)
        return client, await client.mutex("k").lease()

    client, lease = asyncio.run(connect())

    async def use():
        for call in (client.mutex("k").acquire, lambda: lease.run(asyncio.sleep(20))):
            with pytest.raises(RuntimeError, match="belongs to .*Loop.*called in .*Loop"):
                await call()

    asyncio.run(use())
    lh._native.Client.close([client._core], 5).wait()  # Its event loop has ended.


def test_a_client_that_is_closed_while_it_connects_is_closed(own_server):
    async def whole():
        client = lh.aio.connect(own_server.url)
        own_server.process.send_signal(signal.SIGSTOP)
        acquired = asyncio.ensure_future(client.mutex("k").acquire())
        await asyncio.sleep(0)
        assert await client.close()
        own_server.process.send_signal(signal.SIGCONT)
        with pytest.raises(lh.Closed):
            await acquired

    asyncio.run(whole())


def test_calls_that_come_while_it_connects_fail_together():
    """By turns each would wait for those before it, whatever its own time-out is."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/"

        async def scenario():
            client = lh.aio.connect(url, operation_timeout=0.2)

            async def seconds(calls):
                began = time.monotonic()
                acquired = (client.mutex("k").acquire(timeout=1) for _ in range(calls))
                failed = await asyncio.gather(*acquired, return_exceptions=True)
                assert all(type(error) is lh.Unavailable and error.hint for error in failed)
                return time.monotonic() - began

            # Those who come later try again.
            alone = [await seconds(1), await seconds(1)]
            assert await seconds(30) < 10 * max(alone)
            await client.close()

        asyncio.run(scenario())


def test_where_there_is_no_loop_it_says_so(url):
    with pytest.raises(RuntimeError, match="needs a running asyncio event loop"):
        lh.aio.connect(url).mutex("k").acquire().send(None)


def test_a_bridge_is_closed_with_its_loop(url):
    async def use():
        async with lh.aio.connect(url) as client:
            async with client.mutex("k"):
                pass

    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(use())
    before, end = descriptors(), time.monotonic() + 20
    for _ in range(20):
        asyncio.run(use())
    while descriptors() > before:
        assert time.monotonic() < end, "descriptors are left"


def test_a_loop_that_ends_with_waiting_tasks_leaves_nothing(url):
    other = lh.connect(url)
    lease = other.mutex("k").lease()

    async def wait():
        client = await lh.aio.connect(url)
        asyncio.ensure_future(client.mutex("k").acquire())
        await faces.waiting(tasks, client, "k", 1)

    asyncio.run(wait())
    until_nobody_waits(other)
    assert lease.release()
    other.close()


def test_a_loop_that_is_only_closed_is_garbage(url):
    other = lh.connect(url)
    lease = other.mutex("k").lease()

    async def wait():
        client = await lh.aio.connect(url)
        asyncio.ensure_future(client.mutex("k").acquire())
        await faces.waiting(tasks, client, "k", 1)

    # Not as asyncio.run ends it: neither its tasks nor its generators are.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait())
    loop.set_exception_handler(lambda *_: None)
    loop.close()
    gone = weakref.ref(loop)
    del loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    assert gone() is None
    until_nobody_waits(other)
    assert lease.release()
    other.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request):
    loop = importlib.import_module(request.param).new_event_loop()
    yield loop
    loop.close()


def test_a_closed_loop_that_is_kept_waits_for_nothing(url, loop):
    other = lh.connect(url)
    lease = other.mutex("k").lease()

    async def wait():
        client = await lh.aio.connect(url)
        waiter = asyncio.ensure_future(client.mutex("k").acquire())
        await faces.waiting(tasks, client, "k", 1)
        return client, waiter

    kept = loop.run_until_complete(wait())
    loop.set_exception_handler(lambda *_: None)
    loop.close()
    until_nobody_waits(other)
    assert lease.release()
    with other, other.mutex("k", timeout=0):
        del kept


def test_a_generator_that_the_end_of_a_loop_finds_in_a_block_leaves_it(url, loop):
    async def holds(client):
        async with client.mutex("k") as lease:
            yield lease

    async def hold():
        held = holds(await lh.aio.connect(url))
        assert (await held.__anext__()).is_valid()
        return held

    # As asyncio.run ends it, which would wait for ever.
    held = loop.run_until_complete(hold())
    loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), 20))
    loop.close()
    with lh.connect(url) as other, other.mutex("k", timeout=0):
        del held


def until_nobody_waits(client):
    end = time.monotonic() + 20
    while client.inspect("k").waiters:
        assert time.monotonic() < end, "it waits on"


async def cancelled(client, work, times=1):
    """What came of a task that held a lock for ``work`` when it was cancelled so often."""
    begun = asyncio.Event()

    async def job():
        async with client.mutex("k") as lease:
            await lease.run(work(begun))

    task = asyncio.ensure_future(job())
    await begun.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((task,))
    return task


@scenario
async def test_work_has_ended_when_its_lease_is_released(client):
    steps = []

    async def work(begun):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            # As `anyio` does it: each turn of the loop cancels once more.
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
            steps.append(await client.mutex("k").locked())

    assert (await cancelled(client, work, times=2)).cancelled()
    assert steps == [True]


@scenario
async def test_what_fails_while_work_is_cancelled_is_raised(client):
    async def work(begun):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("the disk is full")

    assert isinstance((await cancelled(client, work)).exception(), ValueError)


@scenario
async def test_guarded_work_enters_again(client):
    lock = client.reentrant("k", timeout=60)

    @lock.guard()
    async def deep(times):
        return 0 if times == 0 else 1 + await deep(times - 1)

    # Python 3.12 and later have tasks that begin at once.
    for factory in (None, getattr(asyncio, "eager_task_factory", None)):
        asyncio.get_running_loop().set_task_factory(factory)
        assert await deep(2) == 2
