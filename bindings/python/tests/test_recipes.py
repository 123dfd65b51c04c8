"""The programs of ``examples/python`` run as they are written."""

from __future__ import annotations

import datetime
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import leasehold_lock as lh
import pytest
from packages import ROOT, with_packages

EXAMPLES = ROOT / "examples" / "python"
PACKAGES = "python-recipes", "psycopg-django"
EACH = sorted(it.name for it in EXAMPLES.glob("*.py"))
MIGRATIONS = [name for name in EACH if name.startswith("from_")]
RECIPES = ["apscheduler_job", "celery_beat", "cron_job", "django_view", "fastapi_app"]


@pytest.fixture
def start(tmp_path):
    """Starts Python, with the programs as modules that it can import, and ends it with the test."""
    started = []

    def start(*arguments, options="-X dev -W error", packages=PACKAGES, **environment):
        environment = with_packages(*packages, **environment)
        environment["PYTHONPATH"] += f":{EXAMPLES}"
        command = [sys.executable, *options.split(), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes))
        return started[-1]

    def kill():
        for process in started:
            process.kill()

    limit = threading.Timer(60, kill)
    limit.start()
    yield start
    limit.cancel()
    kill()
    for process in started:
        process.communicate()


def finish(process, code=0):
    """What it has printed. One that fails has to say why."""
    out, err = process.communicate()
    assert (process.returncode, bool(err)) == (code, bool(code)), (process.returncode, out, err)
    return out.splitlines()


@pytest.fixture
def local(tmp_path_factory):
    # A socket's path may have about a hundred characters only.
    return f"local:{tmp_path_factory.mktemp('l')}"


def test_each_program_is_run_by_a_test_here():
    assert EACH == sorted(MIGRATIONS + [f"{name}.py" for name in RECIPES])


@pytest.mark.parametrize("name", MIGRATIONS)
def test_what_becomes_of_the_calls_of_another_library(name, start, local, server, tmp_path):
    shared = {
        "from_redis_py.py": "?layout=classic", "from_python_redis_lock.py": "?prefix=new",
        "from_pottery.py": "?layout=classic&prefix=redlock:",
    }
    for url in ("memory:", server.url + shared[name]) if name in shared else (local,):
        program = start(EXAMPLES / name, tmp_path / "a.lock", packages=(), LEASEHOLD_STORE=url)
        wrote = f"write with token {'None' if 'classic' in url else '[0-9]+'}"
        assert any(re.fullmatch(wrote, line) for line in finish(program))


class TestCron:
    @pytest.fixture
    def job(self, start):
        def job(url):
            return start(EXAMPLES / "cron_job.py", packages=(), LEASEHOLD_STORE=url)

        return job

    def test_one_machine_works(self, job, local):
        machines = [job(local) for _ in range(3)]
        printed = [finish(machine) for machine in machines]
        assert sorted(map(len, printed)) == [0, 0, 3], printed
        # Nor does one whose clock is behind.
        assert finish(job(local)) == []

    def test_it_says_that_the_store_does_not_answer(self, job, own_server):
        own_server.stop()
        assert finish(job(own_server.url), code=69) == []

    def test_it_stops_when_the_lease_is_lost(self, start, local):
        text = """if True:
            import cron_job, itertools, time
            cron_job.pages = lambda: (time.sleep(0.01) or "page" for _ in itertools.count())
            cron_job.main()
        """
        job = start("-c", text, packages=(), LEASEHOLD_STORE=local)
        assert job.stdout.readline().startswith("page, with token ")
        with lh.connect(local) as client:
            assert client.break_key("nightly") == 1
            finish(job, code=79)


class TestDjango:
    def test_a_request_that_was_paused_changes_nothing(self, start):
        text = """if True:
            import logging
            logging.disable()  # The loss is meant.
            import django_view as view
            from django.test import Client
            view.create_table()

            def pay():
                answer = Client(SERVER_NAME="127.0.0.1").post("/orders/42/pay")
                order = view.Order.objects.get(id=42)
                print(answer.status_code, answer.content.decode(), order.state, sep="|")
                return order.token

            def charge_and_pause(order, lease):
                view.client.break_key(lease.key)
                with view.client.mutex(lease.key) as later:
                    orders = view.Order.objects.filter(id=order)
                    view.lh.fence.update(orders, later.token, state="sent")

            first, view.charge = pay(), charge_and_pause
            assert 0 < first < pay()
            view.connection.close()
            view.client.close()
        """
        paid, stale = finish(start("-c", text, LEASEHOLD_STORE="memory:"))
        assert paid == "200|order 42 is paid|paid"
        assert stale.startswith("409|look at order 42: ") and stale.endswith("|sent")

    def test_it_is_a_program_of_django(self, start, local):
        out = finish(start(EXAMPLES / "django_view.py", "check", LEASEHOLD_STORE=local))
        assert out == ["System check identified no issues (0 silenced)."]


class TestFastApi:
    SERVICE = """
        import logging
        logging.disable()  # The losses are meant.
        import asyncio, fastapi_app as service

        async def post(path):
            sent = []

            async def receive():
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                sent.append(message)

            scope = {"type": "http", "method": "POST", "path": path, "headers": []}
            await service.app({**scope, "query_string": b""}, receive, send)
            print(sent[0]["status"], sent[1]["body"].decode())

        async def main():
            async with service.app.router.lifespan_context(service.app):
                await scenario(service.app.state.locks)
    """

    @pytest.fixture
    def run(self, start):
        def run(scenario):
            text = textwrap.dedent(self.SERVICE) + textwrap.dedent(scenario) + "asyncio.run(main())"
            # With `-X dev` asyncio tells of each step that takes long.
            service = start("-c", text, options="-W error", LEASEHOLD_STORE="memory:")
            return finish(service)

        return run

    def test_requests_of_one_order_run_one_after_another(self, run):
        scenario = """
            async def charge(order, token):
                print("begin")
                await asyncio.sleep(0.05)
                print("end")

            async def scenario(locks):
                service.charge = charge
                await asyncio.gather(*(post("/orders/42/pay") for _ in range(3)))
                assert not await locks.mutex("orders/42").locked()
        """
        out = run(scenario)
        assert [line for line in out if line in ("begin", "end")] == ["begin", "end"] * 3
        assert out.count('200 {"order":"42 is paid"}') == 3

    def test_one_that_has_lost_its_lease_is_cancelled(self, run):
        scenario = """
            async def scenario(locks):
                async def charge(order, token):
                    await locks.break_key(f"orders/{order}")
                    await asyncio.sleep(60)

                service.charge = charge
                await post("/orders/42/pay")
        """
        assert [line[:4] for line in run(scenario)] == ["409 "]

    def test_one_that_is_cancelled_leaves_the_queue(self, run):
        scenario = """
            async def scenario(locks):
                async with locks.mutex("orders/42"):
                    request = asyncio.create_task(post("/orders/42/pay"))
                    while not (await locks.inspect("orders/42")).waiters:
                        await asyncio.sleep(0.01)
                    request.cancel()
                    await asyncio.wait([request])
                    while (await locks.inspect("orders/42")).waiters:
                        await asyncio.sleep(0.01)
                await post("/orders/42/pay")
        """
        assert run(scenario)[-1] == '200 {"order":"42 is paid"}'


def gaps(times):
    """In seconds, between each and the next."""
    times = sorted(map(datetime.datetime.fromisoformat, times))
    return [(later - time).total_seconds() for time, later in zip(times, times[1:])]


def test_tasks_of_celery_run_once_at_a_time_and_once_per_period(start, local, tmp_path):
    # A broker that needs no server, whose messages come back.
    (tmp_path / "data_in").mkdir()
    (tmp_path / "data_out").symlink_to("data_in")
    command = "-m celery -A celery_beat worker --beat --concurrency 2 --loglevel INFO"
    settings = {"LEASEHOLD_STORE": local, "CELERY_BROKER_URL": "filesystem://", "PERIOD": "0.6"}
    command += " --without-gossip --without-mingle"
    worker = start(*command.split(), options="-X dev", **settings)
    seen = []
    for line in worker.stderr:
        seen.append(line)
        if sum("report ends" in line for line in seen) == 2:
            break
    worker.send_signal(signal.SIGTERM)
    seen += worker.communicate()[1].splitlines(keepends=True)
    assert worker.returncode == 0, seen
    reports = [line.split()[-1] for line in seen if re.search(r"] report (begins|ends)$", line)]
    assert reports[:4] == ["begins", "ends"] * 2, seen
    # Two are sent in each period.
    digests = [line[1:24].replace(",", ".") for line in seen if line.endswith("] digest\n")]
    received = sum("Task celery_beat.digest[" in line and "received" in line for line in seen)
    assert 2 <= len(digests) <= received * 2 / 3 and min(gaps(digests)) > 0.25, seen


def test_one_of_several_schedulers_runs_a_job(start, local):
    settings = {"LEASEHOLD_STORE": local, "PERIOD": "0.6"}
    schedulers = [start(EXAMPLES / "apscheduler_job.py", **settings) for _ in range(2)]
    with lh.connect(local) as client:
        end = time.monotonic() + 20
        while not (holders := client.inspect("report").holders):
            assert time.monotonic() < end, "none has the lock"
            time.sleep(0.01)
    # The one that works dies, and the other goes on.
    dead = next(it for it in schedulers if it.pid == holders[0].pid)
    dead.kill()
    out = dead.communicate()[0].splitlines()
    other = next(it for it in schedulers if it is not dead)
    out += [other.stdout.readline().strip() for _ in range(3)]
    other.send_signal(signal.SIGTERM)
    out += finish(other)
    assert len(out) >= 3 and min(gaps(line.split(" at ")[1] for line in out)) > 0.25, out
