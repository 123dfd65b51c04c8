"""From pottery's ``Redlock``: each old call is a comment above the new one.

    LEASEHOLD_STORE='redis://db1/?layout=classic&prefix=redlock:' python3 from_pottery.py

With that layout and prefix both libraries take the same lock, and processes can move one by one.
For several masters the URL is ``redlock://db1,db2,db3/?layout=classic&prefix=redlock:``.
"""

import asyncio
import os

import leasehold_lock as lh

STORE = os.environ.get("LEASEHOLD_STORE", "memory:")

# masters = {redis.Redis("db1")}
client = lh.connect(STORE)

# printer = Redlock(key="printer", masters=masters, auto_release_time=30)
printer = client.mutex("printer", ttl=30)

# with printer:                                       QuorumNotAchieved
with printer as lease:  #                             Timeout, Unavailable
    # printer.extend()                                three times at most, and before it ends
    lease.check()  #                                  it renews itself: Lost, if it has ended
    print(f"write with token {lease.token}")

# if printer.acquire(timeout=5):                      tries again every 0 to 0.2 seconds
if printer.acquire(timeout=5):  #                     the store wakes the first of the queue
    # assert printer.locked()                         how long this object still holds it
    assert printer.owned()
    # printer.release()
    printer.release()

try:
    printer.release()
# except ReleaseUnlockedLock:
except lh.NotHeld:
    print("not held by this thread")


# @synchronize(key="report", masters=masters, auto_release_time=60, blocking=False)
@client.mutex("report", ttl=60).guard(skip_if_busy=True)  # None, not QuorumNotAchieved, if busy
def report() -> str:
    return "done"


async def tasks() -> None:
    async with lh.aio.connect(STORE) as client:
        # async with AIORedlock(key="printer", masters=masters):
        async with client.mutex("printer") as lease:
            await lease.run(work())  #                cancelled at once if the lease is lost


async def work() -> None:
    print("work")


if __name__ == "__main__":
    print(report())
    asyncio.run(tasks())
    client.close()
