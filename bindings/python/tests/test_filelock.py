"""``FileLock``: what users of the package ``filelock`` expect."""

from __future__ import annotations

import math
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import leasehold_lock as lh
import pytest
from test_processes import run


@pytest.fixture
def path(tmp_path_factory):
    # A socket's path may have about a hundred characters only.
    return tmp_path_factory.mktemp("f") / "new" / "a 100% ü.lock"


def elsewhere(call):
    """What it answers on another thread."""
    answers = []
    other = threading.Thread(target=lambda: answers.append(call()))
    other.start()
    other.join()
    return answers[0]


def is_free(path):
    try:
        with lh.FileLock(path, timeout=0):
            return True
    except lh.Timeout:
        return False


def test_a_thread_acquires_it_several_times(path):
    lock = lh.FileLock(path)
    assert lock.lock_file == str(path) and (lock.is_locked, lock.lock_counter) == (False, 0)
    lock.release()
    with lock as same, lock.acquire() as again:
        assert same is lock is again and (lock.is_locked, lock.lock_counter) == (True, 2)
        assert elsewhere(lambda: (lock.is_locked, lock.lock_counter)) == (False, 0)
        lock.acquire(poll_interval=0.01)
        lock.release()
        assert lock.lock_counter == 2
    assert not lock.is_locked and elsewhere(lambda: is_free(path))
    for _ in range(3):
        lock.acquire()
    lock.release(force=True)
    assert lock.lock_counter == 0 and elsewhere(lambda: is_free(path))


def test_who_comes_too_late_gets_the_timeout(path):
    lock, link = lh.FileLock(str(path), timeout=math.inf), path.parent.parent / "link"
    link.symlink_to(path)
    busy = [{"timeout": 0}, {"timeout": 0.02}, {"blocking": False}, {"poll_interval": 0.01}]

    def late(**options):
        with pytest.raises(lh.Timeout) as caught:
            lh.FileLock(link, timeout=0.01).acquire(**options)
        assert isinstance(caught.value, TimeoutError) and caught.value.lock_file == str(link)
        return True

    with lock:
        assert all(elsewhere(lambda options=options: late(**options)) for options in busy)
        with pytest.raises(lh.Timeout):
            lh.FileLock(path, blocking=False).acquire()
        with lh.FileLock(path.with_name("other"), 0).acquire():
            pass
    waiting = threading.Event()

    def wait():
        waiting.set()
        with lock:
            return True

    with lock:
        other = threading.Thread(target=wait)
        other.start()
        waiting.wait()
    other.join()


def test_a_path_that_is_not_utf_8_is_locked(path):
    odd = path.with_name("d\udcff") / "a\udcff.lock"
    with lh.FileLock(odd, 0) as lock:
        assert lock.is_locked and not elsewhere(lambda: is_free(odd))
        assert elsewhere(lambda: is_free(odd.with_name("a\udcfe.lock")))
    assert os.listdir(odd.parent) == [".leasehold"]


def test_it_decorates_a_function(path):
    lock = lh.FileLock(path)

    @lock
    def work():
        return lock.is_locked

    assert work() and not lock.is_locked


def test_what_runs_after_the_call_is_not_decorated(path):
    async def work():
        pass

    def rows():
        yield 1

    async def events():
        yield 1

    class Work:
        async def __call__(self):
            pass

    for function in (work, rows, events, Work(), staticmethod(work)):
        with pytest.raises(TypeError, match="use a block"):
            lh.FileLock(path)(function)


def test_processes_exclude_each_other(path):
    text = "import sys, leasehold_lock as lh\nlh.FileLock(sys.argv[1], 0).acquire()\n"
    command = [sys.executable, "-c", text, str(path)]
    with lh.FileLock(path):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "leasehold_lock._errors.Timeout" in done.stderr, done
    assert os.listdir(path.parent) == [".leasehold"]
    # What it held is released when it ends.
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    assert is_free(path)


FORKED = """
lock, (told, tells) = lh.FileLock(url), os.pipe()
with lock:
    child = os.fork()
    if child == 0:
        assert (lock.is_locked, lock.lock_counter) == (False, 0)
        try:
            lock.acquire(timeout=0)
        except lh.Timeout:
            os.write(tells, b"busy")
        with lock:
            os._exit(7 if lock.is_locked else 8)
    os.close(tells)
    assert os.read(told, 4) == b"busy" and lock.is_locked
assert os.waitpid(child, 0)[1] == 7 << 8
"""


def test_a_child_acquires_anew_what_its_parent_held_at_the_fork(path, tmp_path):
    assert run(tmp_path, FORKED, str(path)) == ""


DIRECTORIES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))
for number in range(120):
    with lh.FileLock(f"{url}/{number}/a.lock"):
        pass
"""


def test_many_directories_are_locked_one_after_the_other(path, tmp_path):
    assert run(tmp_path, DIRECTORIES, str(path.parent)) == ""


def test_a_loss_is_said(path):
    lock, url = lh.FileLock(path), f"local:{path.parent}/.leasehold"
    path.parent.mkdir()
    with lh.connect(url) as client:
        with pytest.raises(lh.Lost):
            with lock:
                assert client.break_key(path.name) == 1
                lock._levels[-1].lost.wait()
                assert not lock.is_locked
                with pytest.raises(lh.Lost):
                    lock.acquire()
        # The exception of the work is what is seen.
        with pytest.raises(KeyError), lock.acquire():
            client.break_key(path.name)
            lock._levels[-1].lost.wait()
            raise KeyError


def test_a_directory_that_was_removed_is_made_again(path):
    lock = lh.FileLock(path)
    for _ in range(2):
        with lock:
            assert lock.is_locked and not elsewhere(lambda: is_free(path))
        shutil.rmtree(path.parent)


def test_the_docstring_says_at_once_what_it_is_not():
    first = lh.FileLock.__doc__.splitlines()[0]
    for word in ("not exclude users of ``filelock``", "local disk", "not for Windows"):
        assert word in first
    assert pathlib.Path(lh.FileLock("x").lock_file) == pathlib.Path("x")
