"""Drives the locks that are written in Python, as bench/README.md says of all drivers."""

import argparse
import asyncio
import json
import math
import mmap
import os
import struct
import sys
import threading
import time

import filelock
import leasehold_lock
import pottery
import redis
import redis.asyncio
import redis_lock

# How long a lock lives that has to be told.
TTL = 30
# Bytes from one key's record to the next.
SLOT = 64
# A broken lock asks nobody for one waiter of so many.
BROKEN_ONE_OF = 8
WARMING, MEASURING, OVER = 0, 1, 2


def arguments():
    """What the driver is asked for, in the words of the command line."""
    parser = argparse.ArgumentParser()
    for name in ["peer", "url", "work", "record"]:
        parser.add_argument(f"--{name}", required=True)
    for name in ["tasks", "first", "hold-us", "pause-us", "warm-ms", "measured-ms", "ttl-ms", "broken"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def maker(args):
    """A function from a key to a lock: each as its documentation shows it, at its defaults."""
    ttl = args.ttl_ms / 1000 if args.ttl_ms else TTL
    # A pool gives an error when it has lent its 100 connections: one for each waiter.
    most = max(100, args.tasks + 1)
    directory = args.url.removeprefix("local:")
    if args.peer == "redis-py":
        client = redis.Redis.from_url(args.url, max_connections=most)
        return lambda key: client.lock(key, timeout=ttl)
    if args.peer == "redis-py-asyncio":
        client = redis.asyncio.Redis.from_url(args.url, max_connections=most)
        return lambda key: client.lock(key, timeout=ttl)
    if args.peer == "python-redis-lock":
        # It waits for an answer as long as the TTL; the default is to give up after five seconds.
        client = redis.Redis.from_url(args.url, max_connections=most, socket_timeout=None)
        return lambda key: redis_lock.Lock(client, key, expire=int(ttl))
    if args.peer == "pottery":
        client = redis.Redis.from_url(args.url, max_connections=most)
        return lambda key: pottery.Redlock(key=key, masters={client}, auto_release_time=ttl)
    if args.peer == "filelock":
        return lambda key: filelock.FileLock(os.path.join(directory, f"{key}.lock"))
    if args.peer == "leasehold-filelock":
        return lambda key: leasehold_lock.FileLock(os.path.join(directory, f"{key}.lock"))
    connect = {"leasehold-python": leasehold_lock.connect, "leasehold-asyncio": leasehold_lock.aio.connect}
    if args.peer in connect:
        client = connect[args.peer](args.url, **({"ttl": ttl} if args.ttl_ms else {}))
        return client.mutex
    sys.exit(f"no such peer: {args.peer}")


def say(**event):
    """A line for the runner."""
    print(json.dumps(event), flush=True)


class Records:
    """What a lock protects: a number in a file, read on entering and written on leaving.

    Whoever overlaps with another overwrites what the other counted: the number is then lower than
    the number of acquisitions, which the runner compares.
    """

    form = struct.Struct("<QQQ")

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def enter(self, slot, who):
        """The count, when it was entered, and how long ago another left."""
        count, last, left = self.form.unpack_from(self.map, slot * SLOT)
        entered = time.monotonic_ns()
        other = last not in (0, who + 1)
        return count, entered, max(entered - left, 0) if other else None

    def leave(self, slot, who, inside):
        """How long it was held."""
        count, entered, _ = inside
        now = time.monotonic_ns()
        self.form.pack_into(self.map, slot * SLOT, count + 1, who + 1, now)
        return now - entered


class Task:
    """Takes a lock again and again, for a time: what it has seen."""

    def __init__(self, run, lock, slot, who):
        self.run, self.lock, self.slot, self.who = run, lock, slot, who
        self.acquired = self.grants = self.handoffs = self.held = self.errors = 0
        self.first_error = None
        self.is_inside = False
        self.acquire, self.handoff = {}, {}
        self.asks = not (run.args.broken and (who + 1) % BROKEN_ONE_OF == 0)
        # Without a hold: others may come in here, if the lock lets them.
        self.holds = run.args.hold_us / 1e6 if run.args.hold_us or run.one_key else None
        self.pauses = run.args.pause_us / 1e6

    def enter(self):
        """What the record said; nothing when the time is over."""
        self.is_inside = True
        self.phase = self.run.phase
        if self.phase == OVER:
            self.is_inside = False
            return None
        return self.run.records.enter(self.slot, self.who)

    def leave(self, inside, asked):
        held = self.run.records.leave(self.slot, self.who, inside)
        self.acquired += 1
        self.is_inside = False
        if self.phase == MEASURING:
            _, entered, handed_over = inside
            self.grants += 1
            self.held += held
            add(self.acquire, entered - asked)
            if handed_over is not None:
                self.handoffs += 1
                add(self.handoff, handed_over)

    def fail(self, error):
        self.errors += 1
        self.first_error = self.first_error or repr(error)

    def in_a_thread(self):
        while self.run.phase != OVER:
            asked = time.monotonic_ns()
            try:
                if self.asks and not self.lock.acquire():
                    continue
            except Exception as error:
                self.fail(error)
                time.sleep(0.01)
                continue
            inside = self.enter()
            if inside is None:
                return
            if self.holds is not None:
                time.sleep(self.holds)
            self.leave(inside, asked)
            try:
                if self.asks:
                    self.lock.release()
            except Exception as error:
                self.fail(error)
            if self.pauses:
                time.sleep(self.pauses)

    async def in_a_loop(self):
        while self.run.phase != OVER:
            asked = time.monotonic_ns()
            try:
                if self.asks and not await self.lock.acquire():
                    continue
            except Exception as error:
                self.fail(error)
                await asyncio.sleep(0.01)
                continue
            inside = self.enter()
            if inside is None:
                return
            if self.holds is not None:
                await asyncio.sleep(self.holds)
            self.leave(inside, asked)
            try:
                if self.asks:
                    await self.lock.release()
            except Exception as error:
                self.fail(error)
            if self.pauses or not self.asks:
                await asyncio.sleep(self.pauses)


def add(histogram, nanos):
    """Times by powers of two, each in 32 parts."""
    bucket = int(math.log2(max(nanos, 1)) * 32)
    histogram[bucket] = histogram.get(bucket, 0) + 1


class Run:
    """Tasks that take locks, and what they have seen."""

    def __init__(self, args, lock):
        self.args = args
        self.records = Records(args.record)
        self.one_key = args.work == "key"
        self.phase = WARMING
        self.tasks = []
        for task in range(args.tasks):
            key = 0 if self.one_key else task
            self.tasks.append(Task(self, lock(f"bench-{key}"), key, args.first + task))

    def in_threads(self):
        for task in self.tasks:
            threading.Thread(target=task.in_a_thread, daemon=True).start()
        self.measure()

    async def in_tasks(self):
        # Kept, or the loop forgets them; it is theirs: the times are taken beside it.
        tasks = [asyncio.ensure_future(task.in_a_loop()) for task in self.tasks]
        await asyncio.to_thread(self.measure)
        del tasks

    def measure(self):
        args = self.args
        time.sleep(args.warm_ms / 1000)
        say(event="measuring")
        started, cpu = time.monotonic(), time.process_time_ns()
        self.phase = MEASURING
        time.sleep(args.measured_ms / 1000)
        self.phase = OVER
        taken, cpu = time.monotonic() - started, time.process_time_ns() - cpu
        patience = time.monotonic() + 5
        while any(task.is_inside for task in self.tasks) and time.monotonic() < patience:
            time.sleep(0.001)
        say(
            event="result",
            seconds=taken,
            cpu_ns=cpu,
            acquired=self.sum("acquired"),
            grants=self.sum("grants"),
            handoffs=self.sum("handoffs"),
            held_ns=self.sum("held"),
            gave_up=0,
            errors=self.sum("errors"),
            first_error=next((task.first_error for task in self.tasks if task.first_error), None),
            turns=[task.grants for task in self.tasks],
            acquire=self.merged("acquire"),
            handoff=self.merged("handoff"),
        )

    def sum(self, name):
        return sum(getattr(task, name) for task in self.tasks)

    def merged(self, name):
        merged = {}
        for task in self.tasks:
            for bucket, count in list(getattr(task, name).items()):
                merged[bucket] = merged.get(bucket, 0) + count
        return sorted(merged.items())


def stand_by(args, lock):
    """One lock, taken and released on command: its process, or the one before it, is killed."""
    records = Records(args.record)
    held = lock("bench-0")
    inside = None
    for line in sys.stdin:
        if line.strip() == "acquire":
            held.acquire()
            inside = records.enter(0, args.first)
            say(event="acquired", at_ns=inside[1])
        elif line.strip() == "release":
            records.leave(0, args.first, inside)
            at = time.monotonic_ns()
            held.release()
            say(event="released", at_ns=at)


def in_threads(args):
    lock = maker(args)
    # Scripts are loaded, connections made.
    first = lock("bench-warm-up")
    first.acquire()
    first.release()
    say(event="ready")
    if args.work == "stand-by":
        stand_by(args, lock)
    else:
        run = Run(args, lock)
        sys.stdin.readline()
        run.in_threads()


async def in_tasks(args):
    lock = maker(args)
    first = lock("bench-warm-up")
    await first.acquire()
    await first.release()
    say(event="ready")
    run = Run(args, lock)
    sys.stdin.readline()
    await run.in_tasks()
    leave()


def leave():
    """Whoever still waits for a lock is not waited for."""
    sys.stdout.flush()
    os._exit(0)


def main():
    args = arguments()
    if args.peer.endswith("-asyncio"):
        asyncio.run(in_tasks(args))
    in_threads(args)
    leave()


main()
