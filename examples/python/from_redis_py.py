"""From redis-py's ``Lock``: each old call is a comment above the new one.

    LEASEHOLD_STORE='redis://db1/?layout=classic' python3 from_redis_py.py

With ``layout=classic`` both libraries take the same lock, and processes can move one by one. Leave
the layout when all have moved: it has no tokens and no order.
"""

import asyncio
import os

import leasehold_lock as lh

STORE = os.environ.get("LEASEHOLD_STORE", "memory:")


def threads() -> None:
    # db = redis.Redis("db1")
    client = lh.connect(STORE)

    # lock = db.lock("orders/42", timeout=30, blocking_timeout=5)
    lock = client.mutex("orders/42", ttl=30, timeout=5)

    # with lock:                                      LockError if it is busy for 5 seconds
    with lock as lease:  #                            Timeout if it is busy for 5 seconds
        # assert lock.owned()
        assert lock.owned()
        # lock.reacquire()                            before each step, or it ends after 30 seconds
        lease.check()  #                              it renews itself: Lost, if it has ended
        # write(row)
        print(f"write with token {lease.token}")

    # if lock.acquire(blocking=False):
    if lock.acquire(blocking=False):
        try:
            # lock.extend(60)
            lock.extend(60)
            # assert lock.locked()
            assert lock.locked()
        finally:
            # lock.release()
            lock.release()

    # lock = db.lock("orders/42", thread_local=False)
    # token = secrets.token_hex(); lock.acquire(token=token)
    lease = lock.lease()  #                           any thread may release it
    lease.release()

    try:
        lock.release()
    # except LockNotOwnedError:
    except lh.Lost:
        print("the lease has ended")
    # except LockError:
    except lh.NotHeld:
        print("not held by this thread")

    # db.close()
    client.close()


async def tasks() -> None:
    # async with redis.asyncio.Redis("db1") as db:
    async with lh.aio.connect(STORE) as client:
        # async with db.lock("orders/42", timeout=30):
        async with client.mutex("orders/42", ttl=30) as lease:
            # await work()
            await lease.run(work())  #                cancelled at once if the lease is lost


async def work() -> None:
    print("work")


if __name__ == "__main__":
    threads()
    asyncio.run(tasks())
