//! What a client that has a copy of a queue knows before the step is taken.

use crate::common::*;

const START: StoreTime = StoreTime(1_000_000);

fn at(seconds: u64) -> Now {
    Now {
        listens: true,
        ..Now::from(START + Duration::from_secs(seconds))
    }
}

/// Waits in `mode`, for a TTL of so many seconds.
fn waiting(number: u128, mode: Mode, ttl: u64) -> Claim {
    Claim {
        inbox: Inbox::new(format!("inbox-{number}")).ok(),
        waiter_ttl: Duration::from_secs(ttl),
        ..Claim::new(ClaimId::from_random(number), mode, Duration::from_secs(60))
    }
}

/// What a release after so many seconds tells those who wait: the number of each that is woken with
/// it, and whether the one that is next then need not be told.
fn release_after(seconds: u64, waiters: &[Claim; 2]) -> (Vec<u128>, Option<bool>) {
    let mut queue = Queue::default();
    queue.apply(&Command::Claim(waiting(1, Mode::EXCLUSIVE, 10)), at(0));
    for waiter in waiters {
        queue.apply(&Command::Claim(waiter.clone()), at(0));
    }
    // Others have said something meanwhile: the copy knows what time it is.
    let watch = Command::Watch {
        inbox: Inbox::new("somebody").unwrap(),
        ttl: Duration::ZERO,
    };
    queue.apply(&watch, at(seconds));
    let release = settle(ClaimId::from_random(1));
    let woken = queue.foretold(&release);
    let is_woken = |number: &u128| woken.contains(&&Inbox::new(format!("inbox-{number}")).unwrap());
    let woken = [1, 2, 3].into_iter().filter(is_woken).collect();
    let outcome = queue.apply(&release, at(seconds));
    let granted =
        matches!(&outcome.events[0], Event::Granted { id, .. } if *id == ClaimId::from_random(2));
    assert!(granted, "{:?}", outcome.events);
    let is_next = |event: &&Event| matches!(event, Event::Next { .. });
    let next = outcome.events.iter().find(is_next);
    let known = next.map(|event| queue.is_known_in_time(event, outcome.at));
    (woken, known)
}

/// Who renews its place before the heir can be gone hears of it then: it is not woken.
#[test]
fn who_is_next_is_woken_only_where_it_would_look_too_late() {
    for (seconds, heir, next, known) in [
        (0, 10, 10, true),
        (1, 10, 10, true),
        // The heir holds for the ten seconds that it waits for, or three after its grant.
        (0, 10, 30, true),
        (0, 10, 31, false),
        (0, 1, 9, true),
        (0, 1, 10, false),
        // The longer it has waited, the less is known of when it asks.
        (8, 10, 10, false),
    ] {
        let waiters = [(2, heir), (3, next)];
        let waiters = waiters.map(|(number, ttl)| waiting(number, Mode::EXCLUSIVE, ttl));
        let woken = if known { vec![2] } else { vec![2, 3] };
        let told = release_after(seconds, &waiters);
        assert_eq!(told, (woken, Some(known)), "{seconds} {heir} {next}");
    }
}

/// Who may be granted together with the first in line is woken with it.
#[test]
fn who_is_granted_with_the_first_is_woken() {
    let readers = [2, 3].map(|number| waiting(number, Mode::SHARED, 10));
    assert_eq!(release_after(0, &readers), (vec![2, 3], None));
    let siblings = [2, 3].map(|number| Claim {
        secret: Some(OwnerSecret::from_random(7)),
        ..waiting(number, Mode::EXCLUSIVE, 10)
    });
    assert_eq!(release_after(0, &siblings), (vec![2, 3], None));
}
