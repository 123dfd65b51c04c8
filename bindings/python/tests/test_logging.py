"""What the library says to `logging`, from the level on to which somebody listens."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time

import leasehold_lock as lh
import pytest


def until(said, text):
    end = time.monotonic() + 20
    while not any(text in message for message in said()):
        assert time.monotonic() < end, said()
        time.sleep(0.001)


def test_a_loss_is_a_warning_and_success_is_for_debugging(face, caplog):
    def said(*levels):
        records = [record for record in caplog.records if record.name == "leasehold_lock"]
        return [it.getMessage() for it in records if not levels or it.levelno in levels]

    async def scenario():
        client = await face.connect("memory:")
        async with client.mutex("quiet"):
            pass
        caplog.set_level(logging.DEBUG, logger="leasehold_lock")
        lease = await client.mutex("k").lease()
        until(lambda: said(logging.DEBUG), "acquired key=k token=")
        caplog.set_level(logging.WARNING, logger="leasehold_lock")
        async with client.mutex("silent"):
            pass
        await client.break_key("k")
        await lease.lost.wait(20)
        until(lambda: said(logging.WARNING), "lost: ")
        assert any("key=k" in message for message in said(logging.WARNING))
        assert not any("quiet" in message or "silent" in message for message in said())
        await client.close()

    face.run(scenario())


def test_a_renewal_that_is_cancelled_has_not_failed(own_server, caplog):
    def warnings():
        return [it.getMessage() for it in caplog.records if it.name == "leasehold_lock"]

    async def cancelled(lease):
        renewal = asyncio.ensure_future(lease.renew())
        await asyncio.sleep(0)
        renewal.cancel()
        await asyncio.wait((renewal,))
        return renewal.cancelled()

    async def scenario():
        async with lh.aio.connect(own_server.url) as client:
            lease = await client.mutex("k", ttl=2).lease()
            ends = [await cancelled(lease) for _ in range(20)]
            await client.close()
            assert True in ends and not warnings()
        async with lh.aio.connect(own_server.url) as client:
            lease = await client.mutex("k", ttl=2).lease()
            await cancelled(lease)
            # The renewals after that do fail.
            own_server.stop()
            await lease.lost.wait(20)
            await client.close()
        assert "a renewal failed" in warnings()[0], warnings()

    with caplog.at_level(logging.WARNING, logger="leasehold_lock"):
        asyncio.run(scenario())


@pytest.fixture
def handler():
    handler = logging.Handler()
    logging.getLogger("leasehold_lock").addHandler(handler)
    yield handler
    logging.getLogger("leasehold_lock").removeHandler(handler)


def test_a_client_that_is_closed_has_said_all(leasehold_url, leasehold_clock, handler):
    said, may_go_on = [], threading.Event()

    def emit(record):
        may_go_on.wait(60)
        said.append(record.getMessage())

    handler.emit = emit
    client = lh.connect(leasehold_url)
    lease = client.mutex("k").lease()
    leasehold_clock.advance(30)
    threading.Timer(0.3, may_go_on.set).start()
    client.close(60)
    assert not lease.is_valid()
    assert any("lost: no renewal succeeded" in message and "key=k" in message for message in said)


def test_a_handler_that_closes_a_client_does_not_wait_for_itself(leasehold_url, handler):
    is_closed = threading.Event()

    def emit(record):
        lh.connect(leasehold_url).close(60)
        is_closed.set()

    handler.emit = emit
    client = lh.connect(leasehold_url)
    lease = client.mutex("k").lease()
    assert client.break_key("k") == 1
    assert lease.lost.wait(20) and is_closed.wait(20)
    client.close(60)


def test_records_that_a_slow_handler_has_missed_are_counted(leasehold_url, handler, caplog):
    said, may_go_on = [], threading.Event()

    def emit(record):
        may_go_on.wait(60)
        said.append(record.getMessage())

    handler.emit = emit
    with caplog.at_level(logging.DEBUG, logger="leasehold_lock"):
        client = lh.connect(leasehold_url)
        lock = client.mutex("k")
        for _ in range(1000):
            with lock:
                pass
        may_go_on.set()
        client.close(60)
    assert any(message.endswith("a handler of logging is slow") for message in said)


def log_it(kind, error, trace):
    raise OSError("this hook logs to the same server") from error


@pytest.mark.parametrize("kind, hook", [(OSError, None), (SystemExit, None), (OSError, log_it)])
def test_a_handler_that_fails_ends_nothing(
    leasehold_url, leasehold_clock, handler, capsys, monkeypatch, kind, hook
):
    said = []
    if hook is not None:
        monkeypatch.setattr(sys, "excepthook", hook)

    def emit(record):
        said.append(record.getMessage())
        if len(said) == 1:
            raise kind("the server of the logs is down")

    handler.emit = emit
    client = lh.connect(leasehold_url)
    leases = [client.mutex(key).lease() for key in ("k", "other")]
    leasehold_clock.advance(30)
    client.close(60)
    assert not any(lease.is_valid() for lease in leases)
    assert {key for key in ("k", "other") for message in said if f"key={key}" in message} == {
        "k",
        "other",
    }
    assert "the server of the logs is down" in capsys.readouterr().err


def test_locks_need_no_thread_that_logs(leasehold_url, monkeypatch):
    def start(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(lh._base, "_log_threads", {})
    monkeypatch.setattr(lh._base, "_listening", None)
    with lh.connect(leasehold_url) as client, client.mutex("k") as lease:
        assert lease.is_valid()
    assert lh._base._listening is None, "the next call tries again"


ENDS = """
import logging, sys, threading
class Slow(logging.StreamHandler):
    def emit(self, record):
        threading.Event().wait(0.05)
        super().emit(record)
logging.basicConfig(level=logging.DEBUG, format="%(message)s", handlers=[Slow(sys.stdout)])
import leasehold_lock as lh
lock = lh.connect("memory:").mutex("k")
lock.acquire()
"""


def test_the_end_of_a_process_is_said():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)
    assert "gave up: " in done.stdout and not done.stderr, done


def test_a_handler_that_hangs_holds_up_a_close_no_longer_than_asked(leasehold_url, handler):
    hangs = threading.Event()
    handler.emit = lambda record: hangs.wait(60)
    client = lh.connect(leasehold_url)
    lease = client.mutex("k").lease()
    client.break_key("k")
    assert lease.lost.wait(20) and client.close(0.1)
    hangs.set()


PROGRAM = """
import logging, os, sys, threading
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(process)d %(message)s")
import leasehold_lock as lh

client = lh.connect(sys.argv[1])
lease = client.mutex("parent").lease()
if os.fork() == 0:
    with client.mutex("child"):
        while "acquired key=child" not in open(sys.argv[2]).read():
            pass
    os._exit(0)
assert os.wait()[1] == 0
threading.Thread(target=client.mutex("parent").acquire, daemon=True).start()
"""


def test_a_forked_process_logs_by_itself_and_the_end_waits_for_nothing(url, tmp_path):
    out = tmp_path / "out"
    began = time.monotonic()
    with out.open("w") as file:
        program = [sys.executable, "-u", "-c", PROGRAM, url, out]
        done = subprocess.run(program, stdout=file, stderr=subprocess.PIPE, timeout=60)
    said = out.read_text()
    assert done.returncode == 0, (done, said)
    assert "acquired key=parent" in said and "acquired key=child" in said
    assert len({line.split()[0] for line in said.splitlines()}) == 2, "of two processes"
    assert time.monotonic() - began < 30
    with lh.connect(url) as client:
        with client.mutex("parent", timeout=20) as lease:
            assert lease.is_valid()
