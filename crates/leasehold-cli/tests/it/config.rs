//! Where settings come from: options, the environment, `leasehold.toml`, defaults.

mod in_force;
mod precedence;
mod refused;
mod secrets;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
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

    fn command(&self, arguments: impl Arguments) -> Command {
        let mut command = leasehold(arguments);
        command.env("LEASEHOLD_SYSTEM_CONFIG", self.system());
        command.env_remove("LEASEHOLD_CONFIG");
        command.env_remove("XDG_CONFIG_HOME");
        command.env("XDG_STATE_HOME", self.path("state"));
        command.env("HOME", self.path("home")).current_dir(&self.0);
        command
    }

    async fn run(&self, arguments: impl Arguments) -> Finished {
        Process::run(self.command(arguments)).await
    }

    async fn run_with(&self, variables: &[(&str, &str)], arguments: impl Arguments) -> Finished {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        Process::run(command).await
    }

    /// `leasehold config` with these arguments fails; what it says.
    async fn refused(&self, arguments: impl Arguments) -> String {
        let mut command = self.command("config");
        command.args(arguments.words());
        let ended = Process::spawn(command).ends_printing(64, "").await;
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
    ended.has_been_quiet(Some(0));
    ended.json()
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
#[tokio::test]
async fn what_is_shown_has_its_shape() {
    let place = Place::new();
    write(&place.system(), "store = 'redis://host/'\n");
    let of_user = "label = 'mine'\n\n[profile.prod]\nttl = '1m'\n";
    write(&place.user(), of_user);
    let profiled = "config --profile prod -n";
    let json = shown(place.command(profiled)).await;
    let from = json!({"kind": "option", "name": "--profile"});
    assert_eq!(json["profile"], json!({"name": "prod", "from": from}));
    assert_eq!(json["unused"], json!([]));
    let files = json!([
        {"path": place.user(), "whose": "user", "state": "read"},
        {"path": place.system(), "whose": "system", "state": "read"},
    ]);
    assert_eq!(json["files"], files);
    let from = json!({"kind": "file", "path": place.user(), "line": 4, "profile": "prod"});
    let ttl = json!({"key": "ttl", "value": "1m", "from": from});
    assert_eq!(json["settings"][6], ttl);
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
    let files = &shown(nothing.command("config")).await["files"];
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
        let mut command = place.command("config");
        // A relative one does not count.
        let directory = match directory {
            "/" => place.path("xdg"),
            relative => PathBuf::from(relative),
        };
        command.env("XDG_CONFIG_HOME", directory);
        assert_eq!(settings(&shown(command).await)["label"].0, label);
    }
    let mut homeless = place.command("config");
    homeless.env("HOME", "/dev/null");
    assert_eq!(settings(&shown(homeless).await)["label"].0, Value::Null);
}

#[tokio::test]
async fn relative_paths_are_relative_to_their_file() {
    let place = Place::new();
    let text = "password-file = 'password'\ntls-ca = '~/ca.pem'\n";
    write(&place.user(), text);
    let in_force = settings(&shown(place.command("config")).await);
    let beside = |name: &str| json!(place.user().with_file_name(name));
    assert_eq!(in_force["password-file"].0, beside("password"));
    assert_eq!(in_force["tls-ca"].0, beside("~/ca.pem"));

    write(&place.path("here.toml"), "password-file = 'password'\n");
    let named = place.command("config --config here.toml");
    assert_eq!(settings(&shown(named).await)["password-file"].0, "password");
}
