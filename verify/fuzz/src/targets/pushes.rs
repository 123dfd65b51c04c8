//! What strangers may publish on an inbox's channel, or send to its socket. What the
//! client makes of it is tested where the client is: `leasehold/tests/it/strangers.rs`.

use leasehold::core::Capacity;
use leasehold::fuzzing::{local, redis};
use leasehold::store::Push;

pub(crate) fn run(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').count();
    let pushes = redis::pushes(data);
    assert!(pushes.len() <= lines);
    for push in pushes {
        let again = redis::pushes(published(&push).as_bytes());
        assert_eq!(again, [push]);
    }
    for push in local::pushes(data) {
        // As other processes write it.
        let letter = serde_json::to_vec(&(3, [&push])).unwrap();
        assert_eq!(local::pushes(&letter), [push]);
    }
}

/// As the scripts write it.
fn published(push: &Push) -> String {
    let Some((key, arrival)) = push.claim() else {
        let Push::Changed { key } = push else {
            panic!("nobody pushes {push:?}");
        };
        return format!("2 c 0 8 {key}");
    };
    match push {
        Push::Granted {
            token,
            behind,
            at,
            proof,
            ..
        } => match behind {
            None => format!("2 g {arrival} {token} {} {proof} {key}", at.0),
            Some(behind) => format!("2 f {arrival} {token} {behind} {} {proof} {key}", at.0),
        },
        Push::Next { left, .. } => format!("2 n {arrival} {} 0 {key}", left.as_micros()),
        Push::Revoked { at, proof, .. } => format!("2 r {arrival} {} {proof} {key}", at.0),
        Push::Adopted { at, proof, .. } => format!("2 a {arrival} {} {proof} {key}", at.0),
        Push::Unfit {
            in_use, at, proof, ..
        } => format!("2 u {arrival} {} {} {proof} {key}", permits(*in_use), at.0),
        other => panic!("nobody pushes {other:?}"),
    }
}

fn permits(in_use: Capacity) -> u32 {
    match in_use {
        Capacity::Permits(permits) => permits,
        Capacity::Lock => panic!("a lock does not shrink"),
    }
}
