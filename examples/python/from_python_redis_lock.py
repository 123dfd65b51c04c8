"""From python-redis-lock: each old call is a comment above the new one.

    LEASEHOLD_STORE=redis://db1/ python3 from_python_redis_lock.py

The two do not exclude each other: until all processes have moved, take the old lock and within it
the new one. ``layout=classic&prefix=lock:`` takes the old lock itself, but wakes its waiters late.
"""

import os

import leasehold_lock as lh

STORE = os.environ.get("LEASEHOLD_STORE", "memory:")

# db = redis.StrictRedis("db1")
client = lh.connect(STORE)

# lock = redis_lock.Lock(db, "orders/42", expire=30, auto_renewal=True)
lock = client.mutex("orders/42", ttl=30)  #           always renewed, without a thread for each lock

# with lock:
with lock as lease:
    # write(row)                                      a renewal that fails shows in the log only
    lease.check()  #                                  Lost, if the lease has ended
    print(f"write with token {lease.token}")

# if lock.acquire(timeout=5):                         whole seconds
if lock.acquire(timeout=0.5):
    try:
        # assert lock.locked()
        assert lock.locked()
        # print(lock.get_owner_id())
        print("held by", [holder.host for holder in lock.holders()])
        # lock.extend(expire=60)
        lock.extend(60, replace_ttl=True)
    finally:
        # lock.release()
        lock.release()

# if lock.acquire(blocking=False):
if lock.acquire(blocking=False):
    lock.release()

try:
    lock.release()
# except redis_lock.NotAcquired:
except lh.NotHeld:
    print("not held by this thread")

# redis_lock.Lock(db, "orders/42", id=lock.id).release()    what another process has acquired
parts = client.mutex("orders/42").lease().hand_over()  #     a secret
client.mutex("orders/42").adopt(parts).release()

# lock.reset()
client.break_key("orders/42")

# redis_lock.reset_all(db)                            after a crash: leases expire by themselves

# db.close()
client.close()
