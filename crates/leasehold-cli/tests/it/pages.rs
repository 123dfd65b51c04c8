//! The shell blocks of `README.md`, of the pages beside it and in `docs/`, run as they are written.
//!
//! Each block runs in a fresh directory, with the built `leasehold` on the `PATH`, an empty home
//! and no `LEASEHOLD_…` variable: on `local:`, unless it names a store. Its commands run one by
//! one and each has to end with status 0. `CONTRIBUTING.md` has the rules for those who write:
//!
//! - `<!-- not run: REASON -->` before a block: it is not run, and [`NOT_RUN`] says so too.
//! - `<!-- with: report.sh -->` before a block: programs that the reader has. They say their
//!   name and end.
//! - `<!-- file: deploy.sh -->` before a block: it is a program of the reader's, not commands. The
//!   blocks of the page that are `with` it have it as it is written.
//! - A host of [`HOSTS`] in a URL is a real server, one for each name and block; [`POSTGRES`] is a database,
//!   [`ZOOKEEPER`] a chroot.
//! - `elect`, `hold`, `serve` and `ls --watch` go on until they are stopped: here, once they have printed a line.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use leasehold_testkit::postgres::Postgres;
use leasehold_testkit::zookeeper::ZooKeeper;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::common::*;

/// The blocks that are not run, by page, with their reasons. A new one is a change here.
const NOT_RUN: &str = "
    CONTRIBUTING.md           | it builds, and it is what runs the other blocks
    README.md                 | scripts/test begins with it
    README.md                 | it is what runs the other blocks
    docs/install.md           | it needs a release
    docs/install.md           | it needs a release
    docs/install.md           | it needs a release
    docs/install.md           | it needs a release
    docs/install.md           | it builds for minutes
    docs/install.md           | it needs a release and a container engine
    docs/proof/README.md      | it takes minutes or hours; scripts/test has the short form
    docs/proof/concurrency.md | it takes minutes or hours; scripts/test has the short form
    docs/proof/concurrency.md | a record of what was run
    docs/proof/faults.md      | a synopsis
    docs/proof/faults.md      | a record of what was run
    docs/proof/faults.md      | a record of what was run
    docs/proof/fuzzing.md     | it takes minutes or hours; scripts/test has the short form
    docs/proof/fuzzing.md     | a record of what was run
    docs/proof/model.md       | it takes minutes or hours; scripts/test has the short form
    docs/proof/simulation.md  | it takes minutes or hours; scripts/test has the short form
    docs/proof/simulation.md  | it fails, as it should; the simulation's own tests break it the same way
    docs/recipes/docker.md    | it needs Docker; the entrypoint is run as process 1 of a PID namespace
    docs/stores/local.md      | it makes a group of this machine
    docs/stores/local.md      | it makes a group of this machine
    docs/watching.md          | it needs a terminal
";

/// Names of servers that the pages use. A page that needs another adds it here.
const HOSTS: [&str; 2] = ["host", "db1"];

/// The URL of a database, which is a fresh one for each block.
const POSTGRES: &str = "postgres://app@pg1/app";
const ZOOKEEPER: &str = "zookeeper://zk1,zk2,zk3/app";

/// The pages at the root, beside those in `docs/`.
const AT_THE_ROOT: &str = "README.md ARCHITECTURE.md CONTRIBUTING.md SAFETY.md";

/// How a fence names a shell.
const SHELLS: [&str; 4] = ["sh", "bash", "shell", "console"];

/// How a line begins that is meant to be typed into a shell.
const TYPED: [&str; 7] = [
    "leasehold ",
    "leasehold-proof ",
    "cargo ",
    "scripts/",
    "sudo ",
    "redis-cli ",
    "$ ",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shell_block_runs_as_written() {
    let blocks: Vec<_> = pages().iter().flat_map(|page| page.blocks()).collect();
    let run: Vec<_> = blocks.into_iter().filter(Block::is_run).collect();
    assert!(run.len() > 1, "blocks are found");
    let failed = failures(run).await;
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

#[test]
fn every_block_that_is_not_run_is_listed_with_its_reason() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|page| page.blocks());
    let reason = |block: Block| Some((block.page.clone(), block.not_run?));
    let marked: Vec<_> = blocks.filter_map(reason).collect();
    let listed = table::<2>(NOT_RUN).into_iter();
    let listed: Vec<_> = listed.map(|[page, reason]| (page, reason)).collect();
    assert_eq!(marked, listed);
}

#[test]
fn every_command_stands_in_a_shell_block() {
    let stray: Vec<_> = pages().iter().flat_map(|page| page.stray()).collect();
    let stray = stray.join("\n");
    assert!(stray.is_empty(), "fence these with ```sh:\n{stray}");
}

#[tokio::test]
async fn a_broken_block_fails_and_is_named() {
    let text = "Text.\n\n```sh\nleasehold ls\nleasehold run --no-such k -- true\n```\n\
        ```sh\nleasehold ls  # this one is right\n```\n\
        <!-- with: job.sh -->\n\n```sh\nleasehold run k -- ./jop.sh\n```\n\
        ```sh\nleasehold ls -S redis://127.0.0.1:1/\n```\n";
    let page = Page::new("PAGE.md", text);
    let failed = failures(page.blocks()).await;
    let named = failed.iter().map(|text| text.lines().next().unwrap());
    let named: Vec<_> = named.collect();
    let right = "PAGE.md:5: `leasehold run --no-such k -- true`: exit status: 64";
    assert!(named.contains(&right), "{failed:#?}");
    for place in ["PAGE.md:13: ", "PAGE.md:16: "] {
        let is_named = named.iter().any(|text| text.starts_with(place));
        assert!(is_named, "{place}: {failed:#?}");
    }
    assert_eq!(failed.len(), 3, "{failed:#?}");
}

#[test]
fn commands_out_of_a_fence_and_in_other_fences_are_seen() {
    let text = "As in\n\n    leasehold ls\n\n```text\nleasehold ls\n```\n\n\
        <!-- not run: a synopsis -->\n```text\nleasehold ls [PATTERN]\n```\n";
    let page = Page::new("PAGE.md", text);
    let expected = ["PAGE.md:3: leasehold ls", "PAGE.md:6: leasehold ls"];
    assert_eq!(page.stray(), expected);
}

#[test]
fn a_command_may_take_several_lines() {
    let run = "leasehold run k \\\n  -- true";
    let each = "for i in 1 2; do\n  leasehold ls\ndone";
    let heredoc = "cat > f <<'END'\na = 1\n\nb = 2\nEND";
    let list = "leasehold ls";
    for (text, commands) in [
        (format!("# first\n{run}\n\n{each}\n"), [(2, run), (5, each)]),
        (format!("{heredoc}\n{list}\n"), [(1, heredoc), (6, list)]),
    ] {
        let block = Block {
            text,
            ..Block::default()
        };
        let expected = commands.map(|(line, command)| (line, command.to_owned()));
        assert_eq!(block.commands(), expected);
    }
}

// ---- pages and their blocks ----

pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Where the repository is.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn pages() -> Vec<Page> {
    let root = root();
    let mut files: Vec<_> = AT_THE_ROOT.split(' ').map(|name| root.join(name)).collect();
    files.retain(|file| file.exists());
    files.extend(files_below(&root.join("docs"), ".md"));
    files.sort();
    let read = |file: PathBuf| {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        Page::new(name, fs::read_to_string(&file).unwrap())
    };
    files.into_iter().map(read).collect()
}

/// What stands between two fences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) page: String,
    /// The number of the line before its first.
    pub(crate) line: usize,
    pub(crate) language: String,
    pub(crate) text: String,
    pub(crate) not_run: Option<String>,
    /// The name of the program that it is.
    pub(crate) file: Option<String>,
    pub(crate) with: Vec<Program>,
}

/// A program that the reader has: the page's text, or one that says its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) text: Option<String>,
}

impl Page {
    pub(crate) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let (name, text) = (name.into(), text.into());
        Self { name, text }
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = self.parts().0;
        let named = |block: &Block| Some((block.file.clone()?, block.text.clone()));
        let files: BTreeMap<_, _> = blocks.iter().filter_map(named).collect();
        for program in blocks.iter_mut().flat_map(|block| &mut block.with) {
            program.text = files.get(&program.name).cloned();
        }
        blocks
    }

    /// Lines that are meant for a shell and are in no block that is run or marked.
    fn stray(&self) -> Vec<String> {
        let (blocks, rest) = self.parts();
        let others = blocks.iter();
        let others = others.filter(|block| !block.is_shell() && block.not_run.is_none());
        let fenced = others.flat_map(Block::numbered);
        let indented = rest
            .into_iter()
            .filter_map(|(number, line)| Some((number, line.strip_prefix("    ")?)));
        let mut stray: Vec<_> = indented
            .chain(fenced)
            .filter(|(_, line)| TYPED.iter().any(|typed| line.starts_with(typed)))
            // A setting of a file, not a command.
            .filter(|(_, line)| !line.contains(" = "))
            .collect();
        stray.sort_unstable();
        let named = |(number, line): (usize, &str)| format!("{}:{number}: {line}", self.name);
        stray.into_iter().map(named).collect()
    }

    /// The blocks, and the lines that are in none, with their numbers.
    fn parts(&self) -> (Vec<Block>, Vec<(usize, &str)>) {
        let (mut blocks, mut rest) = (Vec::new(), Vec::new());
        let mut open: Option<Block> = None;
        let (mut not_run, mut file, mut with) = (None, None, Vec::new());
        for (number, line) in (1..).zip(self.text.lines()) {
            let trimmed = line.trim();
            if let Some(block) = &mut open {
                if trimmed == "```" {
                    blocks.extend(open.take());
                } else {
                    block.text += line;
                    block.text += "\n";
                }
            } else if let Some(language) = trimmed.strip_prefix("```") {
                open = Some(Block {
                    page: self.name.clone(),
                    line: number,
                    language: language.to_owned(),
                    not_run: not_run.take(),
                    file: file.take(),
                    with: std::mem::take(&mut with),
                    ..Block::default()
                });
            } else if let Some(reason) = comment(trimmed, "not run: ") {
                not_run = Some(reason.to_owned());
            } else if let Some(name) = comment(trimmed, "file: ") {
                file = Some(name.to_owned());
            } else if let Some(names) = comment(trimmed, "with: ") {
                with.extend(names.split_whitespace().map(Program::named));
            } else {
                if !trimmed.is_empty() {
                    (not_run, file, with) = (None, None, Vec::new());
                }
                rest.push((number, line));
            }
        }
        assert!(open.is_none(), "{}: a block does not end", self.name);
        (blocks, rest)
    }
}

fn comment<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let inner = line.strip_prefix("<!--")?.strip_suffix("-->")?;
    inner.trim().strip_prefix(name)
}

impl Program {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: None,
        }
    }

    /// What stands in its file.
    fn script(&self) -> String {
        let says_its_name = || format!("#!/bin/sh\necho {}\n", self.name);
        self.text.clone().unwrap_or_else(says_its_name)
    }
}

impl Block {
    pub(crate) fn is_shell(&self) -> bool {
        SHELLS.contains(&&*self.language)
    }

    fn is_run(&self) -> bool {
        self.is_shell() && self.not_run.is_none() && self.file.is_none()
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        (self.line + 1..).zip(self.text.lines())
    }

    /// Its commands with the numbers of their lines. A command goes on until the shell takes it
    /// for complete; of a console, only lines after a prompt are commands.
    fn commands(&self) -> Vec<(usize, String)> {
        let (mut commands, mut begun) = (Vec::new(), None::<(usize, String)>);
        for (number, line) in self.numbered() {
            let line = match (&*self.language, &begun) {
                ("console", None) => line.strip_prefix("$ ").unwrap_or_default(),
                _ => line,
            };
            let (first, text) = match begun.take() {
                Some((first, text)) => (first, format!("{text}\n{line}")),
                None if line.trim().is_empty() || line.starts_with('#') => continue,
                None => (number, line.to_owned()),
            };
            let checked = Command::new("sh").args(["-n", "-c", &text]).output();
            let is_open = text.ends_with('\\') || has_open_heredoc(&text);
            if is_open || !checked.unwrap().status.success() {
                begun = Some((first, text));
            } else {
                commands.push((first, text));
            }
        }
        commands.extend(begun);
        commands
    }

    /// Runs it in a place of its own.
    async fn run(self) -> Result<(), String> {
        let programs = self.with.iter().map(Program::script);
        let servers = Servers::named_in(&programs.chain([self.text.clone()]).collect::<String>());
        let place = Place::new();
        for program in &self.with {
            let script = servers.in_place_of_their_names(&program.script());
            place.install(&format!("work/{}", program.name), &script);
        }
        let mut exported = String::new();
        for (number, text) in self.commands() {
            let real = servers.in_place_of_their_names(&text);
            let process = Process::spawn(place.command(&format!("{exported}{real}")));
            if goes_on(&text) {
                process.prints("").await;
                process.signal_group(Signal::TERM);
            }
            let ended = process.finish().await;
            // By the signal: the shell, or leasehold and so the shell.
            let stopped = goes_on(&text) && matches!(ended.code(), Some(143) | None);
            if ended.code() != Some(0) && !stopped {
                return Err(format!(
                    "{}:{number}: `{text}`: {}\n{}{}",
                    self.page, ended.status, ended.stdout, ended.stderr
                ));
            }
            if text.starts_with("export ") {
                exported += &format!("{real}\n");
            }
        }
        Ok(())
    }
}

/// Whether a text for standard input has begun, and its last line is still to come. A shell that
/// only reads would take the end of the command for that.
fn has_open_heredoc(command: &str) -> bool {
    let Some((_, begun)) = command.split_once("<<") else {
        return false;
    };
    let end = begun.split_whitespace().next().unwrap_or_default();
    let end = end.trim_matches(['\'', '"']);
    !begun.lines().skip(1).any(|line| line == end)
}

/// Whether a command goes on until it is stopped.
fn goes_on(command: &str) -> bool {
    let elects = command.contains("leasehold elect ") && !command.contains(" --once");
    let watches = command.contains("leasehold ls --watch");
    let serves = command.contains("leasehold serve");
    let holds = command.contains("leasehold hold ") && !command.contains(" --detach");
    elects || watches || serves || holds
}

/// What has failed: where, what, and what it said.
async fn failures(blocks: Vec<Block>) -> Vec<String> {
    let mut running = JoinSet::new();
    for block in blocks {
        let place = format!("{}:{}: ", block.page, block.line + 1);
        running.spawn(async move {
            let tried = tokio::spawn(block.run()).await;
            tried.unwrap_or_else(|panicked| {
                let said = panicked.into_panic().downcast_ref::<String>().cloned();
                Err(place + &said.unwrap_or_default())
            })
        });
    }
    let ended = running.join_all().await;
    ended.into_iter().filter_map(Result::err).collect()
}

// ---- where they run ----

/// A directory, a home, and the programs that the reader has.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for directory in ["bin", "home", "work"] {
            fs::create_dir(place.path().join(directory)).unwrap();
        }
        let built = env!("CARGO_BIN_EXE_leasehold");
        symlink(built, place.path().join("bin/leasehold")).unwrap();
        Self(place)
    }

    /// A file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a program in it.
    pub(crate) fn install(&self, name: &str, script: &str) {
        let program = self.path(name);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, text: &str) -> Command {
        let mut path = self.0.path().join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let mut command = Command::new("sh");
        in_environment_of(&leasehold(""), &mut command);
        command
            .args(["-c", text])
            .env("PATH", path)
            .env("HOME", self.0.path().join("home"))
            .env("LEASEHOLD_SYSTEM_CONFIG", "/dev/null")
            .env_remove("LEASEHOLD_CONFIG")
            .env_remove("XDG_CONFIG_HOME")
            // The usual place, which root has elsewhere for what it recovers.
            .env("XDG_STATE_HOME", self.0.path().join("home/.local/state"))
            .env_remove("XDG_RUNTIME_DIR")
            .current_dir(self.0.path().join("work"));
        command
    }
}

/// Real servers, by the names that the pages give them.
pub(crate) struct Servers {
    redis: BTreeMap<&'static str, RedisServer>,
    /// The URL of a fresh database.
    postgres: Option<String>,
    /// The URL of a fresh chroot.
    zookeeper: Option<String>,
}

impl Servers {
    pub(crate) fn named_in(text: &str) -> Self {
        let named = HOSTS.into_iter();
        let named = named.filter(|host| with_port(text, host, 0) != text);
        let postgres = text.contains(POSTGRES).then(|| {
            let server = durable_postgres();
            server.url_of(&server.database())
        });
        let zookeeper = text.contains(ZOOKEEPER).then(|| {
            let server = ZooKeeper::shared();
            server.url_of(&server.chroot())
        });
        Self {
            redis: named.map(|host| (host, as_recommended())).collect(),
            postgres,
            zookeeper,
        }
    }

    pub(crate) fn in_place_of_their_names(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, url) in [(POSTGRES, &self.postgres), (ZOOKEEPER, &self.zookeeper)] {
            if let Some(url) = url {
                text = text.replace(name, url);
            }
        }
        self.redis.iter().fold(text, |text, (host, server)| {
            with_port(&text, host, server.port())
        })
    }
}

/// A server of which `doctor` has nothing to complain.
/// One of which `doctor` has nothing to say, as that of other tests has no durable commits.
fn durable_postgres() -> &'static Postgres {
    static DURABLE: LazyLock<Postgres> = LazyLock::new(Postgres::start);
    &DURABLE
}

fn as_recommended() -> RedisServer {
    RedisServer::builder().persistent().start()
}

/// The text with this port of this machine wherever a URL names the host without a port.
fn with_port(text: &str, host: &str, port: u16) -> String {
    let mut text = text.to_owned();
    for before in ["://", "@", ","] {
        for behind in ["/", ",", "?"] {
            let named = format!("{before}{host}{behind}");
            text = text.replace(&named, &format!("{before}127.0.0.1:{port}{behind}"));
        }
    }
    text
}
