//! The command as a whole process, on a store of the test's own: what the tests import as a whole, with
//! what they all need beside it.

pub(crate) mod browser;
pub(crate) mod http;
pub(crate) mod pty;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use leasehold_testkit::expect::says;
use leasehold_testkit::postgres::Postgres;
pub(crate) use leasehold_testkit::process::{Finished, PATIENCE, Process, Signal};
pub(crate) use leasehold_testkit::server::RedisServer;
use leasehold_testkit::zookeeper::ZooKeeper;
pub(crate) use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// Each case on that store, in a module of that name.
macro_rules! on_store {
    ($name:ident: $store:expr; $($case:ident),*) => {
        mod $name {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&$store).await;
            })*
        }
    };
}
pub(crate) use on_store;

/// Each case on the local store and on real servers.
macro_rules! on_each_store {
    ($($case:ident),* $(,)?) => {
        on_store!(local: super::Store::local(); $($case),*);
        on_store!(redis: super::Store::redis(); $($case),*);
        on_store!(postgres: super::Store::postgres().await; $($case),*);
        on_store!(zookeeper: super::Store::zookeeper(); $($case),*);
    };
}
pub(crate) use on_each_store;

/// A store that ends with the test.
pub(crate) struct Store {
    pub(crate) url: String,
    files: TempDir,
    server: Option<RedisServer>,
    has_server: bool,
}

impl Store {
    /// Of one process only: for what needs no rival.
    pub(crate) fn memory() -> Self {
        Self::at("memory:".to_owned(), None)
    }

    pub(crate) fn local() -> Self {
        let mut store = Self::at(String::new(), None);
        store.url = format!("local:{}", store.path("store").display());
        store
    }

    pub(crate) fn redis() -> Self {
        let server = RedisServer::start();
        Self::at(server.url(), Some(server))
    }

    /// A schema of its own, which the command makes.
    pub(crate) async fn postgres() -> Self {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let url = format!("{}?schema=locks_{number}&pool=2", Postgres::shared().url());
        let mut store = Self::at(url, None);
        store.has_server = true;
        store.run("init").await.has_code(Some(0));
        store
    }

    /// A chroot of its own.
    pub(crate) fn zookeeper() -> Self {
        let server = ZooKeeper::shared();
        let mut store = Self::at(server.url_of(&server.chroot()), None);
        store.has_server = true;
        store
    }

    pub(crate) fn at(url: String, server: Option<RedisServer>) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory can be made");
        Self {
            url,
            files,
            has_server: server.is_some(),
            server,
        }
    }

    /// That of [`redis`](Self::redis).
    pub(crate) fn server(&self) -> &RedisServer {
        self.server.as_ref().expect("a server of Redis")
    }

    /// Whether a server keeps it, which cannot see who is dead.
    pub(crate) fn is_remote(&self) -> bool {
        self.has_server
    }

    /// A file of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A file of the test that can be executed, as far as its mode goes.
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file can be written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        path
    }

    /// The command with these arguments, on this store.
    pub(crate) fn command(&self, arguments: impl Arguments) -> Command {
        let mut command = leasehold(arguments);
        command.env("LEASEHOLD_STORE", &self.url);
        command.env("XDG_STATE_HOME", self.path("state"));
        command.current_dir(self.files.path());
        command
    }

    pub(crate) fn spawn(&self, arguments: impl Arguments) -> Process {
        Process::spawn(self.command(arguments))
    }

    pub(crate) async fn run(&self, arguments: impl Arguments) -> Finished {
        Process::run(self.command(arguments)).await
    }

    /// The same with these variables.
    pub(crate) async fn run_with(
        &self,
        variables: &[(&str, &str)],
        arguments: impl Arguments,
    ) -> Finished {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        Process::run(command).await
    }

    /// A process that has said that it is up.
    pub(crate) async fn up(&self, arguments: impl Arguments) -> Process {
        printing(self, arguments, "up").await
    }

    /// A process that waits for the key, and has said so.
    pub(crate) async fn waiter(&self, key: &str, arguments: impl Arguments) -> Process {
        saying(self, arguments, &format!("waiting for {key}")).await
    }

    /// `show KEY --json`.
    pub(crate) async fn show(&self, key: &str) -> Value {
        let shown = self.run(&["show", key, "--json"]).await;
        shown.has_code(Some(0));
        shown.json()
    }

    /// Asks until `true_of` what `show` says of the key; for what no process reports.
    pub(crate) async fn until(&self, key: &str, true_of: impl Fn(&Value) -> bool) {
        let is_so = async || true_of(&self.show(key).await);
        // Longer than any period of these tests, and no longer than the TTL of a hold.
        let comes = within(Duration::from_secs(30), is_so).await;
        assert!(comes, "it never came: {}", self.show(key).await);
    }

    /// The processes that wait for the key, in this order.
    pub(crate) async fn waiting(&self, key: &str) -> Vec<u64> {
        let shown = self.show(key).await;
        let waiters = shown["waiters"].as_array().expect("a list").iter();
        let pids = waiters.map(|claim| claim["owner"]["pid"].as_u64());
        pids.map(|pid| pid.expect("a pid")).collect()
    }

    /// Until nobody holds it.
    pub(crate) async fn until_free(&self, key: &str) {
        let is_free = |shown: &Value| shown["holders"] == json!([]);
        self.until(key, is_free).await;
    }

    /// A process that holds the key, and has said so.
    pub(crate) async fn holder(&self, arguments: impl Arguments) -> (Process, u64) {
        let mut hold = self.command("hold");
        hold.args(arguments.words());
        let holder = Process::spawn(hold);
        let token = holder.prints("").await;
        (holder, token.parse().expect("a token"))
    }
}

/// Whether it is so in time; for what nobody reports.
pub(crate) async fn eventually(is_so: impl AsyncFn() -> bool) -> bool {
    within(PATIENCE, is_so).await
}

/// The same within this time.
pub(crate) async fn within(limit: Duration, is_so: impl AsyncFn() -> bool) -> bool {
    let asking = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(limit, asking).await.is_ok()
}

/// The command with these arguments on the store at that URL.
pub(crate) fn at(url: &str, arguments: impl Arguments) -> Command {
    let mut command = leasehold(arguments);
    command.env("LEASEHOLD_STORE", url);
    command
}

pub(crate) fn spawn_at(url: &str, arguments: impl Arguments) -> Process {
    Process::spawn(at(url, arguments))
}

pub(crate) async fn run_at(url: &str, arguments: impl Arguments) -> Finished {
    Process::run(at(url, arguments)).await
}

/// What the command can be run on: a store, or the URL of one.
pub(crate) trait Target {
    fn with(self, arguments: impl Arguments) -> Command;
}

impl Target for &Store {
    fn with(self, arguments: impl Arguments) -> Command {
        self.command(arguments)
    }
}

impl<T: AsRef<str> + ?Sized> Target for &T {
    fn with(self, arguments: impl Arguments) -> Command {
        at(self.as_ref(), arguments)
    }
}

/// Runs the command there, and expects this status.
pub(crate) async fn ends(on: impl Target, arguments: impl Arguments, status: i32) -> Finished {
    Process::spawn(on.with(arguments)).ends(status).await
}

/// The same, with that within standard error.
pub(crate) async fn ends_saying(
    on: impl Target,
    arguments: impl Arguments,
    status: i32,
    said: impl AsRef<str>,
) -> Finished {
    let process = Process::spawn(on.with(arguments));
    process.ends_saying(status, said).await
}

/// The same, with exactly that on standard output.
pub(crate) async fn ends_printing(
    on: impl Target,
    arguments: impl Arguments,
    status: i32,
    stdout: &str,
) -> Finished {
    let process = Process::spawn(on.with(arguments));
    process.ends_printing(status, stdout).await
}

/// A process that has said this.
pub(crate) async fn saying(on: impl Target, arguments: impl Arguments, said: &str) -> Process {
    let process = Process::spawn(on.with(arguments));
    process.says(said).await;
    process
}

/// A process that has printed this.
pub(crate) async fn printing(on: impl Target, arguments: impl Arguments, text: &str) -> Process {
    let process = Process::spawn(on.with(arguments));
    process.prints(text).await;
    process
}

/// A process that holds the key, and has said so.
pub(crate) async fn holder_at(url: &str, arguments: impl Arguments) -> Process {
    let mut hold = at(url, "hold");
    hold.args(arguments.words());
    let holder = Process::spawn(hold);
    holder.prints("").await;
    holder
}

/// The command with these arguments, and nothing of the tester's own environment. A script that it
/// runs has it as `$L`.
pub(crate) fn leasehold(arguments: impl Arguments) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    // The settings of the tester are not those of the test.
    command.env("LEASEHOLD_CONFIG", "/dev/null");
    command.env("L", env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments.words());
    command
}

/// Gives a command that starts another one its environment and its directory.
pub(crate) fn in_environment_of(inner: &Command, outer: &mut Command) {
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(directory) = inner.get_current_dir() {
        outer.current_dir(directory);
    }
}

/// A shell that does this, where `exec "$@"` is the command: in its directory, with its environment.
pub(crate) fn in_shell(script: &str, inner: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]);
    shell.arg(inner.get_program()).args(inner.get_args());
    in_environment_of(inner, &mut shell);
    shell
}

/// The same with mounts of its own. Whoever is not root makes a namespace of users, too.
pub(crate) fn with_own_mounts(inner: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg(inner.get_program()).args(inner.get_args());
    in_environment_of(inner, &mut command);
    command
}

/// The options for a server that has TLS on both sides.
pub(crate) fn tls_options(server: &RedisServer) -> String {
    let files = server.certificates();
    let authority = files.authority.path.display();
    let certificate = files.client_certificate.path.display();
    let key = files.client_key.path.display();
    format!("--tls-ca {authority} --tls-cert {certificate} --tls-key {key}")
}

/// Arguments of a command: a text, split into words as a shell would; such a text and a last word,
/// whatever that holds; or words.
pub(crate) trait Arguments {
    fn words(&self) -> Vec<String>;
}

impl Arguments for str {
    fn words(&self) -> Vec<String> {
        shlex::split(self).unwrap_or_else(|| panic!("no words of a shell: {self}"))
    }
}

impl Arguments for String {
    fn words(&self) -> Vec<String> {
        self.as_str().words()
    }
}

impl<A: Arguments, S: AsRef<str>> Arguments for (A, S) {
    fn words(&self) -> Vec<String> {
        let mut words = self.0.words();
        words.push(self.1.as_ref().to_owned());
        words
    }
}

impl Arguments for [&str] {
    fn words(&self) -> Vec<String> {
        self.iter().map(|&word| word.to_owned()).collect()
    }
}

impl<const N: usize> Arguments for [&str; N] {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

impl<T: Arguments + ?Sized> Arguments for &T {
    fn words(&self) -> Vec<String> {
        T::words(self)
    }
}

/// The files below a directory whose names end so.
pub(crate) fn files_below(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let (directories, mut files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    files.retain(|file| file.to_string_lossy().ends_with(end));
    files.extend(directories.iter().flat_map(|it| files_below(it, end)));
    files
}

/// The rows of a table: a line each, its cells between `|`. There `\n` is the end of a line.
pub(crate) fn table<const N: usize>(text: &str) -> Vec<[String; N]> {
    let rows = text.lines().filter(|row| !row.trim().is_empty());
    let row = |row: &str| -> [String; N] {
        let cells = row.split('|').map(|it| it.trim().replace("\\n", "\n"));
        let cells = cells.collect::<Vec<_>>().try_into();
        cells.unwrap_or_else(|_| panic!("{N} cells: {row}"))
    };
    rows.map(row).collect()
}

/// The complete lines "number number" of a file, of which there may be none yet.
pub(crate) fn pairs(path: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let pair = |line: &str| {
        let (a, b) = line.split_once(' ').expect("two");
        (a.parse().expect("a number"), b.parse().expect("a number"))
    };
    complete.lines().map(pair).collect()
}

/// The lines of JSON that a process wrote.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
    text.lines().map(line).collect()
}

/// Expects an object to have these fields, whatever else it has.
#[track_caller]
pub(crate) fn includes(object: &Value, fields: Value) {
    let fields: serde_json::Map<_, _> = serde_json::from_value(fields).expect("an object");
    for (name, expected) in fields {
        assert_eq!(object[&name], expected, "{name} of {object}");
    }
}

/// Its events, without what is in each of them: when it was, and where.
pub(crate) fn events(stderr: &str) -> Vec<Value> {
    let mut runs = std::collections::BTreeSet::new();
    let event = |mut event: Value| {
        let line = event.to_string();
        let fields = event.as_object_mut().expect("an object");
        for field in ["time", "host", "pid"] {
            assert!(fields.remove(field).is_some(), "no {field}: {line}");
        }
        runs.insert(fields.remove("run").expect("a run").to_string());
        event
    };
    let events = json_lines(stderr).into_iter().map(event).collect();
    assert!(runs.len() <= 1, "one run: {runs:?}");
    events
}

/// The event that tells that a run got its lock.
pub(crate) fn acquired(ended: &Finished) -> Value {
    let mut events = events(&ended.stderr).into_iter();
    let acquired = events.find(|event| event["event"] == "acquired");
    acquired.expect("it was acquired")
}

/// The names of events.
pub(crate) fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["event"].as_str());
    names.map(|name| name.expect("a name")).collect()
}

/// Two runs, each of which holds one of the keys and waits for the other one.
pub(crate) async fn deadlocked(store: &Store, [one, other]: [&str; 2]) -> [Process; 2] {
    let start = async |outer, inner| {
        let script = format!(
            "echo holds; until test -e go; do sleep 0.02; done; exec \"$L\" run {inner} -- true"
        );
        printing(store, ["run", outer, "--", "sh", "-c", &script], "holds").await
    };
    let both = [start(one, other).await, start(other, one).await];
    std::fs::write(store.path("go"), "").expect("a file can be written");
    both
}
