"""The workloads: starts drivers, tells them what to do, and reads what they have seen."""

import json
import math
import os
import random
import select
import shutil
import struct
import subprocess
import tempfile
import time
from collections import namedtuple

from server import die_with_parent

# Bytes of a key's record in the file that the locks protect: see `Records` in a driver.
SLOT = 64
# How long a driver may take to start: a JVM among eight on two cores takes a while.
START_SECONDS = 120
# How long after its time a driver may take to answer.
ANSWER_SECONDS = 30
# In the cases with a crash: the TTL for all, and how much longer somebody is waited for.
CRASH_TTL_SECONDS = 3
CRASH_PATIENCE_SECONDS = 20
# So many processes share a key, if each has one waiter.
PROCESSES = 8
# So many times as long runs what is compiled while it runs, before it is measured; and again as
# many times, if several such processes share the cores.
WARM_JAVA, WARM_PROCESSES = 5, 2

# A row of a table. `work` is the driver's word for it, `kind` the workload's name for `--workload`.
# `tasks` are those of each process; `through` is the way to the server, see `server.Servers`.
Case = namedtuple(
    "Case", "name kind work tasks hold_us pause_us processes through", defaults=(1, "loopback")
)

CASES = [
    *(Case(f"pairs-{tasks}", "pairs", "pairs", tasks, 0, 0) for tasks in [1, 16, 64, 256]),
    *(Case(f"hand-off-{tasks}", "hand-off", "key", tasks, 0, 0) for tasks in [2, 100, 1000]),
    *(Case(f"hold-{tasks}", "hold", "key", tasks, 1000, 1000) for tasks in [2, 100, 1000]),
    Case("processes-8", "processes", "key", 1, 1000, 0, PROCESSES),
    Case("processes-8-no-hold", "processes", "key", 1, 0, 0, PROCESSES),
    Case("processes-4x4", "processes", "key", 4, 1000, 0, 4),
    Case("holder-dies", "holder-dies", "stand-by", 1, 0, 0, 2),
    Case("next-dies", "next-dies", "stand-by", 1, 0, 0, 3),
    Case("next-dies-young", "next-dies", "stand-by", 1, 0, 0, 3),
    *(Case(f"delay-pairs-{tasks}", "delay", "pairs", tasks, 0, 0, 1, "delay") for tasks in [1, 64]),
    Case("delay-processes-8", "delay", "key", 1, 1000, 0, PROCESSES, "delay"),
    *(Case(f"aof-pairs-{tasks}", "aof", "pairs", tasks, 0, 0, 1, "aof") for tasks in [1, 64]),
    *(Case(f"tls-pairs-{tasks}", "tls", "pairs", tasks, 0, 0, 1, "tls") for tasks in [1, 64]),
    *(Case(f"local-pairs-{tasks}", "local-pairs", "pairs", tasks, 0, 0) for tasks in [1, 16, 64, 256]),
    *(Case(f"local-hand-off-{tasks}", "local-hand-off", "key", tasks, 0, 0) for tasks in [2, 100, 1000]),
    Case("local-processes-8", "local-processes", "key", 1, 1000, 0, PROCESSES),
    Case("local-processes-8-no-hold", "local-processes", "key", 1, 0, 0, PROCESSES),
]
# A broken lock, to be seen by the check: eight waiters, one of whom asks nobody.
BROKEN = [
    Case("one process", "broken", "key", 8, 1000, 1000),
    Case("eight processes", "processes", "key", 1, 1000, 0, PROCESSES),
]
BROKEN_LOCAL = [
    Case("one process", "local-broken", "key", 8, 1000, 1000),
    Case("eight processes", "local-processes", "key", 1, 1000, 0, PROCESSES),
]


class Failed(Exception):
    """A driver did not do what it was told."""


class Bench:
    """What all measurements of a run share."""

    def __init__(self, servers, commands, directory, warm, measured):
        self.servers, self.commands, self.directory = servers, commands, directory
        self.least_warm, self.measured = warm, measured

    def run(self, case, peer, broken=False):
        """One measurement: a dictionary of figures."""
        server = self.servers.reached(case.through)
        server.clear()
        record = os.path.join(self.directory, "record")
        with open(record, "wb") as file:
            file.truncate(SLOT * max(case.tasks, 1))
        if case.kind.startswith("local"):
            # Not on a file system in memory: that is not where users have it.
            where = tempfile.mkdtemp(prefix="leasehold-bench-")
            try:
                measured = self.throughput(case, peer, record, f"local:{where}", server, broken)
                return {**measured, "server_us": None}
            finally:
                shutil.rmtree(where, ignore_errors=True)
        if case.work == "stand-by":
            return self.crash(case, peer, record, server.url)
        return self.throughput(case, peer, record, server.url, server, broken)

    def warm(self, case, peer):
        """For how many seconds it runs before it is measured."""
        times = WARM_JAVA if peer.language == "java" else 1
        if times > 1 and case.processes > 1:
            times *= WARM_PROCESSES
        return self.least_warm * times

    def driver(self, case, peer, record, url, first=0, ttl=0, broken=False):
        words = {
            "peer": peer.name, "url": url, "work": case.work, "tasks": case.tasks, "first": first,
            "hold-us": case.hold_us, "pause-us": case.pause_us, "warm-ms": int(self.warm(case, peer) * 1000),
            "measured-ms": int(self.measured * 1000), "ttl-ms": int(ttl * 1000), "record": record,
            "broken": int(broken),
        }
        command = list(self.commands[peer.language])
        for name, value in words.items():
            command += [f"--{name}", str(value)]
        return Driver(peer, command, self.directory)

    def throughput(self, case, peer, record, url, server, broken):
        drivers = []
        try:
            for number in range(case.processes):
                first = number * case.tasks
                drivers.append(self.driver(case, peer, record, url, first, broken=broken))
            for driver in drivers:
                driver.expect("ready", START_SECONDS)
            for driver in drivers:
                driver.tell("go")
            for driver in drivers:
                driver.expect("measuring", self.warm(case, peer) + ANSWER_SECONDS)
            began, cpu = time.monotonic(), server.cpu()
            results = [drivers[0].expect("result", self.measured + ANSWER_SECONDS)]
            server_share = (server.cpu() - cpu) / (time.monotonic() - began)
            for driver in drivers[1:]:
                results.append(driver.expect("result", self.measured + ANSWER_SECONDS))
        finally:
            end(drivers)
        return figures(case, results, server_share, lost_updates(record, results))

    def crash(self, case, peer, record, url):
        """How long after it could be free somebody has the lock."""
        drivers = [
            self.driver(case, peer, record, url, first, CRASH_TTL_SECONDS)
            for first in range(case.processes)
        ]
        try:
            for driver in drivers:
                driver.expect("ready", START_SECONDS)
            if case.kind == "holder-dies":
                return self.holder_dies(*drivers, record)
            return self.next_dies(case, *drivers, record)
        finally:
            end(drivers)

    def holder_dies(self, holder, waiter, record):
        acquired = take(holder)
        # At any time: one that asks every so often would always meet the end at the same moment.
        time.sleep(random.uniform(0, 0.4))
        waiter.tell("acquire")
        time.sleep(random.uniform(0.1, 0.4))
        holder.end()
        dead = time.monotonic_ns()
        return after_crash(waiter, acquired + CRASH_TTL_SECONDS * 10**9, record, dead, 1)

    def next_dies(self, case, holder, first, second, record):
        take(holder)
        for waiter in [first, second]:
            waiter.tell("acquire")
            time.sleep(random.uniform(0.1, 0.3))
        if case.name != "next-dies-young":
            time.sleep(random.uniform(1, 1.5))
        first.end()
        time.sleep(random.uniform(0.05, 0.15))
        holder.tell("release")
        released = holder.expect("released", ANSWER_SECONDS)["at_ns"]
        return after_crash(second, released, record, released, 2)


def end(drivers):
    """All at once, so that those that are left do not take the cores from those that end."""
    for driver in drivers:
        driver.process.kill()
    for driver in drivers:
        driver.end()


def take(driver):
    driver.tell("acquire")
    return driver.expect("acquired", ANSWER_SECONDS)["at_ns"]


def after_crash(waiter, free_at, record, not_before, releases):
    """Late by so much, counted from when the lock could be free; nothing if it was not got."""
    try:
        patience = CRASH_TTL_SECONDS + CRASH_PATIENCE_SECONDS
        acquired = waiter.expect("acquired", patience)["at_ns"]
    except TimeoutError:
        return {"late_ms": None, "acquired": releases - 1, "lost": releases - 1 - counted(record)}
    waiter.tell("release")
    waiter.expect("released", ANSWER_SECONDS)
    lost = releases - counted(record) + (acquired < not_before)
    return {"late_ms": (acquired - free_at) / 1e6, "acquired": releases, "lost": lost}


def counted(record):
    """The sum of the counts of all keys."""
    with open(record, "rb") as file:
        data = file.read()
    return sum(struct.unpack_from("<Q", data, at)[0] for at in range(0, len(data), SLOT))


def lost_updates(record, results):
    """How many acquisitions were overwritten by another that overlapped with them."""
    return sum(result["acquired"] for result in results) - counted(record)


def figures(case, results, server_share, lost):
    """What one measurement came to. Times in microseconds."""
    total = {
        name: sum(result[name] for result in results)
        for name in ["cpu_ns", "acquired", "grants", "handoffs", "held_ns", "gave_up", "errors"]
    }
    seconds = sum(result["seconds"] for result in results) / len(results)
    counts = total["handoffs"] if case.work == "key" else total["grants"]
    each = max(counts, 1)
    turns = sorted(turn for result in results for turn in result["turns"])
    acquire, handoff = (merged(results, name) for name in ["acquire", "handoff"])
    return {
        "per_second": counts / seconds,
        "grants_per_second": total["grants"] / seconds,
        "acquire_p50_us": quantile(acquire, 0.5),
        "acquire_p99_us": quantile(acquire, 0.99),
        "handoff_p50_us": quantile(handoff, 0.5),
        "handoff_p99_us": quantile(handoff, 0.99),
        "held_us": total["held_ns"] / max(total["grants"], 1) / 1e3,
        "fewest_turns": turns[0],
        "median_turns": turns[len(turns) // 2],
        "most_turns": turns[-1],
        "server_us": server_share * seconds / each * 1e6 if counts else None,
        "client_us": total["cpu_ns"] / each / 1e3 if counts else None,
        "acquired": total["acquired"],
        "lost": lost,
        "gave_up": total["gave_up"],
        "errors": total["errors"],
        "first_error": next((it["first_error"] for it in results if it["first_error"]), None),
    }


def merged(results, name):
    """A histogram: times by powers of two, each in 32 parts."""
    histogram = {}
    for result in results:
        for bucket, count in result[name]:
            histogram[bucket] = histogram.get(bucket, 0) + count
    return sorted(histogram.items())


def quantile(histogram, share):
    """In microseconds, from the middle of its bucket: right to one percent."""
    wanted = math.ceil(sum(count for _, count in histogram) * share)
    for bucket, count in histogram:
        wanted -= count
        if wanted <= 0:
            return 2 ** ((bucket + 0.5) / 32) / 1e3
    return None


class Driver:
    """A process that speaks the protocol of bench/README.md."""

    def __init__(self, peer, command, directory):
        self.name = peer.title
        self.said = b""
        self.errors = open(os.path.join(directory, f"{peer.name}.stderr"), "w+b")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            preexec_fn=die_with_parent,
        )

    def tell(self, word):
        try:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name} has ended: {self.why()}") from error

    def expect(self, event, seconds):
        """The next event; TimeoutError if it is not said in time."""
        until = time.monotonic() + seconds
        while b"\n" not in self.said:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"{self.name} did not say {event} within {seconds:.0f} s")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise Failed(f"{self.name} has ended before it said {event}: {self.why()}")
            self.said += part
        line, self.said = self.said.split(b"\n", 1)
        said = json.loads(line)
        if said["event"] != event:
            raise Failed(f"{self.name} said {said['event']} instead of {event}")
        return said

    def why(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()[-300:] or "it does not say why"

    def end(self):
        """Kills it."""
        self.process.kill()
        self.process.wait()
        for pipe in [self.process.stdin, self.process.stdout, self.errors]:
            try:
                pipe.close()
            except OSError:
                # What was to be told to a process that has ended.
                pass
