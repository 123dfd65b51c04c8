//! The command as its caller sees it: shells, `make` and `xargs` at a terminal. What they do after a
//! signal must not depend on whether leasehold stands between them and their command.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, kill_process};

use crate::common::pty::Terminal;
use crate::common::*;

/// How a caller starts the job and what it does behind that. Where it goes on, it writes so. (Each
/// file is read by `sh`: one that was just written cannot always be run.)
const CALLERS: [(&str, &str); 7] = [
    (
        "loop",
        "for i in 1 2; do sh job; echo on >> log; done; echo end >> log",
    ),
    ("list", "sh job; echo on >> log"),
    ("and", "sh job && echo on >> log; echo end >> log"),
    ("script", "$SHELL script; echo outer >> log"),
    // On Ctrl-C it ends by the signal or with a status, as it comes.
    ("make", "make -s && echo end >> log"),
    ("xargs", "echo 1 2 | xargs -n 1 sh job; echo end >> log"),
    ("status", "sh job; echo $? >> log"),
];

const SCRIPT: &str = "sh job\necho inner >> log\n";
const MAKEFILE: &str = "all: a b\na:\n\tsh job\n\techo a >> log\nb:\n\techo b >> log\n";

/// What the job does, the first time. It says `up` or waits for the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Sleeps,
    /// It ends by itself on Ctrl-C, as a program that cleans up.
    Traps,
    /// Another has the lock.
    Waits,
}

/// What stands between the caller and the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Run,
    Elect,
    /// A run within another one.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    CtrlC,
    CtrlBackslash,
    /// To the process that the caller has started.
    Term,
    Hup,
    /// The shell at the terminal ends, and so the system tells the others.
    HangUp,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    shell: &'static str,
    /// Whether the shell reads what is typed, and gives each job a group of its own.
    interactive: bool,
    caller: (&'static str, &'static str),
    work: Work,
    event: Event,
}

/// How the shell ended, and what its caller and the work have written.
type Outcome = (Option<i32>, Option<i32>, String);

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shell in ["dash", "bash"] {
        for caller in CALLERS {
            for interactive in [false, true] {
                for (work, event) in [
                    (Work::Sleeps, Event::CtrlC),
                    (Work::Sleeps, Event::CtrlBackslash),
                    (Work::Sleeps, Event::Term),
                    (Work::Sleeps, Event::Hup),
                    (Work::Sleeps, Event::HangUp),
                    (Work::Traps, Event::CtrlC),
                    (Work::Waits, Event::CtrlC),
                    (Work::Waits, Event::CtrlBackslash),
                    (Work::Waits, Event::Term),
                ] {
                    let case = Case {
                        shell,
                        interactive,
                        caller,
                        work,
                        event,
                    };
                    cases.extend(case.is_certain().then_some(case));
                }
            }
        }
    }
    cases
}

impl Case {
    /// Whether the caller does the same each time. What a script of bash does after a Ctrl-C that its
    /// command has survived depends on the moment (bash may even hang).
    fn is_certain(self) -> bool {
        let is_script = !self.interactive || self.caller.0 == "script";
        !(self.shell == "bash" && is_script && self.work == Work::Traps)
    }

    fn betweens(self) -> &'static [Between] {
        match (self.work, self.caller.0) {
            (Work::Sleeps | Work::Traps, "loop") => &[Between::Run, Between::Elect, Between::Both],
            _ => &[Between::Run],
        }
    }

    /// Plays it in a directory of its own.
    fn play(self, between: Between, held: &Store) -> Outcome {
        let own = Store::local();
        let waits = self.work == Work::Waits && between != Between::Nothing;
        let work = match self.work {
            Work::Traps => "trap 'exit 3' INT QUIT\necho up\nwhile :; do sleep 0.05; done\n",
            Work::Sleeps | Work::Waits => "echo up\nexec sleep 600\n",
        };
        let through = match between {
            Between::Nothing => "",
            Between::Run => "\"$L\" run k --",
            Between::Elect => "\"$L\" elect k --",
            Between::Both => "\"$L\" run outer -- \"$L\" run k --",
        };
        // The second time there is nothing to do.
        let job = format!("[ -e pid ] && exit 0\necho $$ > pid\nexec {through} sh work\n");
        for (name, text) in [
            ("work", work),
            ("job", &job),
            ("script", SCRIPT),
            ("Makefile", MAKEFILE),
        ] {
            fs::write(own.path(name), text).unwrap();
        }
        let mut terminal = self.begin(&own, if waits { held } else { &own });
        terminal.wait_for(if waits { "waiting for k" } else { "up" });
        self.happens(&mut terminal, &own);
        let (status, _) = terminal.finish();
        let log = fs::read_to_string(own.path("log")).unwrap_or_default();
        (status.code(), status.signal(), log)
    }

    fn begin(self, own: &Store, store: &Store) -> Terminal {
        let mut shell = Command::new(self.shell);
        let line = self.caller.1;
        match (self.interactive, self.shell) {
            (false, _) => shell.args(["-c", line]),
            (true, "bash") => shell.args(["--norc", "--noprofile", "-i"]),
            (true, _) => shell.arg("-i"),
        };
        in_environment_of(&leasehold(""), &mut shell);
        shell.env("SHELL", self.shell).env_remove("ENV");
        shell.env("LEASEHOLD_STORE", &store.url);
        shell.env("PS1", "ready> ").env("HISTFILE", "");
        shell.current_dir(own.path(""));
        let mut terminal = Terminal::spawn(shell);
        if self.interactive {
            terminal.wait_for("ready> ");
            terminal.enters(&format!("{line}\n"), "\n");
        }
        terminal
    }

    fn happens(self, terminal: &mut Terminal, own: &Store) {
        match self.event {
            Event::CtrlC => terminal.types("\x03"),
            Event::CtrlBackslash => terminal.types("\x1c"),
            Event::Term | Event::Hup => {
                let pid = fs::read_to_string(own.path("pid")).unwrap();
                let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
                let hup = self.event == Event::Hup;
                kill_process(pid, if hup { Signal::HUP } else { Signal::TERM }).unwrap();
            }
            Event::HangUp => terminal.signal(Signal::HUP),
        }
        if self.interactive && self.event != Event::HangUp {
            terminal.wait_for("ready> ");
            terminal.types("exit 9\n");
        }
    }
}

/// Plays all of them, several at a time; answers what differs.
fn differences(cases: &[Case], held: &Store) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let play = || {
        let mut differ = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut alone = BTreeSet::from([case.play(Between::Nothing, held)]);
            for &between in case.betweens() {
                let mut seen = BTreeSet::from([case.play(between, held)]);
                // Shells have races of their own.
                for _ in 0..3 {
                    if !seen.is_disjoint(&alone) {
                        break;
                    }
                    alone.insert(case.play(Between::Nothing, held));
                    seen.insert(case.play(between, held));
                }
                if seen.is_disjoint(&alone) {
                    differ.push(format!(
                        "{case:?} with {between:?}: {seen:?}, alone {alone:?}"
                    ));
                }
            }
        }
        differ
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(play)).collect();
        let all = threads.into_iter();
        all.flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_caller_does_what_it_does_with_the_command_alone() {
    let held = Store::local();
    let (_holder, _) = held.holder("k").await;
    let cases = cases();
    let differ = tokio::task::block_in_place(|| differences(&cases, &held));
    assert_eq!(differ, [""; 0], "{} differ", differ.len());
}

/// A status that a signal led to is a signal for whoever waits, and no core of ours is left.
#[tokio::test]
async fn it_ends_by_the_signal_that_ended_the_command() {
    let store = Store::local();
    for signal in [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::ABORT,
        Signal::KILL,
        Signal::SEGV,
        Signal::PIPE,
        Signal::TERM,
        Signal::XFSZ,
    ] {
        let run = store.command(("run k -- sh -c", &format!("kill -{} $$", signal.as_raw())));
        let shell = in_shell("ulimit -c unlimited 2>/dev/null; exec \"$@\"", &run);
        let ended = Process::run(shell).await;
        let end = (ended.signal(), ended.status.core_dumped(), &*ended.stderr);
        assert_eq!(end, (Some(signal), false, ""));
        // What was lost is told by its status, and what the command says itself is the command's.
        let script = format!("exit {}", 128 + signal.as_raw());
        let ended = store.run(&("run k -- sh -c", &script)).await;
        assert_eq!(ended.code(), Some(128 + signal.as_raw()));
    }
}
