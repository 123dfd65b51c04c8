"""A job of APScheduler in each of several processes: in each period one of them runs it.

    LEASEHOLD_STORE=redis://db1/ python3 apscheduler_job.py

All schedulers start the job at the same times of day. The first to get the lock works, and the
others do nothing. If its process dies, another has the next period.
"""

import os
import signal
import sys
from datetime import datetime, timezone

import leasehold_lock as lh
from apscheduler.schedulers.blocking import BlockingScheduler  # type: ignore[import-untyped]

PERIOD = float(os.environ.get("PERIOD", 300))

client = lh.connect(os.environ.get("LEASEHOLD_STORE", "local:"), label="scheduler")


# It stays taken for half of the period: so much may the clocks of the machines differ.
@client.mutex("report", min_hold=PERIOD / 2).guard(skip_if_busy=True)
def report() -> None:
    print(f"report at {datetime.now(timezone.utc)}", flush=True)


def main() -> None:
    scheduler = BlockingScheduler(timezone=timezone.utc)
    # From a date on that all have in common, not from the start of the process.
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
    scheduler.add_job(report, "interval", seconds=PERIOD, start_date=begin)

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    try:
        scheduler.start()
    finally:
        # First the job that runs now, then its lock.
        scheduler.shutdown()
        client.close()


if __name__ == "__main__":
    main()
