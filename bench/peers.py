"""The locks that are compared: where they come from, how they are set up, how their drivers are built.

Everything that is got or built goes to `target/bench`. The versions are those of the manifests and
lock files in `bench/drivers`.
"""

import os
import re
import shutil
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
DRIVERS = os.path.join(HERE, "drivers")
OUT = os.path.join(os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))), "bench")
# A build that takes longer than this has gone wrong.
BUILD_SECONDS = 1800


class Missing(Exception):
    """What a driver needs is not on this machine."""


class Peer:
    """A lock. `rows`: the only ones that it is measured in; such locks have a table of their own."""

    def __init__(self, name, language, title, version, settings, rows=None, local=False):
        self.name, self.language, self.title = name, language, title
        self.version, self.settings = version, settings
        self.rows, self.local = rows, local


def found(path, pattern):
    """What a manifest says, so that no version is written down twice."""
    with open(os.path.join(DRIVERS, path), encoding="utf-8") as file:
        return re.search(pattern, file.read(), re.MULTILINE | re.DOTALL).group(1)


def cargo_version(name):
    return found("rust/Cargo.lock", rf'name = "{name}"\nversion = "([^"]+)"')


def python_version(name):
    return found("python/requirements.txt", rf"^{name}==(\S+)")


def go_version(module):
    return found("go/go.mod", rf"{module} v(\S+)")


def node_version(name):
    return found("node/package.json", rf'"{name}": "([^"]+)"')


def redisson_version():
    return found("java/pom.xml", r"<artifactId>redisson</artifactId>\s*<version>([^<]+)")


def all_peers():
    """In the order of the tables. The first is what the ratios are of."""
    go_redis = f"go-redis {go_version('github.com/redis/go-redis/v9')}"
    ioredis = f"ioredis {node_version('ioredis')}"
    redis_py = f"redis-py {python_version('redis')}"
    return [
        Peer("leasehold", "rust", "leasehold", "this tree",
             "`connect(url)`, `mutex(key)`, `lock()`, `release()`. One connection a process. "
             "Queue, fencing token, renewal. TTL 30 s"),
        Peer("rslock", "rust", "rslock", cargo_version("rslock"),
             "`LockManager::new`, `acquire(key, ttl)`, which asks until it has it. One connection a "
             "process. No queue, no token; no renewal as it is used here (`using` renews). TTL 30 s, given"),
        Peer("rueidislock", "go", "rueidislock", go_version("github.com/redis/rueidis"),
             "`NewLocker` with `KeyMajority: 1` and `NoLoopTracking`, as its page says for one "
             "server; `WithContext`, `cancel()`, which does not wait for the server. One connection "
             "a process, client-side caching. Renewal. TTL 5 s"),
        Peer("redsync", "go", "redsync", go_version("github.com/go-redsync/redsync/v4"),
             f"`NewMutex(key)`, `Lock()`, on the pool of {go_redis} (10 connections a core). Asks 32 "
             "times, every 50 to 250 ms, and is then asked again. TTL 8 s"),
        Peer("bsm-redislock", "go", "bsm/redislock", go_version("github.com/bsm/redislock"),
             f"`Obtain` with `LinearBackoff(100 ms)`, as in its example, on the pool of {go_redis}. "
             "TTL 30 s, given"),
        Peer("redisson", "java", "Redisson RLock", redisson_version(),
             "`getLock(key)`, `lock()`, a thread a waiter, single server, its pool of 24 to 64 "
             "connections. Wakes waiters by pub/sub. Renewal. TTL 30 s"),
        Peer("redisson-fair", "java", "Redisson RFairLock", redisson_version(),
             "the same with `getFairLock(key)`. Queue"),
        Peer("redis-py", "python", "redis-py Lock", python_version("redis"),
             "`client.lock(key, timeout=30)`, a thread a waiter, `max_connections` for as many. Asks "
             "every 100 ms. TTL 30 s, given"),
        Peer("python-redis-lock", "python", "python-redis-lock", python_version("python-redis-lock"),
             f"`Lock(client, key, expire=30)` on {redis_py}, a thread a waiter, `max_connections` for "
             "as many, `socket_timeout=None`, as it waits for an answer. Wakes one waiter by a list. "
             "Without `auto_renewal`, its default. TTL 30 s, given"),
        Peer("redlock", "node", "redlock (npm)", node_version("redlock"),
             f"`acquire([key], 30000)`, `release()`, on one connection of {ioredis}. Asks 11 times, "
             "every 200 to 300 ms, and is then asked again. No renewal as it is used here (`using` "
             "renews). TTL 30 s, given"),
    ]


def local_peers():
    """Of one machine, without a server."""
    return [
        Peer("leasehold-local", "rust", "leasehold, `local:`", "this tree",
             "`local:` in a directory of its own for each measurement", local=True),
        Peer("flock", "rust", "the kernel's flock", "",
             "`flock(LOCK_EX)` and `flock(LOCK_UN)` on a file that is open; no waiting without a "
             "thread, no token, no lease",
             # With several waiters it would block the thread of others.
             rows=["local-pairs-1", "local-processes-8", "local-processes-8-no-hold"], local=True),
    ]


# What the package of Python is compared in, beside redis-py and python-redis-lock as above.
PYTHON_THREADS = ["pairs-1", "pairs-16", "hand-off-100", "processes-8", "processes-8-no-hold"]
PYTHON_TASKS = ["pairs-1", "pairs-64", "hand-off-100"]
PYTHON_FILES = ["local-pairs-1", "local-processes-8", "local-processes-8-no-hold"]


def python_peers():
    """Shown in a table of their own."""
    redis_py = python_version("redis")
    return [
        Peer("leasehold-python", "python", "leasehold-lock", "this tree",
             "`connect(url)`, `client.mutex(key)`, `acquire()`, `release()`, a thread a waiter", PYTHON_THREADS),
        Peer("leasehold-asyncio", "python", "leasehold-lock, asyncio", "this tree",
             "the same of `leasehold_lock.aio`, a task a waiter", PYTHON_TASKS),
        Peer("redis-py-asyncio", "python", "redis-py Lock, asyncio", redis_py,
             "the same of `redis.asyncio`, a task a waiter", PYTHON_TASKS),
        Peer("pottery", "python", "pottery Redlock", python_version("pottery"),
             f"`Redlock(key=key, masters={{client}}, auto_release_time=30)` on redis-py {redis_py}, a thread "
             "a waiter", PYTHON_THREADS),
        Peer("leasehold-filelock", "python", "leasehold_lock.FileLock", "this tree",
             "`FileLock(path)`, `acquire()`, `release()`", PYTHON_FILES, local=True),
        Peer("filelock", "python", "filelock", python_version("filelock"),
             "`FileLock(path)`, `acquire()`, `release()`. Asks every 50 ms", PYTHON_FILES, local=True),
    ]


def tool(name):
    path = shutil.which(name)
    if not path:
        raise Missing(f"{name} is missing")
    return path


def do(*command, **how):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS, **how)
    if done.returncode != 0:
        raise Missing(f"{os.path.basename(command[0])} failed, see above")


def out(*names):
    return os.path.join(OUT, *names)


def built_from(name, sources):
    """Whether that is what was built last; if not, the old one goes, and this is noted at the end."""
    text = ""
    for source in sources:
        with open(os.path.join(DRIVERS, source), encoding="utf-8") as file:
            text += file.read()
    stamp = out(f"{name}.built-from")
    if os.path.isdir(out(name)) and os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            if file.read() == text:
                return True, stamp, text
    shutil.rmtree(out(name), ignore_errors=True)
    return False, stamp, text


def note(stamp, text):
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(text)


def build_rust():
    manifest = os.path.join(DRIVERS, "rust", "Cargo.toml")
    do(tool("cargo"), "build", "--release", "--locked", "--manifest-path", manifest,
       "--target-dir", out("cargo"))
    return [out("cargo", "release", "leasehold-bench")]


def delay_command():
    """The proxy that takes its time."""
    return [out("cargo", "release", "delay")]


def build_go():
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    do(tool("go"), "build", "-o", out("go", "driver"), ".",
       cwd=os.path.join(DRIVERS, "go"), env=environment)
    return [out("go", "driver")]


def build_java():
    maven, compiler, java = tool("mvn"), tool("javac"), tool("java")
    manifest, driver = (os.path.join(DRIVERS, "java", name) for name in ["pom.xml", "Driver.java"])
    fresh, stamp, text = built_from("java", ["java/pom.xml", "java/Driver.java"])
    if not fresh:
        do(maven, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", manifest,
           "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
           f"-DoutputDirectory={out('java', 'lib')}")
        do(compiler, "-d", out("java", "classes"), "-cp", out("java", "lib", "*"), driver)
        note(stamp, text)
    return [java, "-cp", os.pathsep.join([out("java", "classes"), out("java", "lib", "*")]), "Driver"]


def build_node():
    npm, node = tool("npm"), tool("node")
    sources = ["package.json", "package-lock.json", "driver.mjs"]
    fresh, stamp, text = built_from("node", [f"node/{name}" for name in sources])
    if not fresh:
        os.makedirs(out("node"))
        for name in sources:
            shutil.copy(os.path.join(DRIVERS, "node", name), out("node"))
        do(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=out("node"))
        note(stamp, text)
    return [node, out("node", "driver.mjs")]


def python():
    """The interpreter with the packages, those that draw included."""
    program = out("python", "bin", "python3")
    fresh, stamp, text = built_from("python", ["python/requirements.txt"])
    if not fresh:
        venv.create(out("python"), with_pip=True)
        do(program, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
           "--requirement", os.path.join(DRIVERS, "python", "requirements.txt"))
        note(stamp, text)
    return program


def build_python():
    """Our own package is built from this tree each time."""
    program = python()
    do(program, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--force-reinstall",
       os.path.join(ROOT, "bindings", "python"), env={**os.environ, "CARGO_TARGET_DIR": out("cargo-python")})
    # -B: no bytecode beside the sources.
    return [program, "-B", os.path.join(DRIVERS, "python", "driver.py")]


BUILD = {
    "rust": build_rust,
    "go": build_go,
    "java": build_java,
    "node": build_node,
    "python": build_python,
}


def build(languages):
    """A command for each language whose driver could be built."""
    os.makedirs(OUT, exist_ok=True)
    commands = {}
    for language in languages:
        print(f"bench/run: building the driver in {language}", flush=True)
        try:
            commands[language] = BUILD[language]()
        except (Missing, OSError, subprocess.SubprocessError) as error:
            print(f"bench/run: skipped what is written in {language}: {error}", file=sys.stderr, flush=True)
    return commands
