//! Where settings come from: options, the environment, `leasehold.toml`, defaults.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::leasehold;
use leasehold_testkit::process::{Finished, Process};
use leasehold_testkit::server::RedisServer;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A machine of its own: a home, and the system's file.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(place.user().parent().unwrap()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn user(&self) -> PathBuf {
        self.path("home/.config/leasehold/leasehold.toml")
    }

    fn system(&self) -> PathBuf {
        self.path("system.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = leasehold(arguments);
        command
            .env("HOME", self.path("home"))
            .env("LEASEHOLD_SYSTEM_CONFIG", self.system())
            .env_remove("LEASEHOLD_CONFIG")
            .env_remove("XDG_CONFIG_HOME")
            .env("XDG_STATE_HOME", self.path("state"))
            .current_dir(self.0.path());
        command
    }

    async fn run(&self, arguments: &[&str]) -> Finished {
        Process::run(self.command(arguments)).await
    }

    /// `leasehold config` with these arguments fails; what it says.
    async fn refused(&self, arguments: &[&str]) -> String {
        let ended = self.run(&[&["config"], arguments].concat()).await;
        assert_eq!(
            (ended.code(), &*ended.stdout),
            (Some(64), ""),
            "{}",
            ended.stderr
        );
        ended.stderr
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// What `leasehold config --json` shows.
async fn shown(mut command: Command) -> Value {
    command.arg("--json");
    let ended = Process::run(command).await;
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.stderr, "");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Value and origin of each setting.
fn settings(shown: &Value) -> BTreeMap<String, (Value, Value)> {
    let rows = shown["settings"].as_array().unwrap().iter();
    let row = |row: &Value| {
        let key = row["key"].as_str().unwrap().to_owned();
        (key, (row["value"].clone(), row["from"].clone()))
    };
    rows.map(row).collect()
}

/// A place where a setting can stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Option,
    Variable,
    UsersProfile,
    SystemsProfile,
    User,
    System,
    NamedProfile,
    Named,
}

impl Layer {
    const ALL: [Self; 8] = [
        Self::Option,
        Self::Variable,
        Self::UsersProfile,
        Self::SystemsProfile,
        Self::User,
        Self::System,
        Self::NamedProfile,
        Self::Named,
    ];

    /// A TTL that nothing else sets.
    fn ttl(self) -> String {
        format!(
            "{}s",
            11 + Self::ALL.iter().position(|it| *it == self).unwrap()
        )
    }
}

/// The TTL in force where it is set at these places.
async fn ttl(set: &[Layer], arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let place = Place::new();
    let line = |from: Layer| match set.contains(&from) {
        true => format!("ttl = \"{}\"\n", from.ttl()),
        false => String::new(),
    };
    for (path, top, profile) in [
        (place.user(), Layer::User, Layer::UsersProfile),
        (place.system(), Layer::System, Layer::SystemsProfile),
        (place.path("named.toml"), Layer::Named, Layer::NamedProfile),
    ] {
        write(
            &path,
            &format!("{}[profile.p]\n{}", line(top), line(profile)),
        );
    }
    let mut command = place.command(&[&["config"], arguments].concat());
    command.envs(variables.iter().copied());
    if set.contains(&Layer::Option) {
        command.args(["--ttl", &Layer::Option.ttl()]);
    }
    if set.contains(&Layer::Variable) {
        command.env("LEASEHOLD_TTL", Layer::Variable.ttl());
    }
    settings(&shown(command).await)["ttl"].0.clone()
}

/// Each row of the order of precedence: with what is above it taken away, it is in force.
#[tokio::test]
async fn each_place_goes_before_those_below_it() {
    use Layer::{
        Named, NamedProfile, Option, System, SystemsProfile, User, UsersProfile, Variable,
    };
    let of_profile = [Option, Variable, UsersProfile, SystemsProfile, User, System];
    let of_typed_profile = [Option, UsersProfile, SystemsProfile, Variable, User, System];
    for (arguments, variables, order) in [
        (&[][..], &[("LEASEHOLD_PROFILE", "p")][..], &of_profile[..]),
        (&["--profile", "p"], &[], &of_typed_profile),
        (&[], &[], &[Option, Variable, User, System]),
        (
            &["--config", "named.toml", "--profile", "p"],
            &[],
            &[Option, NamedProfile, Named, Variable],
        ),
        (
            &[],
            &[
                ("LEASEHOLD_CONFIG", "named.toml"),
                ("LEASEHOLD_PROFILE", "p"),
            ],
            &[Option, Variable, NamedProfile, Named],
        ),
        (
            &["--profile", "p"],
            &[
                ("LEASEHOLD_CONFIG", "named.toml"),
                ("LEASEHOLD_PROFILE", "q"),
            ],
            &[Option, NamedProfile, Variable, Named],
        ),
    ] {
        let elsewhere: Vec<_> = Layer::ALL
            .into_iter()
            .filter(|from| !order.contains(from))
            .collect();
        for (above, expected) in order.iter().enumerate() {
            let set = [&order[above..], &elsewhere].concat();
            let found = ttl(&set, arguments, variables).await;
            assert_eq!(found, expected.ttl(), "{arguments:?} {variables:?} {set:?}");
        }
        let found = ttl(&elsewhere, arguments, variables).await;
        assert_eq!(found, "30s", "{arguments:?} {variables:?} {elsewhere:?}");
    }
}

/// A row of the table of keys in `docs/configuration.md`.
struct Documented {
    key: String,
    variable: String,
    option: String,
    default: String,
}

fn documented() -> Vec<Documented> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.contains("| `LEASEHOLD_"));
    let row = |line: &str| {
        let cells: Vec<_> = line
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        Documented {
            key: cells[1].to_owned(),
            variable: cells[2].to_owned(),
            option: cells[3].to_owned(),
            default: cells[4].to_owned(),
        }
    };
    rows.map(row).collect()
}

/// A value for each key, as it is shown.
const VALUES: [(&str, &str); 10] = [
    ("store", "local:/somewhere"),
    ("user", "app"),
    ("password-file", "/x/password"),
    ("tls-ca", "/x/ca.pem"),
    ("tls-cert", "/x/client.pem"),
    ("tls-key", "/x/client.key"),
    ("ttl", "1m30s"),
    ("wait", "5m"),
    ("grace", "2s"),
    ("label", "billing"),
];

#[tokio::test]
async fn the_page_has_each_key_with_what_else_sets_it() {
    let place = Place::new();
    let table = documented();
    let unset = settings(&shown(place.command(&["config"])).await);
    assert_eq!(unset.len(), table.len());
    for row in table {
        let key = &*row.key;
        let (_, value) = VALUES.iter().find(|(of, _)| *of == key).unwrap();
        let in_force = async |command: Command| settings(&shown(command).await)[key].clone();

        let usual = match &*row.default {
            "none" => Value::Null,
            "TTL/4, at most 5s" => json!("5s"),
            usual => json!(usual),
        };
        assert_eq!(unset[key], (usual, json!({"kind": "default"})), "{key}");

        let typed = place.command(&["config", &row.option, value]);
        let from = json!({"kind": "option", "name": row.option});
        assert_eq!(in_force(typed).await, (json!(value), from), "{key}");

        let mut set = place.command(&["config"]);
        set.env(&row.variable, value);
        let from = json!({"kind": "variable", "name": row.variable});
        assert_eq!(in_force(set).await, (json!(value), from), "{key}");

        let file = place.path("of-key.toml");
        write(&file, &format!("# A comment.\n{key} = {value:?}\n"));
        let read = place.command(&["config", "--config", file.to_str().unwrap()]);
        let from = json!({"kind": "file", "path": file, "line": 2, "profile": null});
        assert_eq!(in_force(read).await, (json!(value), from), "{key}");
    }
}

#[tokio::test]
async fn what_is_shown_has_its_shape() {
    let place = Place::new();
    write(&place.system(), "store = 'redis://host/'\n");
    write(
        &place.user(),
        "label = 'mine'\n\n[profile.prod]\nttl = '1m'\n",
    );
    let profiled = ["config", "--profile", "prod", "-n"];
    let json = shown(place.command(&profiled)).await;
    assert_eq!(
        json["profile"],
        json!({
            "name": "prod", "from": {"kind": "option", "name": "--profile"}
        })
    );
    assert_eq!(json["unused"], json!([]));
    assert_eq!(
        json["files"],
        json!([
            {"path": place.user(), "whose": "user", "state": "read"},
            {"path": place.system(), "whose": "system", "state": "read"},
        ])
    );
    assert_eq!(
        json["settings"][6],
        json!({
            "key": "ttl", "value": "1m",
            "from": {"kind": "file", "path": place.user(), "line": 4, "profile": "prod"}
        })
    );
    let in_force = settings(&json);
    let typed = json!({"kind": "option", "name": "--no-wait"});
    assert_eq!(in_force["wait"], (json!("0s"), typed));

    let text = place.run(&profiled).await.stdout;
    let user = place.user().display().to_string();
    let system = place.system().display().to_string();
    let line = |words: &[&str]| {
        let has = |line: &str| line.split_whitespace().eq(words.iter().copied());
        assert!(text.lines().any(has), "{words:?} in {text}");
    };
    line(&["store", "redis://host:6379/0", &format!("{system}:1")]);
    line(&["label", "mine", &format!("{user}:1")]);
    line(&["ttl", "1m", "profile", "prod", "in", &format!("{user}:4")]);
    line(&["user", "-", "default"]);
    line(&["profile", "prod", "(--profile)"]);
    line(&[&user, "this", "user's", "read"]);
    line(&[&system, "the", "system's", "read"]);

    let nothing = Place::new();
    let files = &shown(nothing.command(&["config"])).await["files"];
    assert_eq!(files[0]["state"], "absent");
    assert_eq!(files[1]["state"], "absent");
}

#[tokio::test]
async fn the_users_file_is_where_the_environment_says() {
    let place = Place::new();
    write(&place.user(), "label = 'of home'\n");
    let xdg = place.path("xdg/leasehold/leasehold.toml");
    fs::create_dir_all(xdg.parent().unwrap()).unwrap();
    write(&xdg, "label = 'of xdg'\n");
    for (directory, label) in [("xdg", "of home"), ("", "of home"), ("/", "of xdg")] {
        let mut command = place.command(&["config"]);
        // A relative one does not count.
        let directory = match directory {
            "/" => place.path("xdg"),
            relative => PathBuf::from(relative),
        };
        command.env("XDG_CONFIG_HOME", directory);
        assert_eq!(settings(&shown(command).await)["label"].0, label);
    }
    let mut homeless = place.command(&["config"]);
    homeless.env("HOME", "/dev/null");
    assert_eq!(settings(&shown(homeless).await)["label"].0, Value::Null);
}

#[tokio::test]
async fn relative_paths_are_relative_to_their_file() {
    let place = Place::new();
    write(
        &place.user(),
        "password-file = 'password'\ntls-ca = '~/ca.pem'\n",
    );
    let in_force = settings(&shown(place.command(&["config"])).await);
    let beside = |name: &str| json!(place.user().with_file_name(name));
    assert_eq!(in_force["password-file"].0, beside("password"));
    assert_eq!(in_force["tls-ca"].0, beside("~/ca.pem"));

    write(&place.path("here.toml"), "password-file = 'password'\n");
    let named = place.command(&["config", "--config", "here.toml"]);
    let in_force = settings(&shown(named).await);
    assert_eq!(in_force["password-file"].0, "password");
}

#[tokio::test]
async fn a_mistake_is_named_with_its_line_and_what_to_write() {
    let place = Place::new();
    let file = place.user();
    for (text, line, said, hint) in [
        (
            "ttl = '1m'\nstroe = 'local:'\n",
            2,
            "no key \"stroe\"",
            "did you mean store?",
        ),
        (
            "password_file = 'x'\n",
            1,
            "no key",
            "did you mean password-file?",
        ),
        (
            "[profile.p]\n\nwiat = '5s'\n",
            3,
            "no key \"wiat\"",
            "did you mean wait?",
        ),
        ("[profiles.p]\n", 1, "no key", "did you mean profile?"),
        ("colour = 'red'\n", 1, "no key", "the keys are store, user"),
        (
            "password = 'hunter2'\n",
            1,
            "a password cannot be set",
            "password-file",
        ),
        ("ttl = 30\n", 1, "ttl is not a text", "ttl = \"30s\""),
        (
            "ttl = '30'\n",
            1,
            "the value of ttl cannot be used",
            "30s for seconds",
        ),
        (
            "ttl = '1ms'\n",
            1,
            "a TTL of 1ms is out of bounds",
            "50 ms and 24 h",
        ),
        ("grace = 'soon'\n", 1, "the value of grace", "1h30m"),
        ("wait = ''\n", 1, "the wait is empty", "e.g. 5m"),
        (
            "store = ' '\n",
            1,
            "the store is empty",
            "e.g. redis://host/",
        ),
        ("store = 'orders'\n", 1, "not a URL", "redis://host/"),
        ("store = 'rediss:/x'\n", 1, "the value of store", "hint: "),
        (
            "[profile.p]\nttl = '9h'\nttl = '8h'\n",
            3,
            "duplicate key",
            "hint: ",
        ),
        (
            "ttl = '1m\nwait = '5s'\n",
            1,
            "not valid TOML",
            "ttl = \"30s\"",
        ),
        (
            "store = redis://:hunter2@h/\n",
            1,
            "not valid TOML",
            "hint: ",
        ),
        (
            "profile = 'p'\n",
            1,
            "profile is not a table",
            "[profile.prod]",
        ),
        (
            "profile.p = 'p'\n",
            1,
            "profile.p is not a table",
            "[profile.prod]",
        ),
    ] {
        write(&file, text);
        let stderr = place.refused(&[]).await;
        let place_of_it = format!("leasehold: {}:{line}: ", file.display());
        assert!(stderr.starts_with(&place_of_it), "{text}: {stderr}");
        for part in [said, hint, "leasehold: hint: "] {
            assert!(stderr.contains(part), "{text}: {part} in {stderr}");
        }
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
    // Whoever uses a store says so, and does nothing.
    write(&file, "stroe = 'local:'\n");
    for arguments in [
        &["run", "k", "--", "echo", "ran"][..],
        &["hold", "k"],
        &["ls"],
        &["show", "k"],
        &["top"],
        &["doctor"],
    ] {
        let ended = place.run(arguments).await;
        let outcome = (ended.code(), &*ended.stdout);
        assert_eq!(outcome, (Some(64), ""), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("did you mean store?"),
            "{}",
            ended.stderr
        );
    }
    let run = place.run(&["run", "--json", "k", "--", "true"]).await;
    let last = run.stderr.lines().last().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(last).unwrap(),
        json!({"event": "exit", "status": 64, "signal": null})
    );
    assert_eq!(place.run(&["completions", "bash"]).await.code(), Some(0));
}

#[tokio::test]
async fn a_wrong_variable_is_named() {
    let place = Place::new();
    for (name, value, said) in [
        ("LEASEHOLD_TTL", "30", "30s for seconds"),
        ("LEASEHOLD_WAIT", "", "the wait is empty"),
        ("LEASEHOLD_GRACE", "soon", "1h30m"),
        ("LEASEHOLD_CONFIG", "", "LEASEHOLD_CONFIG is empty"),
        ("LEASEHOLD_PROFILE", "", "LEASEHOLD_PROFILE is empty"),
        ("LEASEHOLD_PROFILE", "prod", "no leasehold.toml was found"),
    ] {
        let mut command = place.command(&["config"]);
        command.env(name, value);
        let ended = Process::run(command).await;
        assert_eq!(ended.code(), Some(64), "{name}: {}", ended.stderr);
        for part in [name, said] {
            assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn a_profile_or_a_file_that_is_not_there_is_an_error() {
    let place = Place::new();
    write(&place.user(), "[profile.prod]\n[profile.staging]\n");
    let near = place.refused(&["--profile", "prd"]).await;
    for part in ["no profile \"prd\" (--profile)", "did you mean prod?"] {
        assert!(near.contains(part), "{near}");
    }
    let far = place.refused(&["--profile", "x"]).await;
    assert!(far.contains("there are prod, staging"), "{far}");

    let missing = place.refused(&["--config", "none.toml"]).await;
    for part in ["cannot read none.toml: No such file", "hint: --config"] {
        assert!(missing.contains(part), "{missing}");
    }
    let directory = place.refused(&["--config", "home"]).await;
    assert!(
        directory.contains("cannot read home: Is a directory"),
        "{directory}"
    );
    let long = place.path("long.toml");
    write(&long, &"# long\n".repeat(200_000));
    let long = place.refused(&["--config", "long.toml"]).await;
    assert!(long.contains("it has more than 1 MiB"), "{long}");
}

#[tokio::test]
async fn a_file_that_others_can_write_to_is_refused() {
    let place = Place::new();
    for path in [place.system(), place.user(), place.path("named.toml")] {
        let name = path.to_str().unwrap();
        let arguments: &[&str] = match path.ends_with("named.toml") {
            true => &["--config", name],
            false => &[],
        };
        write(&path, "label = 'x'\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
        let refused = place.refused(arguments).await;
        for part in [
            name,
            "others than its owner can write",
            "(mode 0646)",
            "chmod go-w",
        ] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn passwords_are_not_shown_and_not_kept_where_everybody_reads() {
    let place = Place::new();
    let file = place.user();
    for url in [
        "redis://app:hunter2@host/",
        "redis-sentinel://app:hunter2@a,b,c/main",
        "redis-cluster://:hunter2@a,b/",
        "redlock://:hunter2@a,b,c",
    ] {
        write(&file, &format!("[profile.p]\nstore = '{url}'\n"));
        let refused = place.refused(&[]).await;
        for part in [":2: the value of store has a password", "password-file"] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        assert!(!refused.contains("hunter2"), "{refused}");

        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        for output in [&[][..], &["--json"]] {
            let ended = place
                .run(&[&["config", "--profile", "p"], output].concat())
                .await;
            assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
            let all = ended.stdout + &ended.stderr;
            assert!(all.contains(":***@") && !all.contains("hunter2"), "{all}");
        }
        fs::remove_file(&file).unwrap();
    }
    let mut by_variable = place.command(&["config", "-S", "redis://host/?user=app"]);
    by_variable.env("LEASEHOLD_PASSWORD", "hunter2");
    let ended = Process::run(by_variable).await;
    assert!(!ended.stdout.contains("hunter2"), "{}", ended.stdout);
}

/// A password in the environment goes before a file that was found, and after one that was typed.
#[tokio::test]
async fn the_password_of_the_environment_has_its_place() {
    let place = Place::new();
    write(&place.user(), "[profile.p]\npassword-file = 'found'\n");
    let shown_with = async |arguments: &[&str], by: &str| {
        let mut command = place.command(&[&["config"], arguments].concat());
        command
            .env("LEASEHOLD_PASSWORD", "hunter2")
            .env("LEASEHOLD_PROFILE", by);
        let in_force = settings(&shown(command).await);
        (
            in_force["password-file"].0.clone(),
            in_force.get("password").cloned(),
        )
    };
    let hidden = Some((
        json!("(hidden)"),
        json!({"kind": "variable", "name": "LEASEHOLD_PASSWORD"}),
    ));
    assert_eq!(shown_with(&[], "p").await, (Value::Null, hidden));
    let found = json!(place.user().with_file_name("found"));
    assert_eq!(shown_with(&["--profile", "p"], "p").await, (found, None));
    let typed = shown_with(&["--password-file", "typed"], "p").await;
    assert_eq!(typed, (json!("typed"), None));
}

/// A password is sent to the server that it was written for, and to no other.
#[tokio::test]
async fn credentials_stay_with_their_store() {
    let place = Place::new();
    write(
        &place.system(),
        "store = 'redis://a/'\nuser = 'app'\npassword-file = 'password'\n",
    );
    write(
        &place.user(),
        "tls-ca = '/x/ca.pem'\n[profile.b]\nstore = 'redis://b/'\nuser = 'b'\n",
    );
    let shown_with = async |arguments: &[&str]| {
        let json = shown(place.command(&[&["config"], arguments].concat())).await;
        let in_force = settings(&json);
        let value = |key: &str| in_force[key].0.clone();
        let unused = json["unused"].as_array().unwrap().iter();
        let unused: Vec<_> = unused
            .map(|row| row["key"].as_str().unwrap().to_owned())
            .collect();
        (
            [value("user"), value("password-file"), value("tls-ca")],
            unused,
        )
    };
    let password = json!(place.path("password"));
    let all = [json!("app"), password, json!("/x/ca.pem")];
    assert_eq!(shown_with(&[]).await, (all.clone(), vec![]));
    assert_eq!(shown_with(&["-S", "redis://a/"]).await, (all, vec![]));
    let none = [Value::Null, Value::Null, Value::Null];
    let unused = ["user", "password-file", "tls-ca"].map(str::to_owned);
    let (values, not_used) = shown_with(&["-S", "redis://c/"]).await;
    assert_eq!(values, none);
    assert_eq!(not_used, unused);
    let (values, not_used) = shown_with(&["--profile", "b"]).await;
    assert_eq!(values, [json!("b"), Value::Null, Value::Null]);
    assert_eq!(not_used, unused[1..]);
    let typed = shown_with(&["-S", "redis://c/", "--user", "me"]).await;
    assert_eq!(typed.0[0], "me");
    let said = place.run(&["config", "--profile", "b"]).await.stdout;
    let line = "not used, as it is for another store: tls-ca (";
    assert!(said.contains(line), "{said}");
    // Where no file names a store, it is for any.
    write(&place.system(), "user = 'app'\n");
    assert_eq!(shown_with(&["-S", "redis://c/"]).await.0[0], "app");
}

#[tokio::test]
async fn commands_do_as_the_file_says() {
    let place = Place::new();
    write(
        &place.system(),
        "store = 'local:/nowhere'\nlabel = 'system'\n",
    );
    let store = place.path("store");
    write(
        &place.user(),
        &format!(
            "store = 'local:{}'\nlabel = 'billing'\nwait = '0s'\n",
            store.display()
        ),
    );
    let holder = Process::spawn(place.command(&["hold", "k"]));
    holder.stdout().wait_for("").await;
    let view = place.run(&["show", "k", "--json"]).await.stdout;
    let view: Value = serde_json::from_str(&view).unwrap();
    assert_eq!(view["holders"][0]["owner"]["label"], "billing");
    assert!(store.is_dir());

    let busy = place.run(&["run", "k", "--", "echo", "ran"]).await;
    assert_eq!(
        (busy.code(), &*busy.stdout),
        (Some(75), ""),
        "{}",
        busy.stderr
    );
    // What is typed goes before it.
    let waiting = Process::spawn(place.command(&["run", "-w", "forever", "k", "--", "true"]));
    waiting.stderr().wait_for("waiting for k").await;
    drop(holder);
    assert_eq!(waiting.finish().await.code(), Some(0));

    // A store in a file is named.
    let elected = ["elect", "--once", "e", "--", "echo", "ran"];
    let elected = place.run(&elected).await;
    assert_eq!((elected.code(), &*elected.stdout), (Some(0), "ran\n"));
}

/// A wait that was set for all runs is no wish about this one.
#[tokio::test]
async fn a_configured_wait_gives_way_to_what_is_typed() {
    let place = Place::new();
    write(&place.user(), "store = 'local:'\nwait = '1h'\n");
    for variables in [&[][..], &[("LEASEHOLD_WAIT", "2h")]] {
        for typed in [&["--every", "1h"][..], &["--every", "1h", "-n"]] {
            let arguments = [&["run"], typed, &["j", "--", "true"]].concat();
            let mut command = place.command(&arguments);
            command.envs(variables.iter().copied());
            let ended = Process::run(command).await;
            assert_eq!(
                (ended.code(), &*ended.stdout),
                (Some(0), ""),
                "{}",
                ended.stderr
            );
            assert!(
                !ended.stderr.contains("no store is named"),
                "{}",
                ended.stderr
            );
        }
        let holder = Process::spawn(place.command(&["hold", "k"]));
        holder.stdout().wait_for("").await;
        let mut at_once = place.command(&["run", "-n", "k", "--", "true"]);
        at_once.envs(variables.iter().copied());
        assert_eq!(Process::run(at_once).await.code(), Some(75));
    }
}

#[tokio::test]
async fn a_grace_time_that_is_too_long_is_named_with_its_place() {
    let place = Place::new();
    write(&place.user(), "ttl = '10s'\n\n[profile.p]\ngrace = '6s'\n");
    let run = ["run", "--profile", "p", "k", "--", "true"];
    for arguments in [&run[..], &["config", "--profile", "p"]] {
        let ended = place.run(arguments).await;
        assert_eq!(ended.code(), Some(64), "{}", ended.stderr);
        let file = place.user().display().to_string();
        let grace = format!("a grace time of 6.0 s (profile p in {file}:4) is too long");
        let ttl = format!("for a TTL of 10 s ({file}:1)");
        for part in [grace, ttl] {
            assert!(ended.stderr.contains(&part), "{part} in {}", ended.stderr);
        }
    }
    let short = [
        "run",
        "--max-hold",
        "4s",
        "--grace",
        "3s",
        "k",
        "--",
        "true",
    ];
    let said = place.run(&short).await.stderr;
    assert!(
        said.contains("3.0 s (--grace) is too long for a TTL of 4.0 s (--max-hold)"),
        "{said}"
    );
}

/// What the outer one was opened with goes on to the inner one, and goes before files; a profile
/// that the inner one names goes before that.
#[tokio::test]
async fn a_run_within_a_run_has_the_outer_ones_store() {
    let server = RedisServer::builder().password("hunter2").start();
    let place = Place::new();
    write(&place.path("password"), "hunter2\n");
    let other = place.path("other");
    write(
        &place.user(),
        &format!(
            "store = 'redis://{}/'\nuser = 'nobody'\npassword-file = '{}'\n\
             [profile.other]\nstore = 'local:{}'\n",
            server.address(),
            place.path("wrong").display(),
            other.display()
        ),
    );
    let right = place.path("password");
    let script = "\"$BIN\" run inner -- sh -c 'echo $LEASEHOLD_STORE' && \
        \"$BIN\" run --profile other inner -- sh -c 'echo $LEASEHOLD_STORE' && \
        \"$BIN\" config";
    let mut command = place.command(&[
        "run",
        "--user",
        "default",
        "--password-file",
        right.to_str().unwrap(),
        "outer",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.env("BIN", env!("CARGO_BIN_EXE_leasehold"));
    let ended = Process::run(command).await;
    assert_eq!(ended.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(
        lines[0].contains(&server.address().to_string()),
        "{}",
        ended.stdout
    );
    assert_eq!(lines[1], format!("local:{}", other.display()));
    let has = |words: &[&str]| {
        let same = |line: &&str| line.split_whitespace().eq(words.iter().copied());
        assert!(lines.iter().any(same), "{words:?} in {}", ended.stdout);
    };
    has(&["user", "default", "LEASEHOLD_STORE_FILE"]);
    has(&[
        "password-file",
        right.to_str().unwrap(),
        "LEASEHOLD_STORE_FILE",
    ]);
}
