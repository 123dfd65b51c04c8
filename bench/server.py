"""Real servers for a run: each on a free port of the loopback, without persistence unless it is
measured."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# One way: the round trip takes a millisecond more.
DELAY_US = 500


def die_with_parent():
    """In a child: whatever ends the runner, also `kill -9`, ends this process."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


class Awake:
    """Keeps the cores from sleeping while nothing is to be done: used in `with`.

    A process for each core computes when nobody else wants to. Without them, one task that waits
    for one answer is fast or slow by how deep the core between them sleeps.
    """

    def __init__(self, wanted):
        self.count = os.cpu_count() if wanted else 0
        self.processes = []

    def __enter__(self):
        command = [sys.executable, "-c", "while True: pass"]
        for _ in range(self.count):
            self.processes.append(subprocess.Popen(command, preexec_fn=idle))

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def idle():
    """In a child: it computes only when nothing else does."""
    die_with_parent()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Servers:
    """All ways to a server, each opened when it is first asked for. Used in `with`; they end with it.

    loopback    as it is
    delay       through a proxy that keeps each byte for DELAY_US, in both directions
    aof         writes all changes to a file, on a disk, and waits for the disk once a second
    tls         encrypted, with certificates that are made for the run
    """

    def __init__(self, directory, delay_command):
        self.directory, self.delay_command = directory, delay_command
        self.stack, self.opened = contextlib.ExitStack(), {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def reached(self, through):
        if through not in self.opened:
            self.opened[through] = self.stack.enter_context(self.open(through))
        return self.opened[through]

    def open(self, through):
        if through == "delay":
            return Delayed(self.reached("loopback"), self.delay_command)
        if through == "aof":
            return Server(self.temporary(), ["--appendonly", "yes", "--appendfsync", "everysec"])
        if through == "tls":
            return Encrypted(self.temporary())
        return Server(self.directory)

    def temporary(self):
        """Not in memory."""
        return self.stack.enter_context(tempfile.TemporaryDirectory(prefix="leasehold-bench-"))


class Server:
    """Used in `with`; it ends with it."""

    def __init__(self, directory, settings=()):
        self.program = os.environ.get("LEASEHOLD_REDIS_SERVER", "redis-server")
        if not shutil.which(self.program):
            raise SystemExit(f"bench/run: {self.program} is missing: scripts/test --install gets it")
        self.directory, self.settings = directory, settings
        self.process = self.connection = None

    def __enter__(self):
        for _ in range(5):
            self.port = free_port()
            self.process = subprocess.Popen(
                [self.program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "",
                 "--appendonly", "no", "--dir", self.directory, "--loglevel", "warning",
                 *self.settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
            if self.connect():
                return self
            self.stop()
        raise SystemExit(f"bench/run: {self.program} does not start")

    def __exit__(self, *_):
        self.stop()

    def connect(self):
        """Whether it answers within ten seconds; somebody else may have taken its port."""
        until = time.monotonic() + 10
        while time.monotonic() < until and self.process.poll() is None:
            try:
                self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
                about = self.info("server")
                return about["process_id"] == str(self.process.pid)
            except OSError:
                time.sleep(0.05)
        return False

    def stop(self):
        if self.connection:
            self.connection.close()
        self.process.kill()
        self.process.wait()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/"

    def ask(self, *words):
        """The answer as text: these commands have lines or one bulk string for an answer."""
        self.connection.sendall(f"*{len(words)}\r\n".encode())
        for word in words:
            self.connection.sendall(f"${len(word)}\r\n{word}\r\n".encode())
        answer = self.read_line()
        if answer.startswith(b"$"):
            wanted = int(answer[1:]) + 2
            answer = b""
            while len(answer) < wanted:
                answer += self.receive(wanted - len(answer))
        return answer.decode()

    def read_line(self):
        line = b""
        while not line.endswith(b"\r\n"):
            line += self.receive(1)
        return line[:-2]

    def receive(self, most):
        received = self.connection.recv(most)
        if not received:
            raise OSError("the server has closed the connection")
        return received

    def info(self, section):
        lines = self.ask("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu(self):
        """Processor time that it has used, in seconds."""
        used = self.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def version(self):
        return self.info("server")["redis_version"]

    def clear(self):
        """Waits until the clients before are gone, and deletes what they have left."""
        until = time.monotonic() + 10
        while int(self.info("clients")["connected_clients"]) > 1 and time.monotonic() < until:
            time.sleep(0.02)
        self.ask("FLUSHALL", "SYNC")


class Delayed:
    """A server behind a proxy that takes its time. Used in `with`."""

    def __init__(self, server, command):
        self.server, self.command = server, command

    def __enter__(self):
        self.process = subprocess.Popen(
            [*self.command, str(self.server.port), str(DELAY_US)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        self.url = f"redis://127.0.0.1:{int(self.process.stdout.readline())}/"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def clear(self):
        self.server.clear()

    def cpu(self):
        return self.server.cpu()


class Encrypted(Server):
    """Answers on a second port, encrypted. The first one is for what the runner asks."""

    def __init__(self, directory):
        super().__init__(directory)
        self.ca = os.path.join(directory, "ca.crt")
        certificate, key = (os.path.join(directory, f"server.{end}") for end in ["crt", "key"])
        self.files = [
            "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", self.ca,
            "--tls-auth-clients", "no",
        ]
        make_certificates(directory, self.ca, certificate, key)

    def __enter__(self):
        self.encrypted_port = free_port()
        self.settings = ["--tls-port", str(self.encrypted_port), *self.files]
        return super().__enter__()

    @property
    def url(self):
        return f"rediss://127.0.0.1:{self.encrypted_port}/?ca={self.ca}"


def make_certificates(directory, ca, certificate, key):
    """Of an authority that ends with the run, and of a server at 127.0.0.1."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
    ca_key = os.path.join(directory, "ca.key")
    openssl("req", "-x509", *new_key, "-subj", "/CN=bench", "-keyout", ca_key, "-out", ca)
    openssl("req", "-x509", *new_key, "-subj", "/CN=127.0.0.1", "-CA", ca, "-CAkey", ca_key,
            "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", key, "-out", certificate)


def openssl(*words):
    try:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        raise SystemExit("bench/run: openssl is missing, which the rows with TLS need") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise SystemExit(f"bench/run: openssl makes no certificate: {said}") from error


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
