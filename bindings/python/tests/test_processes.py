"""Signals, forks, and the end of a process."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types

import faces
import leasehold_lock as lh
import pytest
from leasehold_lock import _base

threads = faces.Threads()


@pytest.fixture(params=["local", "redis"])
def url(request, tmp_path_factory):
    """A store that several processes can open, if it is not of this process."""
    if request.param == "memory":
        return f"memory:{request.node.name}"
    if request.param == "local":
        return f"local:{tmp_path_factory.mktemp('l')}"
    return request.getfixturevalue("server").url + f"?prefix={request.node.name}"


def script(tmp_path: pathlib.Path, text: str) -> list[str]:
    """The command of a program with this text."""
    # A file for each: one that is written again is empty for who begins to run it just then.
    program = pathlib.Path(tempfile.mkdtemp(dir=tmp_path), "program.py")
    program.write_text("import leasehold_lock as lh\nimport os, sys\nurl = sys.argv[1]\n" + text)
    # That forks and threads go together badly is no news.
    ignore = "ignore:This process:DeprecationWarning"
    return [sys.executable, "-W", "error", "-W", ignore, str(program)]


def run(tmp_path: pathlib.Path, text: str, *args: str) -> str:
    command = [*script(tmp_path, text), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout


def test_signals_are_for_the_threads_of_the_program(url, tmp_path):
    text = """
import logging, pathlib, signal
logging.basicConfig(level=logging.CRITICAL)

def blocks(thread):
    status = dict(line.split(":\\t", 1) for line in (thread / "status").read_text().splitlines())
    return bool(int(status["SigBlk"], 16) & 1 << signal.SIGTERM - 1)

client = lh.connect(url)
with client.mutex("k"):
    threads = {int(it.name): it for it in pathlib.Path("/proc/self/task").iterdir()}
    assert not blocks(threads.pop(os.getpid()))
    while not all(map(blocks, threads.values())):
        pass
    print(len(threads))
client.close()
"""
    assert int(run(tmp_path, text, url)) >= 2, "the runtime's thread, and that of the log"


def interrupt(client: lh.Client) -> None:
    """Interrupts the main thread as soon as it waits."""
    threads.run(faces.waiting(threads, faces.Awaited(client), "k", 1))
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_ends_a_wait_and_leaves_the_queue(url):
    client = lh.connect(url)
    with client.mutex("k"):
        others = threading.Thread(target=interrupt, args=(client,))
        others.start()
        with pytest.raises(KeyboardInterrupt):
            client.mutex("k").acquire()
        others.join()
        threads.run(faces.waiting(threads, faces.Awaited(client), "k", 0))
    assert not client.mutex("k").locked()
    client.close()


def test_the_import_starts_no_thread(tmp_path):
    count = "len(os.listdir('/proc/self/task'))"
    out = run(tmp_path, f"print({count}); lh.connect(url).close(); print({count})", "memory:")
    assert out.split() == ["1", "2"]


ONE_LOCK = """
async def tasks():
    async with lh.aio.connect(url) as client, client.mutex("k") as lease:
        return lease.token
with lh.connect(url) as client, client.mutex("k") as lease:
    import asyncio
    lease.release()
    print(lease.token < asyncio.run(tasks()))
"""


def test_other_interpreters_load_the_same_package(tmp_path):
    package = os.path.dirname(os.path.dirname(lh.__file__))
    *_, file = script(tmp_path, ONE_LOCK)
    names = [name for name in (f"python3.{minor}" for minor in range(10, 20)) if shutil.which(name)]
    for name in [sys.executable, *names]:
        command = [name, file, "memory:"]
        environment = {**os.environ, "PYTHONPATH": package}
        if subprocess.run([name, "-c", ""], capture_output=True, timeout=60).returncode == 0:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
            assert (done.returncode, done.stdout) == (0, "True\n"), (name, done)


def test_a_subinterpreter_is_refused_with_a_sentence(tmp_path):
    text = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
code = "try:\\n import leasehold_lock\\nexcept ImportError as error:\\n print(error, flush=True)"
interpreters.run_string(other, code)
interpreters.destroy(other)
"""
    assert run(tmp_path, text, "memory:") == "leasehold-lock does not support subinterpreters: use processes or threads\n"


def test_a_call_that_blocks_a_loop_warns_once(tmp_path):
    text = """
import asyncio, warnings
async def block():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with lh.connect(url) as client:
            with client.mutex("k"):
                pass
    print(len(seen), seen[0].category.__name__, os.path.basename(seen[0].filename))
asyncio.run(block())
"""
    assert run(tmp_path, text, "memory:").split() == ["1", "RuntimeWarning", "program.py"]


def test_a_release_that_blocks_a_loop_warns_too(tmp_path):
    text = """
import asyncio, warnings
lock = lh.connect(url).mutex("k")
lock.acquire()
async def release():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        lock.release()
    print(len(seen), lock.locked())
asyncio.run(release())
"""
    assert run(tmp_path, text, "memory:").split() == ["1", "False"]


def test_a_warning_that_is_an_error_begins_no_hold_and_keeps_none(tmp_path):
    text = """
import asyncio
client = lh.connect(url)
lock, other = client.mutex("k"), client.mutex("other")
async def call(one):
    try:
        print(one())
    except RuntimeWarning:
        print("blocks")
asyncio.run(call(lock.acquire))
print(lock.locked(), lock.acquire())
asyncio.run(call(lock.release))
lease = other.lease()
asyncio.run(call(lease.release))
print(lock.locked(), other.locked())
"""
    said = ["blocks", "False True", "None", "True", "False False"]
    assert run(tmp_path, text, "memory:").splitlines() == said


def test_a_module_that_another_thread_is_importing_is_not_used(monkeypatch):
    with monkeypatch.context() as patch, lh.connect("memory:") as client:
        patch.setattr(_base, "_released_with", None)
        for name in ("asyncio", "multiprocessing.process"):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        with client.mutex("k") as lease:
            assert lease.is_valid()


HELD_AT_EXIT = """
import threading
client = lh.connect(url, operation_timeout=0.5)
leases = [client.mutex(key).lease() for key in "abc"]
for _ in range(3):
    threading.Thread(target=client.mutex("a").acquire, daemon=True).start()
while len(client.inspect("a").waiters) < 3:
    pass
"""


# As the page has it.
ENDED_BY_A_SIGNAL = """
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.parametrize("end, code", [("", 0), (ENDED_BY_A_SIGNAL, 143)])
def test_what_is_held_at_exit_is_released(tmp_path, url, end, code):
    command = [*script(tmp_path, HELD_AT_EXIT + end), url]
    # Leases that end with the interpreter may warn, and threads that wait end with Closed.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    client = lh.connect(url)
    for key in "abc":
        assert client.inspect(key) == ([], [])
    client.close()


CLIENTS_AT_EXIT = """
import threading
sys.setswitchinterval(1e-6)
made = [lh.Client("memory:") for _ in range(5000)]
def make():
    made.extend(lh.Client("memory:") for _ in range(30_000))
threading.Thread(target=make, daemon=True).start()
lock = lh.connect(url).mutex("k")
lock.acquire()
"""


def test_what_is_held_at_exit_is_released_while_a_thread_makes_clients(tmp_path, url):
    command = [*script(tmp_path, CLIENTS_AT_EXIT), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "RuntimeError" not in done.stderr, done
    with lh.connect(url) as client:
        assert client.inspect("k") == ([], [])


STOPPED_LOOP = """
import asyncio, gc
from leasehold_lock import _base
async def begin():
    client = await lh.aio.connect(url)
    lease = await client.mutex("k").lease()
    waiting = asyncio.ensure_future(client.mutex("k").lease())
    while not (await client.inspect("k")).waiters:
        pass
    return client, lease, waiting
client, *kept = asyncio.new_event_loop().run_until_complete(begin())
_base._release_at_exit()
left = gc.get_referents(client._bridge._core)
os._exit(any(isinstance(it, asyncio.Future) for it in left))
"""


def test_the_end_does_not_wait_for_tasks_of_a_loop_that_has_stopped(tmp_path, url):
    assert run(tmp_path, STOPPED_LOOP, url) == ""


def test_a_server_that_does_not_answer_does_not_keep_a_process(tmp_path, own_server):
    text = HELD_AT_EXIT + "print('held', flush=True)\nsys.stdin.read()\n"
    command = [*script(tmp_path, text), own_server.url]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout.readline() == "held\n"
    own_server.process.send_signal(signal.SIGSTOP)
    process.communicate(timeout=60)
    own_server.process.send_signal(signal.SIGCONT)
    assert process.returncode == 0


FORK = """
import asyncio
client = lh.connect(url)
lease = client.mutex("k", ttl=300).lease()
child = os.fork()
if child == 0:
    assert lease.lost.is_set() and not lease.is_valid()
    try:
        lease.check()
    except lh.Lost as lost:
        assert "forked" in str(lost), lost
    else:
        raise AssertionError("the lease of the parent is not lost")
    assert not client.mutex("k").acquire(blocking=False)
    with client.mutex("other") as mine:
        assert mine.is_valid() and client.inspect("other").holders[0].pid == os.getpid()
    async def use():
        async with lh.aio.connect(url) as own, own.mutex("other"):
            assert not await own.mutex("k").acquire(timeout=0.01)
    asyncio.run(use())
    del lease
    if sys.argv[2] == "hard":
        os._exit(0)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
lease.check()
assert client.inspect("k").holders[0].pid == os.getpid()
assert lease.release()
print("released")
"""


@pytest.mark.parametrize("end", ["hard", "soft"])
def test_a_forked_child_connects_anew_and_releases_nothing(tmp_path, url, end):
    assert run(tmp_path, FORK, url, end) == "released\n"


def test_forks_of_a_thread_and_of_a_busy_process_work(tmp_path, url):
    text = """
import threading
client, stop = lh.connect(url), threading.Event()
def work(key):
    while not stop.is_set():
        with client.mutex(key):
            pass
busy = [threading.Thread(target=work, args=(f"busy{n}",)) for n in range(2)]
for thread in busy:
    thread.start()
def fork():
    for n in range(10):
        child = os.fork()
        if child == 0:
            with client.mutex(f"child{n}"):
                os._exit(7)
        assert os.waitpid(child, 0)[1] == 7 << 8
    stop.set()
forking = threading.Thread(target=fork)
forking.start()
for thread in [forking, *busy]:
    thread.join()
print("done")
"""
    assert run(tmp_path, text, url) == "done\n"


LOOP_OF_A_PARENT = """
import asyncio, select, time
loop = asyncio.new_event_loop()
async def wait():
    client = await lh.aio.connect(url)
    waiter = asyncio.ensure_future(client.mutex("k").lease())
    while not (await client.inspect("k")).waiters:
        pass
    return client, waiter
with lh.connect(url) as other:
    with other.mutex("k"):
        client, waiter = loop.run_until_complete(wait())
    assert select.select([client._bridge._core.fileno()], [], [], 20)[0], "it is granted"
    child = os.fork()
    if child == 0:
        try:
            loop.run_until_complete(waiter)
        except lh.Closed:
            begun, cpu = time.monotonic(), time.process_time()
            loop.run_until_complete(asyncio.sleep(0.2))
            cpu, took = time.process_time() - cpu, time.monotonic() - begun
            os._exit(cpu > took / 2)
    assert os.waitpid(child, 0)[1] == 0
    lease = loop.run_until_complete(asyncio.wait_for(waiter, 20))
    loop.run_until_complete(lease.release())
    loop.run_until_complete(client.close())
loop.close()
"""


def test_a_child_that_runs_the_loop_of_its_parent_takes_nothing_from_it(tmp_path, url):
    assert run(tmp_path, LOOP_OF_A_PARENT, url) == ""


IN_A_TASK = """
import asyncio
async def main():
    client = await lh.aio.connect(url)
    async with client.mutex("k") as lease:
        waiter = asyncio.ensure_future(client.mutex("k").lease())
        while not (await client.inspect("k")).waiters:
            pass
        child = os.fork()
        if child == 0:
            try:
                await waiter
            except lh.Closed:
                os._exit(7)
        assert os.waitpid(child, 0)[1] == 7 << 8
        lease.check()
    await (await waiter).release()
    await client.close()
asyncio.run(main())
"""


def test_a_child_does_not_await_for_ever_what_its_parent_has_begun(tmp_path, url):
    assert run(tmp_path, IN_A_TASK, url) == ""


# The child has a loop of its own: while that of its parent runs, and after that.
IN_ANOTHER_LOOP = """
import asyncio
client = lh.aio.connect(url)
lock = client.mutex("k")
async def use():
    async with lock as lease:
        return lease.token
def fork(before):
    child = os.fork()
    if child == 0:
        os._exit(7 if asyncio.run(use()) > before else 8)
    assert os.waitpid(child, 0)[1] == 7 << 8
async def main():
    before = await use()
    async with client.mutex("other") as lease:
        fork(before)
        lease.check()
    return before
fork(asyncio.run(main()))
"""


def test_a_client_of_a_loop_of_its_parent_connects_anew_in_that_of_a_child(tmp_path, url):
    assert run(tmp_path, IN_ANOTHER_LOOP, url) == ""


def test_a_killed_parent_holds_nothing_although_its_child_lives(tmp_path, url):
    text = """
client = lh.connect(url)
lease = client.mutex("k", ttl=2 if url.startswith("redis") else 300).lease()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    parent = subprocess.Popen(
        [*script(tmp_path, text), url], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    assert parent.stdout.readline() == "held\n"
    parent.kill()
    parent.wait()
    # A server notices by the TTL, and this machine at once.
    with lh.connect(url) as client, client.mutex("k", timeout=30) as lease:
        assert lease.is_valid()
    parent.communicate()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_works_with_each_start(tmp_path, url, method):
    text = f"""
import multiprocessing
def work(number):
    with lh.connect(url) as client, client.mutex("k", timeout=30) as lease:
        return lease.token
if __name__ == "__main__":
    client = lh.connect(url)
    with client.mutex("before"):
        context = multiprocessing.get_context({method!r})
        with context.Pool(3) as pool:
            tokens = pool.map(work, range(9))
            pool.close()
            pool.join()
    assert len(set(tokens)) == 9
    print("done")
"""
    assert run(tmp_path, text, url) == "done\n"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_of_multiprocessing_releases_at_its_end(tmp_path, url, method):
    text = f"""
import multiprocessing
def work():
    global lock
    lock = lh.connect(url, ttl=3600).mutex("left")
    lock.acquire()
if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=work)
    child.start()
    child.join()
    with lh.connect(url) as client, client.mutex("left", timeout=30):
        print(child.exitcode)
"""
    assert run(tmp_path, text, url) == "0\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_child_of_multiprocessing_has_adopted_is_released_at_its_end(tmp_path, url, method):
    text = f"""
import multiprocessing
def work(parts):
    global lease
    lease = lh.connect(url, ttl=3600).mutex("k").adopt(parts)
if __name__ == "__main__":
    with lh.connect(url, ttl=3600) as client:
        parts = client.mutex("k").lease().hand_over()
        child = multiprocessing.get_context({method!r}).Process(target=work, args=(parts,))
        child.start()
        child.join()
        with client.mutex("k", timeout=30):
            print(child.exitcode)
"""
    assert run(tmp_path, text, url) == "0\n"


NO_STREAM = """
with lh.connect(url) as client, client.mutex("k"):
    os.close(0)
    with client.mutex("other"):
        print(os.path.exists("/proc/self/fd/0"))
"""


def test_no_record_takes_the_place_of_a_standard_stream(tmp_path, tmp_path_factory):
    assert run(tmp_path, NO_STREAM, f"local:{tmp_path_factory.mktemp('l')}") == "False\n"


MANY_KEYS = """
import resource
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
with lh.connect(url) as client:
    for number in range(300):
        with client.mutex(f"k{number}"):
            pass
"""


def test_more_keys_than_a_process_may_open_files_are_locked(tmp_path, tmp_path_factory):
    assert run(tmp_path, MANY_KEYS, f"local:{tmp_path_factory.mktemp('l')}") == ""


MANY_FILES = """
import resource
with lh.connect(f"{url}?audit=1d") as client:
    with client.mutex("k"):
        pass
    for number in range(300):
        open(f"{url.removeprefix('local:')}/audit/{number:020}.jsonl", "w").close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    print([entry["event"] for entry in client.audit_log()])
"""


def test_an_audit_log_of_more_files_than_a_process_may_open_is_read(tmp_path, tmp_path_factory):
    said = run(tmp_path, MANY_FILES, f"local:{tmp_path_factory.mktemp('l')}")
    assert said == "['granted', 'released']\n"


NO_DESCRIPTORS = """
import asyncio, resource
async def main():
    client = lh.aio.connect(url)
    bridge = lh.aio._Bridge.of(asyncio.get_running_loop())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    calls = asyncio.gather(*(client.inspect("k") for _ in range(3)), return_exceptions=True)
    failed = await asyncio.wait_for(calls, 20)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    print(*(type(error).__name__ for error in failed), await client.inspect("k"))
    await client.close()
asyncio.run(main())
"""


def test_tasks_whose_calls_cannot_begin_hear_of_it(tmp_path):
    said = "Unavailable Unavailable Unavailable Inspection(holders=[], waiters=[])\n"
    assert run(tmp_path, NO_DESCRIPTORS, "memory:") == said


NOTHING_TO_LOG_WITH = """
import logging, resource, signal, threading
def log_threads():
    return [thread for thread in threading.enumerate() if thread.name == "leasehold-log"]
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
try:
    lh.connect(url)
except lh.Unavailable:
    for thread in log_threads():
        thread.join()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
with lh.connect(url):
    print(len(log_threads()))
"""


def test_a_thread_that_cannot_begin_to_log_is_started_again(tmp_path):
    assert run(tmp_path, NOTHING_TO_LOG_WITH, "memory:") == "1\n"


def test_an_interrupt_is_noticed_while_other_threads_wait(url):
    client = lh.connect(url)
    with client.mutex("k") as lease:
        ends = []

        def wait():
            try:
                with client.mutex("k"):
                    ends.append("acquired")
            except lh.LeaseholdError as error:
                ends.append(error)

        others = [threading.Thread(target=wait) for _ in range(2)]
        for other in others:
            other.start()
        threads.run(faces.waiting(threads, faces.Awaited(client), "k", 2))
        stopping = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            stopping.start()
            lease.lost.wait()
        stopping.join()
    for other in others:
        other.join()
    assert ends == ["acquired"] * 2
    client.close()
