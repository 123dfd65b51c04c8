//! What is said of events, in words and as objects.

use serde_json::{Value, json};

use super::*;
use crate::named_process::NamedProcess;
use crate::view::example as claim;

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

/// The keys of these were acquired, with these tokens.
fn acquired(tokens: &[(&str, Option<u64>)], waited: Duration, announced: bool) -> Event {
    let tokens = tokens.iter();
    let tokens = tokens.map(|(key, token)| ((*key).to_owned(), *token));
    let tokens: Vec<_> = tokens.collect();
    let keys: Vec<_> = tokens.iter().map(|(key, _)| key.clone()).collect();
    Event::acquired(&keys, &tokens, waited, None, (false, announced))
}

/// Expects this object.
#[track_caller]
fn is_object(event: &Event, expected: &Value) {
    assert_eq!(object(event), *expected);
}

/// Expects this sentence where only what matters is said.
#[track_caller]
fn says(event: &Event, expected: &str) {
    assert_eq!(event.sentence(false).unwrap(), expected);
}

fn object(event: &Event) -> Value {
    serde_json::from_str(&serde_json::to_string(&event.fields).unwrap()).unwrap()
}

#[test]
fn several_keys_have_a_token_each() {
    let acquired = acquired(&[("b", Some(7)), ("a", Some(9))], Duration::ZERO, false);
    let sentence = acquired.sentence(true).unwrap();
    assert_eq!(sentence, "acquired b, a, tokens 7, 9");
    let expected = json!({
        "event": "acquired", "key": "b", "keys": ["b", "a"],
        "token": 7, "tokens": {"b": 7, "a": 9}, "waited_ms": 0,
    });
    is_object(&acquired, &expected);
}

#[test]
fn what_was_not_killed_is_named_with_what_comes_of_it() {
    let pid = rustix::process::getpid();
    let processes = [NamedProcess::of(pid)];
    let refused = |then| Event::refused("k", Signal::KILL, &processes, Some(then));
    let named = format!("cannot kill {} of the command: ", NamedProcess::of(pid));
    for (then, says) in [
        (
            Sequel::Kept,
            "; k stays locked and is renewed until it ends",
        ),
        (
            Sequel::MayOverlap,
            "; it still runs, and the next holder of k may begin meanwhile",
        ),
    ] {
        let event = refused(then);
        let sentence = event.sentence(false).unwrap();
        assert!(sentence.starts_with(&named), "{sentence}");
        assert!(sentence.ends_with(says), "{sentence}");
    }
    let shown = object(&refused(Sequel::MayOverlap));
    assert_eq!(shown["then"], "may_overlap");
    assert_eq!(shown["processes"][0]["pid"], pid.as_raw_nonzero().get());
}

#[test]
fn what_is_left_running_is_named_as_far_as_a_line_goes() {
    let ours = NamedProcess::of(rustix::process::getpid());
    let sentence = |left| {
        let processes = vec![ours.clone(); left];
        let event = Event::left_running(&keys(&["b", "a"]), 3.into(), &processes);
        event.sentence(false).unwrap().to_owned()
    };
    let begins = "the command has ended with status 3; holding b, a until ";
    let name = ours.in_short();
    let two = format!("2 processes that it left are gone: {name}, {name}");
    let seven = [&*name; 5].join(", ");
    let seven = format!("7 processes that it left are gone: {seven}, and 2 more");
    for (left, until) in [
        (0, "its process group is empty"),
        (1, &format!("a process that it left is gone: {name}")),
        (2, &two),
        (7, &seven),
    ] {
        assert_eq!(sentence(left), format!("{begins}{until}"));
    }
}

#[test]
fn without_a_token_there_is_no_number() {
    let acquired = acquired(&[("a", None), ("b", None)], Duration::ZERO, false);
    let sentence = acquired.sentence(true).unwrap();
    assert_eq!(sentence, "acquired a, b, without a token");
    let expected = json!({"event": "acquired", "key": "a", "keys": ["a", "b"], "waited_ms": 0});
    is_object(&acquired, &expected);
}

#[test]
fn says_who_holds() {
    let holders = [claim(Some("deploy"))];
    let conflict = Event::conflict("orders/42", Duration::ZERO, &holders);
    let held = "orders/42 is held by build7 (pid 812, label deploy) for 4 min; \
                free in 12 s unless renewed";
    says(&conflict, held);
    says(&Event::waiting("k", 2, &[]), "waiting for k (position 2)");
}

#[test]
fn what_was_not_announced_ends_in_silence() {
    let acquired = |announced| acquired(&[("k", Some(7))], Duration::from_millis(1500), announced);
    assert_eq!(acquired(false).sentence(false), None);
    let quiet = acquired(false);
    assert_eq!(quiet.sentence(true).unwrap(), "acquired k, token 7");
    says(&acquired(true), "acquired k after 1.5 s");
    let expected = json!({"event": "acquired", "key": "k", "token": 7, "waited_ms": 1500});
    is_object(&acquired(true), &expected);
}

#[test]
fn what_the_store_said_is_told() {
    let expiring = |why: Option<&str>| {
        let end = LeaseEnd {
            key: "k",
            reason: Loss::Unanswered,
            action: Measure::None,
            cause: why.map(str::to_owned),
        };
        Event::expiring(&end, Duration::from_millis(1_500))
    };
    let answered = expiring(Some("NOREPLICAS"));
    let said = "cannot renew k (NOREPLICAS); the lease ends in 1.5 s";
    says(&answered, said);
    let said = "cannot renew k: no answer; the lease ends in 1.5 s";
    says(&expiring(None), said);
    let json = object(&answered);
    assert_eq!(json["cause"], "NOREPLICAS");
    assert_eq!(json["remaining_ms"], 1_500);
}

#[test]
fn loss_is_an_error() {
    let end = LeaseEnd {
        key: "k",
        reason: Loss::Gone,
        action: Measure::Term,
        cause: None,
    };
    let lost = Event::lost(&end, false);
    assert_eq!(lost.tone, Tone::Urgent);
    let said = "lost k: the store no longer has the claim: it was broken, it expired, or the store \
                lost data; stopping the command";
    says(&lost, said);
    let expected = json!({"event": "lost", "key": "k", "reason": "gone", "action": "term"});
    is_object(&lost, &expected);
}
