"""What both faces promise, on each store."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import functools
import gc
import pickle
import signal
import sys

import faces
import leasehold_lock as lh
import pytest
from leasehold_lock._types import LockOptions


def scenario(test):
    """Runs a scenario with a client of each face."""

    def run(face, url):
        async def whole():
            client = await face.connect(url)
            try:
                await test(face, client, url)
            finally:
                await client.close()

        face.run(whole())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scenario
async def test_one_holds_it_at_a_time(face, client, url):
    inside, most, turns, tokens = 0, 0, 0, []

    async def work():
        nonlocal inside, most, turns
        for _ in range(5):
            async with client.mutex("k") as lease:
                inside += 1
                most = max(most, inside)
                tokens.append(lease.token)
                await face.pause()
                inside -= 1
                turns += 1

    for started in [face.start(work()) for _ in range(6)]:
        await started
    assert (most, turns) == (1, 30)
    assert tokens == sorted(set(tokens)), "tokens rise in the order of grants"
    await faces.free(face, client, "k")


@scenario
async def test_waiters_are_served_in_order(face, client, url):
    order = []

    async def work(number):
        async with client.mutex("k"):
            order.append(number)

    async with client.mutex("k"):
        started = []
        for number in range(4):
            started.append(face.start(work(number)))
            await faces.waiting(face, client, "k", number + 1)
    for one in started:
        await one
    assert order == [0, 1, 2, 3]


@scenario
async def test_of_a_deadlock_the_youngest_gives_up(face, client, url):
    ended = []

    async def work(first, second, waiters):
        async with client.mutex(first, deadlock_timeout=0.1):
            await faces.held(face, client, second)
            await faces.waiting(face, client, first, waiters)
            # A time to wait goes with it.
            for_second = client.mutex(second, deadlock_timeout=0.1, timeout=60)
            try:
                async with for_second:
                    ended.append(f"{first} and {second}")
            except lh.Deadlock as deadlock:
                ended.append(str(deadlock))

    # The second waits once the first does.
    for started in [face.start(work("a", "b", 0)), face.start(work("b", "a", 1))]:
        await started
    gave_up, had_both = ended
    assert had_both == "a and b"
    assert gave_up.startswith("cannot acquire \"a\": gave up in a deadlock: "), gave_up
    assert "holds a and waits for b" in gave_up and "holds b and waits for a" in gave_up
    await faces.free(face, client, "a")


@scenario
async def test_a_busy_key_is_tried_or_waited_for(face, client, url):
    other = await face.connect(url)
    async with client.mutex("k"):
        lock = other.mutex("k")
        assert not await lock.acquire(blocking=False)
        assert not await lock.acquire(timeout=0)
        assert not await lock.acquire(timeout=0.02)
        assert not await lock.acquire(timeout=datetime.timedelta(milliseconds=20))
        assert not lock.owned() and await lock.locked()
        with pytest.raises(lh.Timeout) as caught:
            async with other.mutex("k", timeout=0.02):
                pass
        assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, lh.LeaseholdError)
        assert (caught.value.key, caught.value.operation) == ("k", "acquire")
    assert await lock.acquire(blocking=False)
    assert lock.owned()
    await lock.release()
    assert not lock.owned() and not await lock.locked()
    await other.close()


@scenario
async def test_a_lease_is_renewed_and_released_once(face, client, url):
    lease = await client.mutex("k", ttl=30).lease()
    assert 20 < lease.remaining <= 30 and lease.is_valid()
    await lease.renew(ttl=datetime.timedelta(minutes=10))
    assert 500 < lease.remaining <= 600
    assert await lease.release() and not await lease.release()
    assert lease.remaining == 0 and not lease.is_valid() and not lease.lost.is_set()
    with pytest.raises(lh.Lost, match="was released"):
        lease.check()
    with pytest.raises(lh.Lost, match="was released"):
        await lease.renew()


@scenario
async def test_a_lease_that_is_broken_is_lost(face, client, url):
    async with client.mutex("k", timeout=1) as lease:
        # The exception of the work is what is seen of this block.
        with pytest.raises(KeyError):
            async with lease:
                watching = face.start(lease.lost.wait())
                assert await client.break_key("k") == 1
                assert await watching, "whoever waits is told"
                assert lease.lost.is_set() and not lease.is_valid()
                with pytest.raises(lh.Lost) as caught:
                    lease.check()
                assert caught.value.hint and caught.value.key == "k"
                with pytest.raises(lh.Lost):
                    await lease.renew()
                raise KeyError
    # It was released inside: a second release says nothing.


@scenario
async def test_a_block_of_a_lease_that_has_ended_is_not_begun(face, client, url):
    released, lost = await client.mutex("a").lease(), await client.multi(["b", "c"]).lease()
    await released.release()
    await client.break_key("b")
    assert await lost.lost.wait(20)
    for lease in (released, lost):
        with pytest.raises(lh.Lost):
            async with lease:
                pytest.fail("it has begun")
    await faces.free(face, client, "c")


@scenario
async def test_a_block_whose_lease_was_lost_says_so(face, client, url):
    with pytest.raises(lh.Lost):
        async with client.mutex("k") as lease:
            await client.break_key("k")
            await lease.lost.wait()


@scenario
async def test_readers_share_and_permits_count(face, client, url):
    rw = client.rwlock("config", timeout=0.02)
    async with rw.read as one, rw.read as two:
        assert one.token is None and two.is_valid()
        with pytest.raises(lh.Timeout):
            await rw.write.lease()
    async with rw.write as writer:
        assert writer.token
        assert not await rw.read.acquire()
    pool = client.semaphore("pool", 3, take=2, timeout=0.02)
    async with pool:
        assert not await pool.acquire()
        async with client.semaphore("pool", 3) as last:
            assert last.is_valid()


@scenario
async def test_who_holds_and_waits_is_shown(face, client, url):
    async with client.mutex("k", label="billing") as lease:
        assert (await client.inspect("k")).holders[0][2:4] == ("billing", lease.token)
        waiter = face.start(client.mutex("k", label="next").lease())
        await faces.waiting(face, client, "k", 1)
        assert (await client.inspect("k")).waiters[0][2:4] == ("next", 1)
    assert await (await waiter).release()


@scenario
async def test_who_waits_for_the_loss_of_garbage_keeps_no_hold(face, client, url):
    with pytest.warns(ResourceWarning, match="never released: it is released in the background"):
        lost = (await client.mutex("k").lease()).lost
        gc.collect()
    await faces.free(face, client, "k")
    assert not await lost.wait(20) and not lost.is_set()
    lost = (lease := await client.multi(["a", "b"]).lease()).lost
    await client.break_key("a")
    assert await lost.wait(20)
    del lease
    gc.collect()
    await faces.free(face, client, "b")


@scenario
async def test_garbage_is_released_with_a_warning(face, client, url):
    lease = await client.mutex("k").lease()
    with pytest.warns(ResourceWarning, match="'k'.*never released") as recorded:
        del lease
        gc.collect()
    await faces.free(face, client, "k")
    assert recorded.list, "which keeps what it is about"


@scenario
async def test_garbage_is_released_where_warnings_are_errors(face, client, url):
    lease, errors = await client.mutex("k").lease(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", errors.append)
        del lease
        gc.collect()
    await faces.free(face, client, "k")
    kept = [error.exc_type for error in errors]
    assert ResourceWarning in kept, "with the frame in which it was raised"


@scenario
async def test_a_thread_releases_what_it_has_acquired_and_any_task_does(face, client, url):
    lock = client.mutex("k")
    assert await lock.acquire()

    async def other():
        if isinstance(face, faces.Tasks):
            assert lock.owned()
            return await lock.release()
        assert not lock.owned()
        with pytest.raises(lh.NotHeld) as caught:
            await lock.release()
        assert isinstance(caught.value, RuntimeError)

    await face.start(other())
    if lock.owned():
        await lock.release()
    for operation, call in {"release": lock.release, "reacquire": lock.reacquire}.items():
        with pytest.raises(lh.NotHeld) as caught:
            await call()
        assert (caught.value.key, caught.value.operation) == ("k", operation)


@scenario
async def test_what_a_block_acquires_after_its_release_ends_with_it(face, client, url):
    lock = client.mutex("k", timeout=5)
    async with lock as lease:
        await lock.release()
        assert not lock.owned()
        assert await lock.acquire() and lock.owned() and not lease.is_valid()
    assert not lock.owned() and not await lock.locked()
    # What it acquires beside its own lease outlives it, as without a block.
    pool = client.semaphore("pool", 2, timeout=5)
    async with pool as lease:
        assert await pool.acquire()
    assert pool.owned() and not lease.is_valid()
    await pool.release()


def test_a_generator_that_another_thread_closes_leaves_its_own_block():
    def block(lock):
        with lock as lease:
            yield lease

    with lh.connect("memory:") as client, concurrent.futures.ThreadPoolExecutor() as others:
        pool = client.semaphore("k", 2)
        of_another = block(pool)
        lease = others.submit(next, of_another).result()
        with pool as mine:
            of_another.close()
            assert mine.is_valid() and not lease.is_valid()
        assert not pool.locked()


@scenario
async def test_a_block_may_be_left_elsewhere(face, client, url):
    """As that of a fixture or a dependency, which is left in another task or thread."""
    lock = client.semaphore("k", 2)

    async def block():
        async with lock as lease:
            yield lease

    async def enter(block):
        return await block.__anext__()

    async def leave(block):
        with pytest.raises(StopAsyncIteration):
            await block.__anext__()

    first, second = block(), block()
    lease = await face.start(enter(first))
    async with lock as mine:
        await face.start(leave(first))
        assert not lease.is_valid() and mine.is_valid()
        await lock.release()
        lease = await face.start(enter(second))
    assert lease.is_valid() and not mine.is_valid(), "what was released before is not missed"
    await face.start(leave(second))
    await faces.free(face, client, "k")


@scenario
async def test_who_comes_later_is_no_earlier_owner(face, client, url):
    """Python gives the numbers of threads and tasks that have ended to others."""
    lock = client.reentrant("k", timeout=0.01)

    async def leased():
        return await lock.lease()

    lease = await face.start(leased())
    for _ in range(30):
        assert not await face.start(lock.acquire())
    assert await lease.release()


@scenario
async def test_the_calls_of_redis_py_and_threading(face, client, url):
    lock, other = client.mutex("k", ttl=30), client.mutex("k")
    assert await lock.acquire(True, -1) and not await other.acquire(0)
    assert not await other.acquire(blocking=None, blocking_timeout=0.01, sleep=0.1)
    assert not await other.acquire(blocking=False, blocking_timeout=300)
    await lock.release()
    async with lock as lease:
        assert await lock.extend(datetime.timedelta(minutes=1)) is True
        assert 80 < lease.remaining <= 90
        assert await lock.extend(200, replace_ttl=True)
        assert 190 < lease.remaining <= 200
        assert await lock.reacquire() and lease.remaining > 190, "it is never shortened"
        with pytest.raises(lh.Invalid, match="ttl=-5 is not a time"):
            await lock.extend(-5, replace_ttl=True)
        for bad in BAD_TIMES:
            with pytest.raises(lh.Invalid, match="additional_time=.* is not a time"):
                await lock.extend(bad)
        with pytest.raises(lh.NotHeld, match="cannot extend 'k': it is not held here"):
            await other.extend(1)
        await client.break_key("k")
        await lease.lost.wait()
        for lost in (lock.extend(1), lock.reacquire()):
            with pytest.raises(lh.Lost):
                await lost
        with pytest.raises(lh.Lost):
            await lock.release()
    for call in (lock.reacquire, lock.release):
        with pytest.raises(lh.NotHeld):
            await call()


@scenario
async def test_a_guarded_function_runs_under_the_lock(face, client, url):
    async def pay(self, amount, *, to):
        """Pays."""
        if amount < 0:
            raise KeyError(amount)
        assert (await client.inspect("k")).holders[0].label == "pay"
        return self, amount, to

    lock = client.mutex("k", label="pay")
    account = type("Account", (), {"pay": lock.guard()(face.function(pay))})()
    assert await face.call(functools.partial(account.pay, to="you"), 5) == (account, 5, "you")
    assert (account.pay.__name__, account.pay.__doc__) == ("pay", "Pays.")
    with pytest.raises(KeyError):
        await face.call(functools.partial(account.pay, to="you"), -1)
    await faces.free(face, client, "k")


@scenario
async def test_a_guarded_function_waits_or_is_skipped(face, client, url):
    async def work():
        return "done"

    waits = client.mutex("k", timeout=0.02).guard()(face.function(work))
    skips = client.mutex("k", timeout=300).guard(skip_if_busy=True)(face.function(work))
    assert await face.call(skips) == "done"
    async with client.mutex("k"):
        assert await face.call(skips) is None
        with pytest.raises(lh.Timeout):
            await face.call(waits)
    assert await face.call(waits) == "done"
    await faces.free(face, client, "k")


@scenario
async def test_a_guarded_function_that_loses_its_lease_says_so(face, client, url):
    async def work():
        await client.break_key("k")
        return "done"

    with pytest.raises(lh.Lost):
        await face.call(client.mutex("k").guard()(face.function(work)))
    await faces.free(face, client, "k")


@scenario
async def test_a_guard_of_what_it_cannot_hold_is_refused(face, client, url):
    async def task():
        pass

    async def tasks():
        yield

    def items():
        yield

    class Task:
        async def __call__(self):
            assert await client.mutex("k").locked()
            return "done"

    class Tasks:
        async def __call__(self):
            yield

    class Items:
        def __call__(self):
            yield

    for called in (Task(), functools.partial(Task())):
        if isinstance(face, faces.Tasks):
            assert await client.mutex("k").guard()(called)() == "done"
        else:
            with pytest.raises(TypeError, match="aio.connect.. for an async function"):
                client.mutex("k").guard()(called)
    wrong = face.run if isinstance(face, faces.Tasks) else task
    for other in (wrong, staticmethod(wrong)):
        with pytest.raises(TypeError, match="guard.. needs a lock of leasehold_lock"):
            client.mutex("k").guard()(other)
    for generator in (tasks, items, Tasks(), Items(), staticmethod(items)):
        with pytest.raises(TypeError, match="use a block in it"):
            client.mutex("k").guard()(generator)
    # Above another decorator, and without its parentheses.
    lock = client.mutex("k")
    for guard, function in ((lock.guard(), classmethod(task)), (lock.guard, task)):
        with pytest.raises(TypeError, match="write @lock.guard.., below @classmethod"):
            guard(function)


@scenario
async def test_closing_ends_what_is_held_and_waited_for(face, client, url):
    other = await face.connect(url)
    lease = await other.mutex("k").lease()
    waiter = face.start(other.mutex("k").acquire())
    await faces.waiting(face, client, "k", 1)
    assert await other.close(timeout=datetime.timedelta(seconds=5))
    with pytest.raises(lh.Closed):
        await waiter
    assert lease.lost.is_set()
    with pytest.raises(lh.Closed):
        await other.mutex("k").acquire()
    with pytest.raises(lh.Closed):
        async with other:
            pytest.fail("it was opened again")
    await faces.free(face, client, "k")


@scenario
async def test_nothing_is_pickled_and_no_secret_shown(face, client, url):
    lock = client.mutex("k")
    async with lock as lease:
        for one, instead in ((client, "send"), (lock, "send"), (lease, "hand it over")):
            one = getattr(one, "of", one)
            with pytest.raises(TypeError, match=f"cannot be pickled: {instead}"):
                pickle.dumps(one)
            assert repr(one).startswith("<leasehold_lock.")
        assert "'k'" in repr(getattr(lease, "of", lease))


BAD_TIMES = [-1, -0.001, float("nan"), float("inf"), 86400e3, True, "5", datetime.timedelta(seconds=-1)]


@scenario
async def test_bad_input_is_refused_in_one_sentence(face, client, url):
    for key in ("", "x" * 513, "a\0b"):
        with pytest.raises(lh.Invalid) as caught:
            client.mutex(key)
        assert isinstance(caught.value, ValueError)
    for bad in BAD_TIMES:
        with pytest.raises(lh.Invalid, match="ttl=.* is not a time"):
            client.mutex("k", ttl=bad)
        with pytest.raises(lh.Invalid, match="timeout=.* is not a time"):
            client.mutex("k", timeout=bad)
    for bad, shown in (("5", "'5'"), (datetime.timedelta(seconds=-1), "-1.0")):
        with pytest.raises(lh.Invalid, match=f"timeout={shown} is not a time"):
            client.mutex("k", timeout=bad)
    with pytest.raises(lh.Invalid, match="out of bounds"):
        await client.mutex("k", ttl=0.001).acquire()
    with pytest.raises(lh.Invalid, match="no timeout"):
        await client.mutex("k").acquire(blocking=False, timeout=1)
    with pytest.raises(lh.Invalid, match="permits=0"):
        client.semaphore("k", 0)
    with pytest.raises(TypeError, match=r"mutex\(\) got an unexpected keyword argument 'tll'"):
        client.mutex("k", tll=1)
    with pytest.raises(TypeError, match=r"rwlock\(\) got an unexpected keyword argument 'tll'"):
        client.rwlock("k", tll=None)
    async with client.mutex("k", **dict.fromkeys(LockOptions.__annotations__)) as lease:
        assert lease.remaining > 20
    unconnected = lh.aio.connect("redis://127.0.0.1:1/")
    for key in ("", "a\0b"):
        with pytest.raises(lh.Invalid):
            unconnected.mutex(key)


BAD_URLS = {
    "redis:/x": (lh.Invalid, "write redis://"),
    "foo://x": (lh.Invalid, "redis://host/"),
    "postgres://:hidden@127.0.0.1:1/db": (lh.Unavailable, "refused"),
    "zookeeper://127.0.0.1:1/": (lh.Unavailable, "127.0.0.1:1"),
    "redis://:hidden@127.0.0.1:1/": (lh.Unavailable, "refused"),
}


@pytest.mark.parametrize("bad", BAD_URLS)
def test_a_bad_url_says_what_to_write(face, bad):
    kind, text = BAD_URLS[bad]

    async def connect():
        with pytest.raises(kind, match=text) as caught:
            await face.connect(bad)
        assert "hidden" not in str(caught.value) and caught.value.operation == "connect"
        if kind is lh.Unavailable:
            assert isinstance(caught.value, ConnectionError) and caught.value.hint

    face.run(connect())


def test_options_of_connect_are_checked(face):
    async def connect():
        with pytest.raises(TypeError, match="'tll'"):
            await face.connect("memory:", tll=1)
        with pytest.raises(TypeError, match="'tll'"):
            await face.connect("memory:", tll=None)
        with pytest.raises(lh.Invalid, match="ttl=-1"):
            await face.connect("memory:", ttl=-1)
        client = await face.connect("memory:", ttl=2, label="jobs")
        async with client.mutex("k") as lease:
            assert lease.remaining <= 2
            assert (await client.inspect("k")).holders[0].label == "jobs"
        await client.close()

    face.run(connect())


def test_a_server_that_stops_answering_ends_the_lease(face, own_server):
    async def scenario():
        client = await face.connect(own_server.url, ttl=0.5, operation_timeout=0.2)
        lease = await client.mutex("k").lease()
        own_server.process.send_signal(signal.SIGSTOP)
        assert await lease.lost.wait(20)
        with pytest.raises(lh.Lost):
            lease.check()
        with pytest.raises(lh.Unavailable, match="the time limit of the call is 100ms"):
            await client.mutex("other").acquire(timeout=0.1)
        own_server.process.send_signal(signal.SIGCONT)
        # It lost the first lease, and goes on.
        again = await client.mutex("k").lease(timeout=20)
        assert await again.release()
        await client.close()

    face.run(scenario())


def test_the_time_to_connect_is_a_part_of_the_time_out(own_server, leasehold_clock):
    async def scenario():
        async with lh.aio.connect(own_server.url) as holder:
            lease = await holder.mutex("k", ttl=300).lease()
            slow = own_server.url + "?connect_timeout=5m&response_timeout=5m"
            late = lh.aio.connect(slow, operation_timeout=30)
            own_server.process.send_signal(signal.SIGSTOP)
            waits = asyncio.ensure_future(late.mutex("k", timeout=20).lease())
            for _ in range(3):  # Then it has begun.
                await asyncio.sleep(0)
            leasehold_clock.advance(21)
            own_server.process.send_signal(signal.SIGCONT)
            with pytest.raises(lh.Timeout):
                await asyncio.wait_for(waits, 10)
            await late.close()
            await lease.release()

    asyncio.run(scenario())


def test_postgres_is_a_store(face, postgres):
    async def scenario():
        client, other = await face.connect(postgres), await face.connect(postgres)
        async with client.mutex("k") as lease:
            assert not await other.mutex("k").acquire(blocking=False)
            assert (await other.inspect("k")).holders[0].token == lease.token
        async with other.mutex("k") as after:
            assert after.token > lease.token
        await client.close()
        await other.close()

    face.run(scenario())
