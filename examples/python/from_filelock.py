"""From filelock: each old call is a comment above the new one.

    python3 from_filelock.py /var/lib/shop/cache.lock

The two do not exclude each other on one path. Move all users of the path at once, or take
filelock's lock and within it the new one for a while.
"""

import os
import sys

import leasehold_lock as lh

path = sys.argv[1]

# lock = filelock.FileLock(path, timeout=5)
lock = lh.FileLock(path, timeout=5)

# with lock:
with lock:
    # with lock.acquire(timeout=1):                   nested: the thread holds it already
    with lock.acquire(timeout=1):
        assert lock.is_locked and lock.lock_counter == 2

# try: lock.acquire(blocking=False)
# except filelock.Timeout as busy: print(busy.lock_file)
try:
    lock.acquire(blocking=False)
except lh.Timeout as busy:
    print(busy.lock_file)

# lock.release(force=True)
lock.release(force=True)


# @lock
@lock
def rebuild() -> None:
    print("rebuild")


rebuild()

# With a token, readers, permits or asyncio, use the store that FileLock uses.
client = lh.connect(os.environ.get("LEASEHOLD_STORE", "local:"))

# with filelock.ReadWriteLock("cache.db").read_lock():
with client.rwlock("cache").read:
    print("read")

# with filelock.SoftFileLock(path):                   for disks of a network: name a server instead
with client.mutex("cache") as lease:
    print(f"write with token {lease.token}")

client.close()
