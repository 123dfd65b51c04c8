"""redis-py's Lock on a line a request: what a Rust test asks, and what the lock answers.

VERB NAME [ARGUMENTS], answered by a line with the result, or the name of the exception.
"""

import sys
import time

import redis

server = redis.Redis(port=int(sys.argv[1]), socket_timeout=20)
locks = {}


def number(text):
    return None if text == "-" else float(text)


def lock(name, timeout, patience):
    """Takes a new lock; a patience of 0 does not wait."""
    patience = float(patience)
    new = server.lock(name, timeout=number(timeout), sleep=0.02)
    got = new.acquire(blocking=patience > 0, blocking_timeout=patience or None)
    if got:
        locks[name] = new
    return got


def count(name, counter, times):
    """Adds to a counter in two steps, which only a lock keeps together."""
    for _ in range(int(times)):
        with server.lock(name, timeout=20, sleep=0.005):
            seen = int(server.get(counter) or 0)
            time.sleep(0.0005)
            server.set(counter, seen + 1)
    return "counted"


VERBS = {
    "lock": lock,
    "release": lambda name: locks[name].release(),
    "extend": lambda name, seconds: locks[name].extend(float(seconds)),
    "reacquire": lambda name: locks[name].reacquire(),
    "owned": lambda name: locks[name].owned(),
    "locked": lambda name: server.lock(name).locked(),
    "count": count,
}

print("ready", redis.__version__, flush=True)
for line in sys.stdin:
    verb, *arguments = line.split()
    try:
        answer = VERBS[verb](*arguments)
    except redis.exceptions.RedisError as error:
        answer = type(error).__name__
    print(answer, flush=True)
