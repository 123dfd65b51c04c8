//! Random steps on Redis and on the core: every answer, every push and the whole
//! record must be the same.

use std::time::Duration;

use leasehold_core::{
    Claim, ClaimId, Command, Inbox, Mode, Owner, Release, Renew, Reply, StoreTime,
};
use leasehold_testkit::server::RedisServer;

use super::twin::Twin;

const HEARD: [&str; 3] = ["inbox-a", "inbox-b", "c"];
const INBOXES: [&str; 6] = ["inbox-a", "inbox-b", "c", "dead-1", "dead-2", "dead-3"];
const START: u64 = 1_795_000_000_000_000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let sides = u64::try_from(from.len()).unwrap();
        &from[usize::try_from(self.roll(sides)).unwrap()]
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.roll(u64::try_from(most.as_micros()).unwrap()))
    }
}

/// What a run of steps is drawn from.
struct Mix {
    ids: u64,
    modes: Vec<Mode>,
    longest_pause: Duration,
    /// As clients do it mostly: fair, waiting, with settled releases. This is
    /// where the scripts have their short paths.
    calm: bool,
}

fn id(number: u64) -> ClaimId {
    // Some are short, and part of others: the search for released ids must not
    // be fooled.
    match number % 5 {
        0 => ClaimId::new(format!("{number}")).unwrap(),
        _ => ClaimId::from_random(number.into()),
    }
}

fn command(dice: &mut Dice, mix: &Mix, number: u64, standing: &[ClaimId]) -> Command {
    // A window that moves on: released ids stay released.
    let any = id(number / 2 + dice.roll(mix.ids));
    let action = dice.roll(20);
    // What renews and releases mostly knows whom.
    let id = match standing {
        [] => any,
        _ if dice.one_in(if action < 9 { 1 } else { 5 }) => any,
        known => dice.pick(&known[known.len().saturating_sub(8)..]).clone(),
    };
    match action {
        0..9 => Command::Claim(Claim {
            lease_ttl: dice.up_to(Duration::from_secs(30)),
            waiter_ttl: dice.up_to(Duration::from_secs(10)),
            wait: mix.calm || !dice.one_in(4),
            ahead: !mix.calm && dice.one_in(5),
            inbox: match dice.roll(7) {
                6 => None,
                _ => Some(Inbox::new(dice.pick(&INBOXES)).unwrap()),
            },
            owner: Owner::new("host é", 7, dice.one_in(2).then_some("a label")),
            ..Claim::new(id, *dice.pick(&mix.modes), Duration::ZERO)
        }),
        9..12 => Command::Renew(Renew::new(id, dice.up_to(Duration::from_secs(30)))),
        12..19 => Command::Release(Release {
            id,
            hand_off: mix.calm || !dice.one_in(4),
            settled: mix.calm || dice.one_in(3),
        }),
        _ if !mix.calm && dice.one_in(3) => Command::Break,
        _ => Command::Release(Release {
            id,
            hand_off: true,
            settled: mix.calm,
        }),
    }
}

fn pause(dice: &mut Dice, twin: &Twin, clock: StoreTime, longest: Duration) -> StoreTime {
    match dice.roll(48) {
        0 => clock.before(dice.up_to(Duration::from_secs(100))),
        1 => clock + dice.up_to(Duration::from_secs(200)),
        2 if dice.one_in(4) => clock + dice.up_to(Duration::from_secs(20 * 3600)),
        3..12 => clock,
        // Up to a deadline, to the microsecond.
        12..20 => {
            let look = twin.queue.look(clock);
            let holders = look.holders.iter().map(|holder| holder.claim.deadline);
            let waiters = look.waiters.iter().map(|waiter| waiter.claim.deadline);
            let deadlines: Vec<_> = holders.chain(waiters).collect();
            if deadlines.is_empty() {
                return clock;
            }
            let deadline = dice.pick(&deadlines).before(look.at.since(look.clock));
            StoreTime(deadline.0 + dice.roll(3) - 1)
        }
        _ => clock + dice.up_to(longest),
    }
}

fn run(twin: &mut Twin, seed: u64, steps: u64, mix: &Mix) {
    let mut dice = Dice(seed);
    let mut clock = StoreTime(START + dice.roll(1_000_000_000));
    twin.restart(&format!("run lock: {seed}"));
    let mut standing = Vec::new();
    for number in 0..steps {
        clock = pause(&mut dice, twin, clock, mix.longest_pause);
        let command = command(&mut dice, mix, number, &standing);
        let step = std::panic::AssertUnwindSafe(|| twin.step(&command, clock));
        match (std::panic::catch_unwind(step), command) {
            (Ok(Reply::Standing(_)), Command::Claim(claim)) => standing.push(claim.id),
            (Ok(Reply::Released { .. }), Command::Release(release)) => {
                standing.retain(|id| *id != release.id);
            }
            (Ok(_), _) => {}
            (Err(panic), command) => {
                eprintln!("seed {seed}, step {number}, at {clock:?}: {command:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn mixes() -> [Mix; 8] {
    let permits = |take| Mode::Permits { of: 5, take };
    let second = Duration::from_secs(1);
    [
        // A mutex, with little and with much time between the steps.
        Mix {
            ids: 8,
            modes: vec![Mode::Exclusive],
            longest_pause: second / 10,
            calm: false,
        },
        Mix {
            ids: 30,
            modes: vec![Mode::Exclusive],
            longest_pause: 4 * second,
            calm: false,
        },
        // Readers and writers.
        Mix {
            ids: 20,
            modes: vec![Mode::Shared, Mode::Shared, Mode::Shared, Mode::Exclusive],
            longest_pause: 2 * second,
            calm: false,
        },
        // Semaphores, of two sizes, and locks in between.
        Mix {
            ids: 25,
            modes: vec![permits(1), permits(2), permits(5), permits(1)],
            longest_pause: second,
            calm: false,
        },
        Mix {
            ids: 12,
            modes: vec![
                permits(1),
                Mode::Permits { of: 2, take: 1 },
                Mode::Shared,
                Mode::Exclusive,
            ],
            longest_pause: 3 * second,
            calm: false,
        },
        Mix {
            ids: 12,
            modes: vec![Mode::Exclusive],
            longest_pause: second / 20,
            calm: true,
        },
        Mix {
            ids: 30,
            modes: vec![Mode::Exclusive, Mode::Exclusive, Mode::Shared],
            longest_pause: second / 2,
            calm: true,
        },
        Mix {
            ids: 20,
            modes: vec![permits(1), permits(3)],
            longest_pause: second / 4,
            calm: true,
        },
    ]
}

/// How many runs: `LEASEHOLD_REPLAY_RUNS` for more.
fn runs() -> u64 {
    std::env::var("LEASEHOLD_REPLAY_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(12)
}

#[test]
fn the_scripts_do_what_the_core_does() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server, &HEARD);
    for (kind, mix) in (0..).zip(mixes()) {
        for seed in 0..runs() {
            run(&mut twin, 1_000 * kind + seed, 200, &mix);
        }
    }
    eprintln!("{:?}", twin.seen);
    for kind in [
        "granted", "waiting", "busy", "gone", "released", "absent", "mismatch", "broken", "heard",
        "unheard",
    ] {
        let seen = twin.seen.get(kind).copied().unwrap_or(0);
        assert!(seen > 20, "too little of {kind}: {:?}", twin.seen);
    }
}

/// Lua prints such numbers rounded unless told not to; in 2255 they are at the
/// end of what it counts one by one.
#[test]
fn numbers_are_exact_to_the_last_microsecond() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server, &HEARD);
    let mix = &mixes()[5];
    for (seed, start) in [
        (1, START),
        (2, 8_999_999_999_999_999),
        (3, 1_000_000_000_000_001),
    ] {
        twin.restart(&format!("from {start}"));
        let (mut dice, mut clock) = (Dice(seed), StoreTime(start));
        for number in 0..100 {
            clock = clock + Duration::from_micros(dice.roll(100_000));
            twin.step(&command(&mut dice, mix, number, &[]), clock);
        }
    }
}

/// More lapsed claims than one step drops, more released ids than are kept, and
/// more waiting claims than `unheard` looks at.
#[test]
fn the_bounds_of_one_step_are_those_of_the_core() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server, &HEARD);
    let mut claim = Claim {
        inbox: Some(Inbox::new("dead-1").unwrap()),
        ..Claim::new(id(1), Mode::Exclusive, Duration::from_secs(30))
    };
    let mut clock = StoreTime(START);
    for mode in [Mode::Exclusive, Mode::Shared] {
        twin.restart(&format!("{mode:?}"));
        claim.mode = mode;
        for number in 0..600 {
            claim.id = id(number);
            claim.inbox = Some(Inbox::new(INBOXES[usize::from(number % 3 == 0) + 2]).unwrap());
            twin.step(&Command::Claim(claim.clone()), clock);
        }
        // Waiting behind shared holders.
        claim.mode = Mode::Exclusive;
        for number in 600..620 {
            claim.id = id(number);
            twin.step(&Command::Claim(claim.clone()), clock);
        }
        for wait in [5, 20, 1, 1, 1, 30, 1, 1] {
            clock = clock + Duration::from_secs(wait);
            for number in [0, 3, 700, 7] {
                twin.step(
                    &Command::Release(Release {
                        id: id(number + wait),
                        hand_off: true,
                        settled: false,
                    }),
                    clock,
                );
            }
        }
        for number in 800..1_000 {
            twin.step(
                &Command::Release(Release {
                    id: id(number),
                    hand_off: true,
                    settled: false,
                }),
                clock,
            );
        }
        twin.step(&Command::Break, clock);
    }
}
