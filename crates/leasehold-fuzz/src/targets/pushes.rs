//! What strangers may publish on an inbox's channel, or send to its socket. What the
//! client makes of it is tested where the client is: `leasehold/tests/strangers.rs`.

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
    let pushes = local::pushes(data);
    assert!(pushes.len() < lines);
    for push in pushes {
        assert_eq!(local::pushes(sent(&push).as_bytes()), [push]);
    }
}

/// As the scripts write it.
fn published(push: &Push) -> String {
    match push {
        Push::Granted {
            key,
            arrival,
            token,
            ..
        } => format!("1 g {arrival} {token} 9 8 {key}"),
        Push::Next { key, arrival, left } => format!("1 n {arrival} {} 0 {key}", left.as_micros()),
        Push::Revoked { key, arrival } => format!("1 r {arrival} 8 {key}"),
        Push::Adopted { key, arrival } => format!("1 a {arrival} 8 {key}"),
        Push::Unfit {
            key,
            arrival,
            in_use,
        } => format!("1 u {arrival} {} 8 {key}", permits(*in_use)),
        Push::Changed { key } => format!("1 c 0 8 {key}"),
        other => panic!("nobody pushes {other:?}"),
    }
}

/// As other processes write it.
fn sent(push: &Push) -> String {
    match push {
        Push::Granted {
            key,
            arrival,
            token,
            ..
        } => format!("1 {key}\nG {arrival} {token}"),
        Push::Next { key, arrival, left } => format!("1 {key}\nN {arrival} {}", left.as_micros()),
        Push::Revoked { key, arrival } => format!("1 {key}\nR {arrival}"),
        Push::Adopted { key, arrival } => format!("1 {key}\nA {arrival}"),
        Push::Unfit {
            key,
            arrival,
            in_use,
        } => format!("1 {key}\nU {arrival} {}", permits(*in_use)),
        Push::Changed { key } => format!("1 {key}\nC"),
        other => panic!("nobody pushes {other:?}"),
    }
}

fn permits(in_use: Capacity) -> u32 {
    match in_use {
        Capacity::Permits(permits) => permits,
        Capacity::Lock => panic!("a lock does not shrink"),
    }
}
