//! Several users of one machine in a directory that their group shares: real users and groups,
//! by numbers that the machine has no names for. Only root can be others.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::*;

/// The group that shares, and two of its members.
const GROUP: u32 = 4_300;
const ANN: User = User(4_301, GROUP);
const BOB: User = User(4_302, GROUP);
/// No member.
const EVE: User = User(4_303, 0);
const ROOT: User = User(0, 0);

/// The number of a user, and of the group that it is in beside its own.
#[derive(Clone, Copy)]
struct User(u32, u32);

/// A place that all can look into, with a command that all can start.
struct Host {
    files: TempDir,
    command: PathBuf,
}

impl Host {
    /// `None`, and a word about it, for who is not root.
    fn new() -> Option<Self> {
        let files = tempfile::tempdir().unwrap();
        set_mode(files.path(), 0o755);
        let probe = files.path().join("probe");
        fs::write(&probe, "").unwrap();
        if lchown(&probe, Some(ANN.0), Some(GROUP)).is_err() {
            eprintln!("left out: only root can be other users");
            return None;
        }
        // Where it was built, others may not look.
        let command = files.path().join("leasehold");
        let built = leasehold("").get_program().to_owned();
        if fs::hard_link(&built, &command).is_err() {
            fs::copy(&built, &command).unwrap();
        }
        Some(Self { files, command })
    }

    fn directory(&self) -> PathBuf {
        self.files.path().join("locks")
    }

    fn url(&self) -> String {
        format!("local:{}?group={GROUP}", self.directory().display())
    }

    /// The command, started by that user, whose umask lets nobody else have anything.
    fn by(&self, user: User, arguments: impl Arguments) -> Command {
        self.by_at(user, &self.url(), arguments)
    }

    fn by_at(&self, User(user, group): User, url: &str, arguments: impl Arguments) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}")]);
        match group {
            0 => command.arg("--clear-groups"),
            group => command.arg(format!("--groups={group}")),
        };
        command.args(["sh", "-c", "umask 077; exec \"$@\"", "sh"]);
        command.arg(&self.command).args(arguments.words());
        command.env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.files.path());
        command.env("LEASEHOLD_STORE", url).current_dir("/");
        command
    }

    async fn run(&self, user: User, arguments: impl Arguments) -> Finished {
        Process::run(self.by(user, arguments)).await
    }

    /// It ends with this status.
    async fn ends(&self, user: User, arguments: impl Arguments, status: i32) -> Finished {
        let ended = self.run(user, arguments).await;
        ended.has_code(Some(status));
        ended
    }

    async fn show(&self, user: User, key: &str) -> Value {
        let shown = self.ends(user, format!("show {key} --json"), 0).await;
        shown.json()
    }

    /// Waits until so many wait.
    async fn until_waiting(&self, key: &str, number: usize) {
        let wait = async || {
            let shown = self.show(ROOT, key).await;
            shown["waiters"].as_array().unwrap().len() == number
        };
        assert!(eventually(wait).await, "{number} wait for {key}");
    }

    /// A process that holds, and its token.
    async fn holder(&self, user: User, key: &str) -> (Process, u64) {
        let holder = Process::spawn(self.by(user, ("hold", key)));
        let token = holder.prints("").await.parse().unwrap();
        (holder, token)
    }
}

/// The same, with a directory that was made for the group.
async fn shared() -> Option<Host> {
    let host = Host::new()?;
    host.run(ROOT, "init").await.has_code(Some(0));
    Some(host)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// That it was refused in one sentence with these parts, hint included.
#[track_caller]
fn refused(ended: &Finished, parts: &[&str]) {
    ended.has_code(Some(69));
    says(&ended.stderr, parts);
}

#[tokio::test]
async fn init_makes_the_directory_and_says_so() {
    let Some(host) = Host::new() else { return };
    let absent = host.run(ANN, "run k -- true").await;
    let hint = "leasehold init -S 'local:/";
    refused(&absent, &["there is no directory", hint]);
    let made = host.ends(ROOT, "init --json", 0).await;
    let line = made.json();
    assert_eq!(line["outcome"], "new");
    assert_eq!(line["server"], host.directory().to_str().unwrap());
    made.has_said("was made, for the members of the group 4300");
    let seen = fs::metadata(host.directory()).unwrap();
    let rights = (seen.uid(), seen.gid(), seen.mode() & 0o7777);
    assert_eq!(rights, (0, GROUP, 0o2750));
    host.run(ROOT, "init").await.has_said("was there already");
    // Who is no root and no owner cannot mend it.
    let bob = host.run(BOB, "init").await;
    refused(&bob, &["belongs to user 0", "as root"]);
}

/// Who owns a directory can replace all that is in it, whoever has filled it.
#[tokio::test]
async fn the_owner_is_the_one_who_made_it() {
    let Some(host) = Host::new() else { return };
    let directory = host.directory();
    fs::create_dir(&directory).unwrap();
    for owner in [EVE, ANN] {
        lchown(&directory, Some(owner.0), Some(owner.0)).unwrap();
        let said = format!("belongs to user {}", owner.0);
        refused(&host.run(ROOT, "init").await, &[&said, "not there yet"]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "left empty");
    }
    // One of root is taken, if nobody else can put something there.
    lchown(&directory, Some(0), None).unwrap();
    set_mode(&directory, 0o777);
    let open = host.run(ROOT, "init").await;
    refused(&open, &["other users can write", "chmod go-w"]);
    set_mode(&directory, 0o755);
    assert_eq!(host.run(ROOT, "init").await.code(), Some(0));
    let run = "run k -- true";
    assert_eq!(host.run(BOB, &run).await.code(), Some(0));
    // Each time that it is opened.
    lchown(&directory, Some(EVE.0), None).unwrap();
    for user in [BOB, ROOT] {
        let ended = host.run(user, &run).await;
        refused(&ended, &["its owner 4303 has not made it"]);
    }
    refused(&host.run(ROOT, "init").await, &["belongs to user 4303"]);
    lchown(&directory, Some(0), None).unwrap();
    assert_eq!(host.run(BOB, &run).await.code(), Some(0));
}

#[tokio::test]
async fn a_member_makes_one_as_well() {
    let Some(host) = Host::new() else { return };
    lchown(host.files.path(), Some(ANN.0), None).unwrap();
    let eve = host.run(EVE, "init").await;
    refused(&eve, &["is for the group 4300", "user 4303 is not"]);
    host.run(ANN, "init").await.has_code(Some(0));
    assert_eq!(fs::metadata(host.directory()).unwrap().uid(), ANN.0);
    let (_holder, _) = host.holder(ANN, "k").await;
    for other in [BOB, ROOT] {
        host.ends(other, "run -n k -- true", 75).await;
    }
}

#[tokio::test]
async fn init_without_a_group_makes_the_directory_of_one_user() {
    let Some(host) = Host::new() else { return };
    lchown(host.files.path(), Some(ANN.0), None).unwrap();
    let url = format!("local:{}", host.directory().display());
    for said in [
        "was made, for this user alone",
        "was there already, for this user alone",
    ] {
        let made = Process::run(host.by_at(ANN, &url, "init")).await;
        made.has_ended_saying(Some(0), said);
    }
    let made = fs::metadata(host.directory()).unwrap();
    assert_eq!(made.mode() & 0o7777, 0o700);
    let other = Process::run(host.by_at(BOB, &url, "ls")).await;
    let whose = "belongs to user 4301, not to 4302";
    refused(&other, &[whose, "leasehold init"]);
    let mut unnamed = host.by(ANN, "init");
    unnamed.env_remove("LEASEHOLD_STORE");
    let nothing = Process::run(unnamed).await;
    nothing.has_ended_saying(Some(64), "no store is named");
}

/// However the files of one are opened by another: each of them first makes them.
#[tokio::test]
async fn members_and_root_exclude_each_other_whatever_their_umask() {
    let Some(host) = shared().await else { return };
    let mut last = 0;
    for (one, other) in [
        (ANN, BOB),
        (BOB, ROOT),
        (ROOT, ANN),
        (BOB, ANN),
        (ANN, ROOT),
    ] {
        let (holder, token) = host.holder(one, "k").await;
        assert!(token > last, "tokens rise among users");
        last = token;
        host.ends(other, "run -n k -- true", 75).await;
        holder.ends_by(Signal::TERM).await;
        let free = host.run(other, "run -n k -- true").await;
        free.has_been_quiet(Some(0));
    }
    // Opened without the group it is the same one.
    let (_holder, _) = host.holder(ANN, "k").await;
    let plain = format!("local:{}", host.directory().display());
    let busy = host.by_at(BOB, &plain, "run -n k -- true");
    assert_eq!(Process::run(busy).await.code(), Some(75));
}

/// In the order of arrival, whoever they are, and each is told at once: no push is turned away.
#[tokio::test]
async fn a_release_hands_on_to_the_next_user_in_line() {
    let Some(host) = shared().await else { return };
    let hold = |user| {
        let mut command = host.by(user, "hold k");
        command.env("LEASEHOLD_LOG", "leasehold_local=trace");
        Process::spawn(command)
    };
    let first = hold(ANN);
    first.prints("").await;
    let mut line = Vec::new();
    for (number, user) in [BOB, ROOT, ANN, BOB].into_iter().enumerate() {
        line.push(hold(user));
        host.until_waiting("k", number + 1).await;
    }
    let (mut holder, mut last) = (first, 0);
    for next in line {
        holder.signal(Signal::TERM);
        let token = next.prints("").await.parse::<u64>().unwrap();
        assert!(token > last, "in order");
        last = token;
        holder.finish().await.has_not_said("was not heard");
        holder = next;
    }
}

#[tokio::test]
async fn a_killed_holder_of_one_user_frees_the_key_for_another() {
    let Some(host) = shared().await else { return };
    for (one, other) in [(ANN, BOB), (BOB, ANN), (ROOT, BOB), (ANN, ROOT)] {
        let (holder, token) = host.holder(one, "k").await;
        let waiter = Process::spawn(host.by(other, "hold k"));
        host.until_waiting("k", 1).await;
        holder.signal(Signal::KILL);
        // Its lease would last for 30 s more, and the test waits for a minute: so look.
        assert!(waiter.prints("").await.parse::<u64>().unwrap() > token);
        let left = fs::read_dir(host.directory().join("sessions")).unwrap();
        assert_eq!(left.count(), 1, "the files of the dead are removed");
        waiter.ends_by(Signal::TERM).await;
    }
}

/// Wherever they are: as they start, as they make the files of a key, as they hold it.
#[tokio::test]
async fn killed_members_leave_nothing_that_locks_out_the_others() {
    let Some(host) = shared().await else { return };
    let users = [ANN, BOB, ROOT];
    let (mut running, mut to_kill): (Vec<Process>, Option<Process>) = Default::default();
    for number in 0..48 {
        let key = format!("k{}", number / 8);
        let started = Process::spawn(host.by(users[number % 3], format!("run {key} -- true")));
        // The one before has come somewhere by now.
        if let Some(before) = to_kill.take() {
            before.signal(Signal::KILL);
            before.wait().await;
        }
        match number % 2 {
            0 => to_kill = Some(started),
            _ => running.push(started),
        }
    }
    for one in running {
        one.finish().await.has_code(Some(0));
    }
    for key in (0..6).map(|number| format!("k{number}")) {
        for user in users {
            host.ends(user, format!("run -n {key} -- true"), 0).await;
        }
    }
}

#[tokio::test]
async fn members_look_and_break() {
    let Some(host) = shared().await else { return };
    let (holder, token) = host.holder(ANN, "k").await;
    assert_eq!(host.show(BOB, "k").await["holders"][0]["token"], token);
    host.run(BOB, "ls --json").await.has_shown("\"k\"");
    host.run(BOB, "break -y k").await.has_code(Some(0));
    assert_eq!(holder.wait().await.code(), Some(79), "it is told\n{holder}");
    host.ends(ROOT, "run -n k -- true", 0).await;
    // And what one logs, another logs on and reads.
    for user in [ANN, BOB] {
        let logged = host.by_at(user, &format!("{}&audit=1000", host.url()), "run k -- true");
        assert_eq!(Process::run(logged).await.code(), Some(0));
    }
    let log = host.run(ROOT, "log --json k").await;
    assert!(log.stdout.lines().count() >= 2, "{}", log.stdout);
}

#[tokio::test]
async fn who_is_no_member_is_refused_and_told_what_to_do() {
    let Some(host) = shared().await else { return };
    for url in [host.url(), format!("local:{}", host.directory().display())] {
        for arguments in ["run k -- true", "ls", "show k"] {
            let ended = Process::run(host.by_at(EVE, &url, arguments)).await;
            let directory = host.directory();
            let directory = directory.to_str().unwrap();
            refused(&ended, &[directory, "group 4300", "user 4303 is not"]);
        }
    }
    // A user that the machine knows is told how it is added.
    let nobody = User(65_534, 0);
    let ended = host.run(nobody, "run k -- true").await;
    let remedy = "usermod -aG 4300 nobody";
    refused(&ended, &["nobody (65534) is not", remedy, "log in again"]);
}

#[tokio::test]
async fn rights_that_are_not_those_of_the_group_are_named() {
    let Some(host) = shared().await else { return };
    let (holder, _) = host.holder(ANN, "k").await;
    holder.ends_by(Signal::TERM).await;
    let record = host.directory().join("records/k.rec");
    let run = "run -n k -- true";
    for odd in [0o600, 0o640, 0o666] {
        set_mode(&record, odd);
        let said = format!("k.rec has mode {odd:o}");
        // Nor by root, who could open it all the same.
        let before = fs::read(&record).unwrap();
        for user in [BOB, ROOT] {
            let ended = host.run(user, &run).await;
            let remedy = "user 4301, its owner, can give it the mode 660";
            refused(&ended, &[&said, remedy]);
        }
        assert!(fs::read(&record).unwrap() == before, "not written to");
        // Other keys are served.
        host.ends(BOB, "run other -- true", 0).await;
    }
    set_mode(&record, 0o660);
    lchown(&record, None, Some(ANN.0)).unwrap();
    let bob = host.run(BOB, &run).await;
    refused(&bob, &["belongs to the group 4301", "and the group 4300"]);
    lchown(&record, None, Some(GROUP)).unwrap();
    assert_eq!(host.run(BOB, &run).await.code(), Some(0));
    // A pipe in its place is not waited for.
    fs::remove_file(&record).unwrap();
    let made = Command::new("mkfifo").arg(&record).status().unwrap();
    assert!(made.success());
    lchown(&record, None, Some(GROUP)).unwrap();
    set_mode(&record, 0o660);
    let piped = host.run(BOB, &run).await;
    piped.has_ended_saying(Some(65), "k.rec is no file");
    let clock = host.directory().join("clock");
    set_mode(&clock, 0o600);
    refused(&host.run(BOB, &run).await, &["clock has mode 600"]);
    set_mode(&clock, 0o660);
    for (name, right, odd, said) in [
        ("records", 0o2770, 0o700, "records has mode 700"),
        ("", 0o2750, 0o700, "locks has mode 700"),
        ("group", 0o640, 0o600, "group does not say for which group"),
    ] {
        let path = host.directory().join(name);
        set_mode(&path, odd);
        refused(&host.run(BOB, &run).await, &[said, &format!("{right:o}")]);
        set_mode(&path, right);
    }
    assert_eq!(host.run(ANN, "ls").await.code(), Some(0));
}

#[tokio::test]
async fn parents_that_are_in_the_way_are_named() {
    let Some(host) = shared().await else { return };
    let parent = host.files.path();
    let run = "run -n k -- true";
    set_mode(parent, 0o777);
    let bob = host.run(BOB, &run).await;
    refused(&bob, &["others could replace", "below directories of root"]);
    set_mode(parent, 0o755);
    lchown(parent, Some(EVE.0), None).unwrap();
    refused(&host.run(BOB, &run).await, &["user 4303 could replace"]);
    lchown(parent, Some(0), None).unwrap();
    assert_eq!(host.run(BOB, &run).await.code(), Some(0));
}

/// The members write to its parts, and only the owner to the directory: what they could put into
/// the place of a part would lead root elsewhere.
#[tokio::test]
async fn members_cannot_exchange_the_parts() {
    let Some(host) = shared().await else { return };
    let inside = host.directory();
    let tried = host.by(ANN, "");
    let mut moved = Command::new(tried.get_program());
    let before = tried.get_args().take_while(|argument| *argument != "sh");
    moved.args(before).arg("mv");
    moved.args([inside.join("records"), inside.join("away")]);
    assert_ne!(Process::run(moved).await.code(), Some(0));
    assert!(inside.join("records").exists());
}

/// What a member puts there, where the system does not see to it (`fs.protected_hardlinks`).
#[tokio::test]
async fn links_of_members_lead_root_nowhere() {
    let Some(host) = shared().await else { return };
    let secret = host.files.path().join("secret");
    fs::write(&secret, "").unwrap();
    set_mode(&secret, 0o600);
    let inside = host.directory();
    fs::hard_link(&secret, inside.join("records/k.rec")).unwrap();
    fs::hard_link(&secret, inside.join("sessions/hard")).unwrap();
    symlink(&secret, inside.join("records/soft.rec")).unwrap();
    symlink(&secret, inside.join("sessions/soft")).unwrap();
    let hard = host.run(ROOT, "run -n k -- true").await;
    refused(&hard, &["k.rec belongs to the group"]);
    assert_eq!(host.run(ROOT, "run -n soft -- true").await.code(), Some(65));
    let seen = fs::metadata(&secret).unwrap();
    let rights = (seen.len(), seen.gid(), seen.mode() & 0o7777, seen.nlink());
    assert_eq!(rights, (0, 0, 0o600, 3), "nothing was done to it");
}

#[tokio::test]
async fn the_doctor_speaks_of_the_group() {
    let Some(host) = shared().await else { return };
    let report = host.ends(BOB, "doctor", 0).await;
    for part in ["for the members of the group 4300", "take, keep and break"] {
        report.has_shown(part);
    }
    let report = host.ends(EVE, "doctor", 2).await;
    report.has_shown("user 4303 is not");
}
