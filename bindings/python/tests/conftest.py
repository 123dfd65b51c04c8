"""Stores and faces: each scenario runs on each store, with threads and with tasks."""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator

import faces
import pytest

pytest_plugins = ["leasehold_lock.testing"]

SCHEMA = pathlib.Path(__file__).parents[3] / "crates/leasehold-postgres/src/schema.sql"
VALKEY = os.environ.get("LEASEHOLD_VALKEY_SERVER", "valkey-server")


class Server:
    """A server on a free port of this machine."""

    def __init__(self, directory: pathlib.Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        self.process = subprocess.Popen(
            [VALKEY, *map(str, options)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert any("Ready to accept connections" in line for line in self.process.stdout), "no server"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("valkey"))
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: pathlib.Path) -> Iterator[Server]:
    """A server that a test may stop."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL, which has to be started by another user than root."""
    programs = os.environ.get("LEASEHOLD_POSTGRES_BIN")
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda it: it.parent.name)
    if not programs and not found:
        pytest.skip("there is no PostgreSQL")
    programs = pathlib.Path(programs or found[-1])
    user = {"user": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as directory:
        if user:
            shutil.chown(directory, "postgres")
        at = {"cwd": directory, **user}
        initdb = [programs / "initdb", *"-D data -N -A trust -U postgres --no-locale".split()]
        subprocess.run(initdb, check=True, capture_output=True, **at)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [programs / "postgres", *f"-D data -F -p {port} -k {directory}".split()]
        log = {"stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **log, **at) as process:
            try:
                ready = "ready to accept connections"
                assert any(ready in line for line in process.stderr), "no server"
                url = f"postgres://postgres@127.0.0.1:{port}/postgres"
                psql = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", url]
                schema = SCHEMA.read_text().replace("{schema}", "leasehold")
                subprocess.run(psql, input=schema, text=True, check=True, capture_output=True)
                yield url
            finally:
                process.terminate()


_stores = itertools.count()


@pytest.fixture(params=["memory", "local", "redis"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that no other test uses, and that several clients can open."""
    number = next(_stores)
    if request.param == "memory":
        return f"memory:test{number}"
    if request.param == "local":
        # A socket's path may have about a hundred characters only.
        return f"local:{tmp_path_factory.mktemp('l')}"
    return request.getfixturevalue("server").url + f"?prefix=test{number}"


FACES = {"threads": faces.Threads, "tasks": faces.Tasks, "uvloop": faces.Uvloop}


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> faces.Threads | faces.Tasks:
    return FACES[request.param]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loop differs in how it watches and wakes: that one store shows."""
    def is_wanted(item: pytest.Item) -> bool:
        params = getattr(getattr(item, "callspec", None), "params", {})
        return params.get("face") != "uvloop" or params.get("url", "redis") == "redis"

    items[:] = filter(is_wanted, items)
