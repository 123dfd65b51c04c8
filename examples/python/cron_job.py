"""A script for cron that starts on several machines: one of them works, the others do nothing.

    LEASEHOLD_STORE=redis://db1/
    0 3 * * *  python3 /srv/cron_job.py

The lock stays taken for half of the time between two starts, even if the work is done sooner. So a
machine whose clock is behind does not work a second time.

It ends with 0, also where another machine works; with 69 if the store does not answer; and with 79
if the lease was lost, so that another may work now.
"""

import os
import sys
from collections.abc import Iterator
from datetime import timedelta

import leasehold_lock as lh

STORE = os.environ.get("LEASEHOLD_STORE", "local:")
EVERY = timedelta(days=1)


def pages() -> Iterator[str]:
    for number in range(3):
        yield f"page {number}"


def work(lease: lh.Lease) -> None:
    for page in pages():
        # A thread cannot be stopped from outside: look between two steps.
        lease.check()
        print(f"{page}, with token {lease.token}", flush=True)


def main() -> None:
    try:
        with lh.connect(STORE, label="cron_job") as client:
            with client.mutex("nightly", min_hold=EVERY / 2, timeout=0) as lease:
                work(lease)
    except lh.Timeout:
        return  # Another machine works, or has worked.
    except lh.Unavailable as error:
        print(error, file=sys.stderr)
        sys.exit(69)
    except lh.Lost as error:
        print(error, file=sys.stderr)
        sys.exit(79)


if __name__ == "__main__":
    main()
