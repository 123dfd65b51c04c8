//! Passwords: where they may stand, where they go, and that they are not shown.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::{Place, settings, shown, write};
use crate::common::*;

const PASSWORD: (&str, &str) = ("LEASEHOLD_PASSWORD", "hunter2");

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
        let refused = place.refused("").await;
        let cause = ":2: the value of store has a password";
        says(&refused, [cause, "password-file"]);
        assert!(!refused.contains("hunter2"), "{refused}");

        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        for output in ["", "--json"] {
            let ended = place.run(format!("config --profile p {output}")).await;
            ended.has_code(Some(0));
            let all = ended.stdout + &ended.stderr;
            assert!(all.contains(":***@") && !all.contains("hunter2"), "{all}");
        }
        fs::remove_file(&file).unwrap();
    }
    let config = "config -S redis://host/?user=app";
    let ended = place.run_with(&[PASSWORD], config).await;
    assert!(!ended.stdout.contains("hunter2"), "{}", ended.stdout);
}

/// A password in the environment goes before a file that was found, and after one that was typed.
#[tokio::test]
async fn the_password_of_the_environment_has_its_place() {
    let place = Place::new();
    write(&place.user(), "[profile.p]\npassword-file = 'found'\n");
    let shown_with = async |arguments: &str, by: &str| {
        let mut command = place.command(format!("config {arguments}"));
        command.envs([PASSWORD, ("LEASEHOLD_PROFILE", by)]);
        let in_force = settings(&shown(command).await);
        let file = in_force["password-file"].0.clone();
        (file, in_force.get("password").cloned())
    };
    let from = json!({"kind": "variable", "name": PASSWORD.0});
    let hidden = Some((json!("(hidden)"), from));
    assert_eq!(shown_with("", "p").await, (Value::Null, hidden));
    let found = json!(place.user().with_file_name("found"));
    assert_eq!(shown_with("--profile p", "p").await, (found, None));
    let typed = shown_with("--password-file typed", "p").await;
    assert_eq!(typed, (json!("typed"), None));
}

/// A password is sent to the server that it was written for, and to no other.
#[tokio::test]
async fn credentials_stay_with_their_store() {
    let place = Place::new();
    let of_system = "store = 'redis://a/'\nuser = 'app'\npassword-file = 'password'\n";
    write(&place.system(), of_system);
    let of_user = "tls-ca = '/x/ca.pem'\n[profile.b]\nstore = 'redis://b/'\nuser = 'b'\n";
    write(&place.user(), of_user);
    let shown_with = async |arguments: &str| {
        let json = shown(place.command(format!("config {arguments}"))).await;
        let in_force = settings(&json);
        let value = |key: &str| in_force[key].0.clone();
        let unused = json["unused"].as_array().unwrap().iter();
        let unused = unused.map(|row| row["key"].as_str().unwrap().to_owned());
        let values = ["user", "password-file", "tls-ca"].map(value);
        (values, unused.collect::<Vec<_>>())
    };
    let password = json!(place.path("password"));
    let all = [json!("app"), password, json!("/x/ca.pem")];
    assert_eq!(shown_with("").await, (all.clone(), vec![]));
    assert_eq!(shown_with("-S redis://a/").await, (all, vec![]));
    let none = [Value::Null, Value::Null, Value::Null];
    let unused = ["user", "password-file", "tls-ca"].map(str::to_owned);
    let (values, not_used) = shown_with("-S redis://c/").await;
    assert_eq!(values, none);
    assert_eq!(not_used, unused);
    let (values, not_used) = shown_with("--profile b").await;
    assert_eq!(values, [json!("b"), Value::Null, Value::Null]);
    assert_eq!(not_used, unused[1..]);
    assert_eq!(shown_with("-S redis://c/ --user me").await.0[0], "me");
    let said = place.run("config --profile b").await.stdout;
    let line = "not used, as it is for another store: tls-ca (";
    assert!(said.contains(line), "{said}");
    // Where no file names a store, it is for any.
    write(&place.system(), "user = 'app'\n");
    assert_eq!(shown_with("-S redis://c/").await.0[0], "app");
}

/// Those of the environment are for the store that it names, or that was typed.
#[tokio::test]
async fn credentials_of_the_environment_stay_with_its_store() {
    let place = Place::new();
    let of_user = "store = 'redis://a/'\n[profile.b]\nstore = 'redis://b/'\n";
    write(&place.user(), of_user);
    let shown_with = async |store: Option<&str>, arguments: &str| {
        let mut command = place.command(format!("config {arguments}"));
        command.envs([PASSWORD, ("LEASEHOLD_USER", "app")]);
        command.envs(store.map(|store| ("LEASEHOLD_STORE", store)));
        let json = shown(command).await;
        let in_force = settings(&json);
        let is_sent = in_force["user"].0 == "app";
        assert_eq!(is_sent, in_force.contains_key("password"));
        let unused = json["unused"].as_array().unwrap();
        assert_eq!(is_sent, unused.is_empty(), "{json}");
        is_sent
    };
    assert!(shown_with(Some("redis://c/"), "").await);
    assert!(shown_with(None, "-S redis://c/").await);
    assert!(shown_with(Some("redis://b/"), "--profile b").await);
    assert!(!shown_with(Some("redis://c/"), "--profile b").await);
    assert!(!shown_with(None, "--profile b").await);
    assert!(!shown_with(None, "").await);
}

/// What a server is sent before it answers.
#[tokio::test]
async fn no_other_server_gets_the_password_of_the_environment() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", server.local_addr().unwrap());
    let (received, mut requests) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for client in server.incoming() {
            let (mut client, mut bytes) = (client.unwrap(), vec![0; 4096]);
            let length = client.read(&mut bytes).unwrap_or_default();
            bytes.truncate(length);
            if received.send(bytes).is_err() {
                return;
            }
        }
    });
    let place = Place::new();
    write(&place.user(), &format!("[profile.p]\nstore = '{url}'\n"));
    let lease = json!({"store": url, "ttl_ms": 30_000, "leases": []});
    write(&place.path("f"), &lease.to_string());
    for (arguments, own, is_sent) in [
        (&*format!("show k -S {url}"), None, true),
        ("show k", Some(&*url), true),
        ("show k --profile p", None, false),
        ("release f", None, false),
        ("release f", Some("redis://127.0.0.1:1/"), false),
        (&format!("release f -S {url}"), None, true),
    ] {
        let mut command = place.command(arguments);
        command.envs([PASSWORD]);
        command.envs(own.map(|own| ("LEASEHOLD_STORE", own)));
        let ended = Process::spawn(command).ends(69).await;
        let mut sent = String::new();
        while let Ok(bytes) = requests.try_recv() {
            sent += &String::from_utf8_lossy(&bytes);
        }
        assert!(!sent.is_empty(), "{arguments:?}");
        assert_eq!(sent.contains("hunter2"), is_sent, "{arguments:?}: {sent}");
        let is_said = ended.stderr.contains("LEASEHOLD_PASSWORD not used for ");
        assert_eq!(is_said, !is_sent && own.is_none(), "{}", ended.stderr);
    }
}

/// The store is the command's own then, and the credentials would be for it.
#[tokio::test]
async fn a_command_does_not_inherit_credentials_of_another_store() {
    let place = Place::new();
    write(&place.user(), "store = 'local:'\n");
    for (arguments, expected) in [("", "none\n"), ("-S local:", "app\n")] {
        let run = format!("run -q {arguments} k -- sh -c");
        let run = (run, "echo ${LEASEHOLD_USER-none}");
        let ended = place.run_with(&[("LEASEHOLD_USER", "app")], run).await;
        assert_eq!(ended.stdout, expected, "{ended}");
    }
}
