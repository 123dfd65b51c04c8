"""Drives the locks that are written in Python, as bench/README.md says of all drivers."""

import argparse
import json
import math
import mmap
import os
import struct
import sys
import threading
import time

import redis
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
    # A pool gives an error when it has lent its 100 connections: one for each thread.
    most = max(100, args.tasks + 1)
    if args.peer == "redis-py":
        client = redis.Redis.from_url(args.url, max_connections=most)
        return lambda key: client.lock(key, timeout=ttl)
    if args.peer == "python-redis-lock":
        # It waits for an answer as long as the TTL; the default is to give up after five seconds.
        client = redis.Redis.from_url(args.url, max_connections=most, socket_timeout=None)
        return lambda key: redis_lock.Lock(client, key, expire=int(ttl))
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


class Task(threading.Thread):
    """Takes a lock again and again, for a time."""

    def __init__(self, run, lock, slot, who):
        super().__init__(daemon=True)
        self.run_, self.lock, self.slot, self.who = run, lock, slot, who
        self.acquired = self.grants = self.handoffs = self.held = self.errors = 0
        self.first_error = None
        self.inside = False
        self.acquire, self.handoff = {}, {}

    def run(self):
        shared, args = self.run_, self.run_.args
        asks = not (args.broken and (self.who + 1) % BROKEN_ONE_OF == 0)
        while shared.phase != OVER:
            asked = time.monotonic_ns()
            try:
                if asks and not self.lock.acquire():
                    continue
            except Exception as error:
                self.fail(error)
                continue
            self.inside = True
            phase = shared.phase
            if phase == OVER:
                self.inside = False
                return
            inside = shared.records.enter(self.slot, self.who)
            if args.hold_us or shared.one_key:
                # Without a hold: others may come in here, if the lock lets them.
                time.sleep(args.hold_us / 1e6)
            held = shared.records.leave(self.slot, self.who, inside)
            self.acquired += 1
            self.inside = False
            if phase == MEASURING:
                _, entered, handed_over = inside
                self.grants += 1
                self.held += held
                add(self.acquire, entered - asked)
                if handed_over is not None:
                    self.handoffs += 1
                    add(self.handoff, handed_over)
            try:
                if asks:
                    self.lock.release()
            except Exception as error:
                self.fail(error)
            if args.pause_us:
                time.sleep(args.pause_us / 1e6)

    def fail(self, error):
        self.errors += 1
        self.first_error = self.first_error or repr(error)
        time.sleep(0.01)


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

    def measure(self):
        args = self.args
        for task in self.tasks:
            task.start()
        time.sleep(args.warm_ms / 1000)
        say(event="measuring")
        started, cpu = time.monotonic(), time.process_time_ns()
        self.phase = MEASURING
        time.sleep(args.measured_ms / 1000)
        self.phase = OVER
        taken, cpu = time.monotonic() - started, time.process_time_ns() - cpu
        patience = time.monotonic() + 5
        while any(task.inside for task in self.tasks) and time.monotonic() < patience:
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


def main():
    args = arguments()
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
        run.measure()
    # Whoever still waits for a lock is not waited for.
    sys.stdout.flush()
    os._exit(0)


main()
