//! The pages of `docs/recipes/`: what they give to copy, run as the systems that it is for would.
//!
//! `pages.rs` runs the shell blocks. Each module here runs the blocks of one language, all of
//! them, and tests what the tables of its page say. A block that nobody runs fails a test.

mod cron;
mod docker;
mod kubernetes;
mod make;
mod scripts;
mod sql;
mod systemd;
mod unit;

use std::process::Command;

use crate::common::*;
use crate::pages::{Block, Page, Place, Servers, pages};

/// Languages whose blocks are all run, and by which module of these.
const RUN_HERE: [(&str, &str); 5] = [
    ("crontab", "cron"),
    ("dockerfile", "docker"),
    ("ini", "systemd"),
    ("sql", "sql"),
    ("yaml", "kubernetes"),
];

/// Where the programs of a recipe are, on machines that have one.
const PROGRAMS: &str = "/usr/local/bin";

#[test]
fn every_block_of_a_recipe_is_run() {
    let untested: Vec<_> = recipes().iter().flat_map(untested).collect();
    assert!(untested.is_empty(), "{}", untested.join("\n"));
    for (language, module) in RUN_HERE {
        assert!(!blocks(language).is_empty(), "{module} has nothing to run");
    }
}

#[test]
fn a_block_that_nobody_runs_is_seen() {
    let text = "```toml\na = 1\n```\n```text\nout\n```\n```rust\nfn main() {}\n```\n\
        <!-- file: job.sh -->\n```sh\n#!/bin/sh\n```\n\
        <!-- not run: why -->\n```hcl\n```\n```yaml\n```\n```sh\ntrue\n```\n";
    let page = Page::new("docs/recipes/new.md", text);
    let named = ["toml", "text", "rust", "sh"];
    let lines = [1, 4, 7, 11];
    let expected = lines.iter().zip(named).map(|(line, language)| {
        format!("docs/recipes/new.md:{line}: nobody runs this block of {language}")
    });
    assert_eq!(untested(&page), expected.collect::<Vec<_>>());
}

/// The blocks of the page that no test runs and that give no reason.
fn untested(page: &Page) -> Vec<String> {
    let blocks = page.blocks();
    let in_doctests = include_str!("../../../leasehold/src/page_tests.rs").contains(&*page.name);
    let is_used = |name: &str| {
        let with = blocks.iter().flat_map(|block| &block.with);
        with.into_iter().any(|program| program.name == name)
    };
    let is_run = |block: &Block| match (&block.file, &*block.language) {
        _ if block.not_run.is_some() => true,
        (Some(name), _) => is_used(name),
        (None, "rust") => in_doctests,
        _ if block.is_shell() => true,
        (None, language) => RUN_HERE.iter().any(|(run, _)| *run == language),
    };
    let told = |Block { line, language, .. }: &Block| {
        format!("{}:{line}: nobody runs this block of {language}", page.name)
    };
    let untested = blocks.iter().filter(|block| !is_run(block));
    untested.map(told).collect()
}

fn recipes() -> Vec<Page> {
    let mut pages = pages();
    pages.retain(|page| page.name.starts_with("docs/recipes/"));
    pages
}

/// All blocks of a language.
fn blocks(language: &str) -> Vec<Block> {
    let blocks = recipes().into_iter().flat_map(|page| page.blocks());
    blocks.filter(|block| block.language == language).collect()
}

/// The program that a page of the recipes gives under this name.
fn program(page: &str, name: &str) -> String {
    let name_of = |block: &Block| block.file.as_deref() == Some(name);
    let page = format!("docs/recipes/{page}");
    let mut pages = recipes().into_iter().filter(|it| it.name == page);
    let blocks = pages.next().expect("the page is there").blocks();
    let found = blocks.into_iter().find(name_of);
    found.expect("the page has this program").text
}

// ---- where they run ----

/// The servers that a recipe names, for machines that share them.
struct Fleet(Servers);

impl Fleet {
    fn of(text: &str) -> Self {
        Self(Servers::named_in(text))
    }

    fn machine(&self) -> Machine<'_> {
        let place = Place::new();
        Machine { fleet: self, place }
    }

    /// Two machines that have the job.
    fn two_with_job(&self, name: &str) -> [Machine<'_>; 2] {
        let machines = [self.machine(), self.machine()];
        for machine in &machines {
            machine.install_job(name);
        }
        machines
    }
}

/// One machine of a fleet: its directories, with the built `leasehold` among its programs.
struct Machine<'a> {
    fleet: &'a Fleet,
    place: Place,
}

impl Machine<'_> {
    /// The text as it has to be here: names of servers, and directories.
    fn real(&self, text: &str) -> String {
        let text = self.fleet.0.in_place_of_their_names(text);
        text.replace(PROGRAMS, &self.programs())
    }

    fn programs(&self) -> String {
        self.place.path("bin").display().to_string()
    }

    /// A program that says that it has started, with its token, and goes on until it is released.
    fn install_job(&self, name: &str) {
        let gate = self.gate(name);
        let script = format!(
            "#!/bin/sh\n[ -p {gate} ] || mkfifo {gate}\n\
             echo \"{name} started ${{LEASEHOLD_TOKEN-}}\"\nread -r _ <{gate}\n\
             echo {name} done\n"
        );
        self.install(name, &script);
    }

    /// A program, on the path and in the directory where the reader is.
    fn install(&self, name: &str, script: &str) {
        for directory in ["bin", "work"] {
            let path = format!("{directory}/{name}");
            self.place.install(&path, &self.real(script));
        }
    }

    fn gate(&self, name: &str) -> String {
        let gate = self.place.path(&format!("{name}.gate"));
        gate.display().to_string()
    }

    /// Lets a job that has started come to its end.
    async fn release(&self, name: &str) {
        let gate = self.gate(name);
        let opened = tokio::task::spawn_blocking(move || std::fs::write(gate, "\n"));
        let opened = opened.await.expect("it does not panic");
        opened.expect("the job reads");
    }

    /// A command with these variables and no others. Its name is looked up among ours first.
    fn command(&self, arguments: &[String], variables: &[(String, String)]) -> Command {
        let program = self.place.path("bin").join(&arguments[0]);
        let program = match program.exists() {
            true => program.into(),
            false => std::ffi::OsString::from(&arguments[0]),
        };
        let mut command = Command::new(program);
        command
            .args(&arguments[1..])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.programs()))
            // The settings of the tester are not those of the machine.
            .env("LEASEHOLD_SYSTEM_CONFIG", "/dev/null")
            .envs(self.real_values(variables))
            .current_dir(self.place.path("work"));
        command
    }

    /// Variables with their values as they have to be here.
    fn real_values<'a>(
        &self,
        variables: &'a [(String, String)],
    ) -> impl Iterator<Item = (&'a String, String)> {
        let real = move |(name, value): &'a (String, String)| (name, self.real(value));
        variables.iter().map(real)
    }

    /// `leasehold` with these arguments on the server that is called `host`.
    fn leasehold(&self, arguments: impl Arguments) -> Command {
        at(&self.real("redis://host/"), arguments)
    }
}

/// The token that a job has said, in `NAME started TOKEN`.
async fn started(process: &Process, name: &str) -> u64 {
    let line = process.prints(&format!("{name} started ")).await;
    let token = line.rsplit(' ').next().and_then(|token| token.parse().ok());
    token.unwrap_or_else(|| panic!("a token in {line:?}"))
}

/// Ends it with all that is below it, as the end of its machine does.
async fn crash(process: Process) {
    process.signal_group(Signal::KILL);
    process.finish().await;
}
