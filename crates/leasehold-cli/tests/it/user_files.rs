//! What a path that a user names may be: for each option, and for each call of the sources.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;

use crate::common::*;

const RUN: &str = "run --metrics-file X k -- echo ran";
const SAVE: &str = "hold --save X k";
const SERVE: &str = "serve --listen 127.0.0.1:0 --token-file X";

/// Each option that names a file, with the status where it is no regular one.
const OPTIONS: [(&str, i32); 7] = [
    (RUN, 0),
    (SAVE, 64),
    ("renew X", 64),
    ("release X", 64),
    ("config --config X", 64),
    ("ls --config X", 64),
    (SERVE, 64),
];

fn make(path: &Path, kind: FileType, device: (u32, u32)) {
    let device = rustix::fs::makedev(device.0, device.1);
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device).unwrap();
}

/// None waits for anybody, reads without an end, or puts a file in the place of one of these.
#[tokio::test]
async fn what_is_no_regular_file_is_neither_read_nor_replaced() {
    let store = Store::local();
    let mut kinds = vec![
        ("fifo", "FIFO"),
        ("link", "device"),
        ("directory", "directory"),
    ];
    make(&store.path("fifo"), FileType::Fifo, (0, 0));
    symlink("/dev/zero", store.path("link")).unwrap();
    fs::create_dir(store.path("directory")).unwrap();
    // Only root can make a device, and destroy it by a rename.
    if geteuid().is_root() {
        make(&store.path("device"), FileType::CharacterDevice, (1, 3));
        kinds.push(("device", "device"));
    }
    for (name, said) in kinds {
        let kind = || fs::symlink_metadata(store.path(name)).unwrap().file_type();
        let before = kind();
        for (arguments, status) in OPTIONS {
            if name == "device" && arguments.contains("--config") {
                continue; // The null device is an empty file of settings.
            }
            let arguments = arguments.replace(" X", &format!(" {name}"));
            let ended = ends(&store, &arguments, status).await;
            let all = &ended.stderr;
            let link = name == "link" && all.contains("it is a symbolic link");
            let why = format!("it is a {said}, not a regular file");
            assert!(link || all.contains(&why), "{ended}");
            assert_eq!(kind(), before, "{arguments:?}");
        }
    }
    let fifo = fs::symlink_metadata(store.path("fifo")).unwrap();
    assert!(fifo.file_type().is_fifo());
}

#[tokio::test]
async fn files_of_another_kind_are_not_replaced() {
    let store = Store::local();
    let script = "#!/bin/sh\necho mine\n";
    fs::write(store.path("deploy"), script).unwrap();
    let (_holder, _) = store.holder("k").await;
    // Before it waits.
    let save = ends(&store, "hold --save deploy k", 64).await;
    let said = "cannot save the lease in deploy: there is a file that is not a saved lease";
    save.has_said(said);
    let said = "cannot write the lease to missing/f: ";
    ends_saying(&store, "hold --save missing/f k", 74, said).await;
    let run = store.run("run --metrics-file deploy j -- echo ran").await;
    run.has_printed(Some(0), "ran\n");
    let said = "cannot write the metrics to deploy: there is a file that leasehold has not written";
    run.has_said(said);
    assert_eq!(fs::read_to_string(store.path("deploy")).unwrap(), script);

    let said = "metrics are not written to standard output";
    ends_saying(&store, "run --metrics-file - k -- true", 64, said).await;
}

/// Nobody waits for a lock whose lease cannot be saved. To root only a file system can refuse that.
#[tokio::test]
async fn a_directory_that_cannot_be_written_to_is_refused_before_the_lock_is_waited_for() {
    let store = Store::local();
    let (_holder, _) = store.holder("k").await;
    fs::create_dir(store.path("ro")).unwrap();
    let script = "mount -t tmpfs -o ro none ro && exec \"$@\"";
    let hold = in_shell(script, &store.command("hold --save ro/f k"));
    let why = "cannot write the lease to ro/f: ";
    let hold = Process::spawn(with_own_mounts(&hold));
    hold.ends_saying(74, why).await;
}

/// Its lock could not be released any more.
#[tokio::test]
async fn a_saved_lease_that_still_holds_is_not_replaced() {
    let store = Store::redis();
    let save = async |key| store.run(&("hold --save f --detach", key)).await;
    fs::write(store.path("f"), "").unwrap();
    assert_eq!(save("a").await.code(), Some(0), "an empty file is replaced");
    let first = fs::read(store.path("f")).unwrap();
    let is_released = async || assert_eq!(store.show("b").await["holders"], json!([]));
    let refused = save("b").await;
    refused.has_ended_saying(Some(64), "the lease that is saved in f still holds a");
    is_released().await;
    assert_eq!(fs::read(store.path("f")).unwrap(), first);

    // In another store, which cannot be asked now.
    let other = Store::redis();
    let there = ["hold", "-S", &other.url, "--save", "f", "--detach", "b"];
    assert_eq!(store.run(&there).await.code(), Some(64), "it is asked");
    let text = String::from_utf8(first).unwrap();
    let text = text.replace(&store.url, "redis://127.0.0.1:1/");
    fs::write(store.path("f"), text).unwrap();
    let unknown = save("b").await;
    let said = "cannot tell whether the lease that is saved in f still holds";
    unknown.has_ended_saying(Some(69), said);
    is_released().await;

    fs::remove_file(store.path("f")).unwrap();
    // The second time one that has ended is replaced.
    for _ in 0..2 {
        store.run("break --yes a").await.has_code(Some(0));
        save("a").await.has_code(Some(0));
    }
    store.run("release f").await.has_code(Some(0));
}

/// Whoever writes the file names the store and the keys.
#[tokio::test]
async fn a_saved_lease_is_trusted_as_a_configuration_file_is() {
    let store = Store::local();
    let (holder, _) = store.holder("--save f k").await;
    let path = store.path("f");
    let refused = async |said: &str| {
        for command in ["renew f", "release f", "hold --save f j"] {
            store.run(command).await.has_ended_saying(Some(64), said);
        }
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    refused("others than its owner can write to it (mode 0666)").await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        refused("user 65534 owns it").await;
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    symlink("f", store.path("link")).unwrap();
    store.run("release link").await.has_code(Some(64));
    holder.ends_by(Signal::TERM).await.has_code(Some(0));
    assert!(!path.exists());
}

/// A FIFO has passed all checks of owner and mode: another user's store was used then.
#[tokio::test]
async fn a_configuration_that_is_found_is_a_regular_file() {
    let store = Store::local();
    let directory = store.path("config/leasehold");
    fs::create_dir_all(&directory).unwrap();
    make(&directory.join("leasehold.toml"), FileType::Fifo, (0, 0));
    let mut command = leasehold("config");
    command.env_remove("LEASEHOLD_CONFIG");
    command.env("LEASEHOLD_SYSTEM_CONFIG", "/nowhere");
    command.env("XDG_CONFIG_HOME", store.path("config"));
    let ended = Process::run(command).await;
    ended.has_ended_saying(Some(64), "it is a FIFO");
}

// ---- the sources ----

/// What opens, writes or removes nothing.
const HARMLESS: &str = "fs::self fs::File File::from fs::Metadata fs::MetadataExt fs::FileType \
    fs::FileTypeExt fs::DirBuilderExt fs::Mode fs::OFlags fs::FlockOperation fs::RenameFlags \
    fs::CWD fs::flock fs::fstat fs::Access fs::symlink_metadata";

/// What may do so outside of `user_file.rs`, and why.
const ALLOWED: &str = "
    background.rs           | File::options                                                     | /dev/null
    connect.rs              | fs::MemfdFlags fs::SealFlags fs::fcntl_add_seals fs::memfd_create | a file in memory
    lifetime.rs             | fs::fcntl_getfl fs::read_link fs::read_to_string                  | looks at a descriptor; /proc
    named_process.rs        | fs::read_to_string                                                | /proc and /etc/passwd, which no user names
    child/program.rs        | fs::access fs::File File::open                                    | asks whether it can be run
    child/terminal.rs       | fs::open                                                          | /dev/tty
    child/tree.rs           | fs::read_dir                                                      | /proc
    commands/saved_lease.rs | fs::access                                                        | asks whether its directory can be written to
    recovery.rs             | fs::DirBuilder DirBuilder::new                                    | a directory of leasehold's own
    sys.rs                  | fs::read fs::read_to_string                                       | /proc
";

/// A user's path that is opened elsewhere could hang, destroy a device, or obey another user.
#[test]
fn files_that_a_user_names_are_opened_in_one_place() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut unknown = BTreeSet::new();
    let rows = table::<3>(ALLOWED);
    let mut unused: BTreeSet<_> = rows.iter().map(|[file, ..]| &**file).collect();
    for path in files_below(&source, ".rs") {
        let name = path.strip_prefix(&source).unwrap();
        let name = name.to_str().unwrap().to_owned();
        if name == "user_file.rs" || name.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let allowed = rows.iter().find(|[file, ..]| *file == name);
        let allowed = allowed.map_or("", |[_, calls, _]| calls.as_str());
        let has = |list: &str, call: &str| list.split(' ').any(|it| it == call);
        for call in calls(product.parse().unwrap()) {
            if has(allowed, &call) {
                unused.remove(&*name);
            } else if !has(HARMLESS, &call) {
                unknown.insert(format!("{name}: {call}"));
            }
        }
    }
    let open = "open these by user_file.rs";
    assert!(unknown.is_empty(), "{open}: {unknown:#?}");
    assert!(unused.is_empty(), "nothing to allow: {unused:?}");
    let all = "use std::fs::{self, OpenOptions as O}; use tokio::fs as t; fs::read(p);
        std::fs::File::create(p); libc::openat(d);";
    let found: Vec<_> = calls(all.parse().unwrap()).into_iter().collect();
    let expected = "File::create fs::File fs::OpenOptions fs::as fs::read fs::self libc::openat";
    assert_eq!(found.join(" "), expected);
}

/// The names that follow `fs::`, `File::` and the like, alone or in braces.
fn calls(tokens: TokenStream) -> BTreeSet<String> {
    const OWNERS: [&str; 5] = ["fs", "File", "OpenOptions", "DirBuilder", "libc"];
    let mut found = BTreeSet::new();
    let mut before: [String; 3] = Default::default();
    for token in tokens {
        let [owner, colons @ ..] = &before;
        let is_of_owner = OWNERS.contains(&&**owner) && colons == &[":", ":"];
        let name = token.to_string();
        match &token {
            TokenTree::Group(group) => {
                let mut first = true;
                for import in group.stream() {
                    if first && is_of_owner && group.delimiter() == Delimiter::Brace {
                        found.insert(format!("{owner}::{import}"));
                    }
                    first = import.to_string() == ",";
                }
                found.extend(calls(group.stream()));
            }
            _ if is_of_owner && (owner != "libc" || name.starts_with("open")) => {
                found.insert(format!("{owner}::{name}"));
            }
            _ if colons[1] == "fs" && name == "as" => {
                found.insert("fs::as".to_owned());
            }
            _ => {}
        }
        before.rotate_left(1);
        before[2] = name;
    }
    found
}
