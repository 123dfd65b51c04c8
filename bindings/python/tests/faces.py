"""Both faces as one: a scenario awaits each call, and with threads nothing ever suspends it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import time
import types

import leasehold_lock as lh

WAITS = {
    name for of in (lh.Client, lh.Lock, lh.Election, lh.Lease, lh.LossEvent)
    for name in vars(of) if not name.startswith("_") and name != "leaders"
}


class Awaited:
    """An object of the face for threads, whose calls are awaited."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        value = getattr(self.of, name)
        if name in WAITS:
            async def call(*args, **options):
                return awaited(value(*args, **options))
            return call
        if callable(value):
            return lambda *args, **options: awaited(value(*args, **options))
        return awaited(value)

    async def __aiter__(self):
        for value in self.of:
            yield awaited(value)

    async def __aenter__(self):
        return awaited(self.of.__enter__())

    async def __aexit__(self, *error):
        return self.of.__exit__(*error)


def awaited(value):
    if isinstance(value, lh.Recovered):
        return value._replace(lease=awaited(value.lease))
    ours = (lh.Client, lh.Lock, lh.RwLock, lh.Lease, lh.LossEvent, types.GeneratorType)
    return Awaited(value) if isinstance(value, ours) else value


class Threads:
    def run(self, scenario):
        try:
            scenario.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("a call of this face has suspended")

    async def connect(self, url, **options):
        return Awaited(lh.connect(url, **options))

    def start(self, scenario):
        """Runs it beside the caller."""
        done = concurrent.futures.Future()

        def work():
            try:
                done.set_result(self.run(scenario))
            except BaseException as error:
                done.set_exception(error)

        import threading

        threading.Thread(target=work).start()
        return Started(done)

    async def pause(self):
        time.sleep(0.001)

    def function(self, scenario):
        """A function as users of this face write it."""
        @functools.wraps(scenario)
        def function(*args, **kwargs):
            return self.run(scenario(*args, **kwargs))

        del function.__wrapped__
        return function

    async def call(self, function, *args):
        return function(*args)


class Started:
    def __init__(self, done):
        self.done = done

    def __await__(self):
        return self.done.result(30)
        yield


class Tasks:
    run = staticmethod(asyncio.run)

    async def connect(self, url, **options):
        return await lh.aio.connect(url, **options)

    def start(self, scenario):
        return asyncio.ensure_future(scenario)

    async def pause(self):
        await asyncio.sleep(0.001)

    def function(self, scenario):
        return scenario

    async def call(self, function, *args):
        return await function(*args)


class Uvloop(Tasks):
    """Tasks on another event loop."""

    def run(self, scenario):
        import uvloop

        return uvloop.run(scenario)


async def waiting(face, client, key, number):
    """Waits until so many wait for the key."""
    end = time.monotonic() + 20
    while len((await client.inspect(key)).waiters) != number:
        assert time.monotonic() < end, f"not {number} waiters"
        await face.pause()


async def held(face, client, key):
    """Waits until somebody holds the key."""
    end = time.monotonic() + 20
    while not (await client.inspect(key)).holders:
        assert time.monotonic() < end, "nobody holds it"
        await face.pause()


async def free(face, client, key):
    """Waits until nobody holds the key or waits for it."""
    end = time.monotonic() + 20
    while any(await client.inspect(key)):
        assert time.monotonic() < end, "it is never free"
        await face.pause()
