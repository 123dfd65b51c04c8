"""Tasks of Celery beat: one that runs once at a time, and one that runs once per period.

    export LEASEHOLD_STORE=redis://db1/ CELERY_BROKER_URL=redis://db1/1
    celery -A celery_beat worker --beat

Beat sends a task in each period, also while the one before still runs; two beats send each twice;
and brokers deliver a task again if its worker does not confirm it in time.
"""

import os
import time

import leasehold_lock as lh
from celery import Celery

PERIOD = float(os.environ.get("PERIOD", 300))

# The worker's processes are forked after this line, and connect by themselves.
client = lh.connect(os.environ.get("LEASEHOLD_STORE", "local:"), label="celery")

app = Celery("celery_beat")
app.conf.beat_schedule = {
    "report": {"task": "celery_beat.report", "schedule": PERIOD},
    "digest": {"task": "celery_beat.digest", "schedule": PERIOD},
    "digest of another beat": {"task": "celery_beat.digest", "schedule": PERIOD},
}


@app.task
@client.mutex("report").guard(skip_if_busy=True)
def report() -> None:
    """Takes longer than a period. The tasks that are sent meanwhile do nothing."""
    print("report begins", flush=True)
    time.sleep(PERIOD * 1.5)
    print("report ends", flush=True)


# It stays taken for half of the period, even if the task is done sooner.
@app.task
@client.mutex("digest", min_hold=PERIOD / 2).guard(skip_if_busy=True)
def digest() -> None:
    """Runs once per period, however often it is sent."""
    print("digest", flush=True)
