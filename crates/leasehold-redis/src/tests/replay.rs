//! Replay test: random steps on Redis and on the core. All answers, pushes and records must be
//! the same.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use leasehold_core::*;
use leasehold_store::{AuditLimit, StoreError};
use leasehold_testkit::expect::says;
use leasehold_testkit::server::RedisServer;
use redis::ConnectionLike;

use super::history::{HEARD, History, INBOXES, Mix, START, id, leave, release};
use super::twin::{Kind, Twin};
use crate::codec::audit::{self, Audit};
use crate::codec::script::{self, Gate, Request, Step};

fn mix(ids: u64, modes: Vec<Mode>, longest_pause: u64, calm: bool, rare: u64) -> Mix {
    Mix {
        ids,
        modes,
        longest_pause: Duration::from_millis(longest_pause),
        calm,
        rare,
        votes: false,
        inboxes: &INBOXES,
    }
}

/// A mutex of these clients.
fn runs_of(inboxes: &'static [&'static str], ids: u64, calm: bool, rare: u64) -> Mix {
    Mix {
        inboxes,
        ..mix(ids, vec![Mode::EXCLUSIVE], 100, calm, rare)
    }
}

/// A key at a member of a set.
fn votes(ids: u64, longest_pause: u64, rare: u64) -> Mix {
    Mix {
        votes: true,
        ..mix(ids, vec![Mode::EXCLUSIVE], longest_pause, false, rare)
    }
}

fn break_all() -> Command {
    let by = ClientInfo::unknown();
    Command::Break { by, only: None }
}

fn permits(take: u32) -> Mode {
    Mode::permits(5, take)
}

fn mixes() -> Vec<Mix> {
    const EXCLUSIVE: Mode = Mode::EXCLUSIVE;
    const SHARED: Mode = Mode::SHARED;
    let both = vec![permits(1), Mode::permits(2, 1), SHARED, EXCLUSIVE];
    vec![
        // A mutex, with little and with much time between the steps.
        mix(8, vec![EXCLUSIVE], 100, false, 0),
        mix(30, vec![EXCLUSIVE], 4_000, false, 6),
        // Owners that enter again.
        mix(20, vec![EXCLUSIVE], 50, false, 2),
        mix(40, vec![EXCLUSIVE], 100, true, 2),
        // Readers and writers.
        mix(20, vec![SHARED, SHARED, SHARED, EXCLUSIVE], 2_000, false, 4),
        // Semaphores, of two sizes, and locks in between.
        mix(25, [1, 3, 5].map(permits).into(), 1_000, false, 4),
        mix(12, both, 3_000, false, 6),
        // Calm days, with and without anything special.
        mix(12, vec![EXCLUSIVE], 50, true, 0),
        mix(12, vec![EXCLUSIVE], 200, true, 12),
        mix(30, vec![EXCLUSIVE, EXCLUSIVE, SHARED], 500, true, 20),
        mix(20, vec![permits(1), permits(3)], 250, true, 8),
        // Clients that have much to do, one of them dead.
        runs_of(&["inbox-a"], 20, true, 0),
        runs_of(&["inbox-a", "inbox-b"], 12, true, 20),
        runs_of(&["inbox-a", "inbox-a", "dead-1"], 20, false, 12),
    ]
}

/// How many runs: `LEASEHOLD_REPLAY_RUNS` for more.
fn runs() -> u64 {
    let runs = std::env::var("LEASEHOLD_REPLAY_RUNS").ok();
    runs.and_then(|runs| runs.parse().ok()).unwrap_or(10)
}

/// Runs one step, and says which it was if it panics.
fn traced<T>(name: &str, what: &dyn std::fmt::Debug, step: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        eprintln!("{name}: {what:?}");
        resume_unwind(panic)
    })
}

fn run(twin: &mut Twin, seed: u64, steps: u64, mix: &Mix) {
    let mut history = History::new(seed, mix);
    let name = format!("run lock: {seed}");
    twin.restart(&name);
    for _ in 0..steps {
        history.pause(&twin.places[0].queue);
        let command = history.command(&twin.places[0].queue);
        twin.full = history.dice.one_in(16);
        twin.listens = history.dice.one_in(2);
        match history.dice.roll(200) {
            0 => twin.boot.run += 1,
            1 => twin.forget_marker(),
            _ => {}
        }
        let step = || twin.step(&command, history.clock);
        let reply = traced(&name, &(history.clock, &command), step);
        history.learn(&command, reply);
    }
}

fn assert_seen(twin: &Twin, kinds: &str) {
    eprintln!("{:?}", twin.seen);
    for kind in kinds.split(", ") {
        let seen = twin.seen.get(kind).copied().unwrap_or(0);
        assert!(seen > 10, "too little of {kind}: {:?}", twin.seen);
    }
}

#[test]
fn the_scripts_do_what_the_core_does() {
    do_what_the_core_does(Kind::Alone);
}

/// There the record is a hash from the first claim to the end of its retention.
#[test]
fn the_scripts_of_a_cluster_do_what_the_core_does() {
    do_what_the_core_does(Kind::InCluster);
}

/// There the server restarts now and then, or loses its mark.
#[test]
fn the_scripts_of_a_quarantine_do_what_the_core_does() {
    do_what_the_core_does(Kind::Gated);
}

/// There claims propose their tokens, which may become void.
#[test]
fn the_scripts_of_a_member_do_what_the_core_does() {
    let server = RedisServer::start();
    let mut twin = Twin::of(&server, &HEARD, Kind::Member);
    for (number, mix) in (0..).zip([votes(6, 100, 0), votes(8, 1_000, 4), votes(20, 5_000, 8)]) {
        for seed in 0..3 * runs() {
            run(&mut twin, 1_000_000 + 1_000 * number + seed, 200, &mix);
        }
    }
    assert_seen(
        &twin,
        "granted, busy, gone, released, absent, broken, taken, outbid, quarantined, unheard, \
         told revoked, told changed, noted granted, noted released, noted returned, \
         noted expired, noted broken",
    );
}

fn do_what_the_core_does(kind: Kind) {
    let server = RedisServer::start();
    let mut twin = Twin::of(&server, &HEARD, kind);
    let before = server.stats();
    for (number, mix) in (0..).zip(mixes()) {
        for seed in 0..runs() {
            run(&mut twin, 1_000 * number + seed, 200, &mix);
        }
    }
    assert_seen(
        &twin,
        "granted, in a run, waiting, busy, gone, released, absent, mismatch, broken, superseded, \
         taken, resized, done",
    );
    assert_seen(
        &twin,
        "heard, unheard, deaf, passed over, told granted, told in a run, told next, told revoked, \
         told adopted, told unfit, told changed, granted together, held twice, kept",
    );
    if kind == Kind::Gated {
        assert_seen(&twin, "quarantined, closed, caught up");
    }
    if kind == Kind::InCluster {
        let done = server.stats().since(&before);
        assert!(done.command("hset").calls > 0);
        for command in ["set", "del"] {
            assert_eq!(done.command(command).calls, 0, "{command}");
        }
    }
}

/// What an owner claimed while the server granted nothing is granted by whatever comes next, also
/// by a claim of somebody else that only joins the tail.
#[test]
fn who_joins_after_a_quarantine_lets_the_owners_claims_in() {
    let server = RedisServer::start();
    let mut twin = Twin::of(&server, &HEARD, Kind::Gated);
    twin.restart("after a quarantine");
    let start = StoreTime(START);
    let (long, hour) = (Duration::from_secs(600), Duration::from_secs(3600));
    let claim = |number: u64, secret: Option<u128>| {
        let mut claim = Claim::new(id(number), Mode::EXCLUSIVE, hour);
        claim.waiter_ttl = hour;
        claim.inbox = Some(Inbox::new(INBOXES[0]).unwrap());
        claim.secret = secret.map(OwnerSecret::from_random);
        Command::Claim(claim)
    };
    let is_granted = |reply: Reply| reply.is_grant();
    assert!(!is_granted(twin.step(&claim(1, Some(7)), start)), "closed");
    let renew = Command::Renew(Renew::new(id(1), hour));
    assert!(is_granted(twin.step(&renew, start + long)), "open");
    twin.boot.run += 1;
    let closed = start + long + Duration::from_secs(1);
    assert!(!is_granted(twin.step(&claim(2, Some(7)), closed)), "closed");
    let open = closed + long;
    assert!(!is_granted(twin.step(&claim(3, None), open)), "it waits");
    let holders = twin.places[0].queue.look(open).holders;
    assert_eq!(holders.len(), 2, "{holders:?}");
}

/// Claims on several keys at once, among steps on each of them.
#[test]
fn claims_on_several_keys_are_all_or_nothing() {
    run_mixes(1, run_several, "all, not all, told next, told changed");
}

/// What a client sends at the same time is one call: several keys, and some of them more than
/// once.
#[test]
fn steps_that_travel_together_are_taken_one_after_the_other() {
    let kinds = "granted, waiting, released, told granted, unheard";
    run_mixes(3, run_together, kinds);
}

/// So many times fewer runs of each mix, on servers of two kinds.
fn run_mixes(fewer: u64, run: fn(&mut Twin, u64, u64, &Mix), kinds: &str) {
    let server = RedisServer::start();
    for kind in [Kind::Alone, Kind::Gated] {
        let mut twin = Twin::of(&server, &HEARD, kind);
        for (number, mix) in (0..).zip(mixes()) {
            for seed in 0..runs() / (fewer + u64::from(kind == Kind::Gated)) {
                run(&mut twin, 100_000 * (number + 1) + seed, 60, &mix);
            }
        }
        assert_seen(&twin, kinds);
        server.command(&["FLUSHALL"]);
    }
}

fn run_together(twin: &mut Twin, seed: u64, rounds: u64, mix: &Mix) {
    let names = ["a", "b c", "d"].map(|name| format!("{name} {seed}"));
    twin.restart_all(&[&names[0], &names[1], &names[2]]);
    let mut histories: Vec<_> = (0..3).map(|at| History::new(seed + at, mix)).collect();
    for _ in 0..rounds {
        histories[0].pause(&twin.places[0].queue);
        let clock = histories[0].clock;
        let count = 1 + histories[0].dice.roll(8);
        twin.full = histories[0].dice.one_in(16);
        twin.listens = histories[0].dice.one_in(2);
        let mut steps = Vec::new();
        for _ in 0..count {
            let at = usize::try_from(histories[0].dice.roll(3)).unwrap();
            histories[at].clock = clock;
            steps.push((at, histories[at].command(&twin.places[at].queue)));
        }
        let asked: Vec<_> = steps.iter().map(|(at, command)| (*at, command)).collect();
        let replies = traced(&names[0], &(clock, &steps), || twin.together(&asked, clock));
        for ((at, command), reply) in steps.iter().zip(replies) {
            histories[*at].learn(command, reply);
        }
    }
}

fn run_several(twin: &mut Twin, seed: u64, steps: u64, mix: &Mix) {
    let names = ["a", "b c", "d"].map(|name| format!("{name} {seed}"));
    let count = usize::from(seed.is_multiple_of(2)) + 2;
    let names: Vec<_> = names[..count].iter().map(String::as_str).collect();
    twin.restart_all(&names);
    let mut histories: Vec<_> = (0..3).map(|at| History::new(seed + at, mix)).collect();
    for _ in 0..steps {
        // One clock for all.
        histories[0].pause(&twin.places[0].queue);
        twin.boot.run += u64::from(histories[0].dice.one_in(40));
        let clock = histories[0].clock;
        for history in &mut histories {
            history.clock = clock;
        }
        if histories[0].dice.one_in(3) {
            let all = histories.iter_mut().zip(&twin.places);
            let claims = all.map(|(history, place)| history.claim(&place.queue));
            let claims: Vec<_> = claims.collect();
            let step = || twin.claim_all(&claims, clock);
            if traced(names[0], &(clock, &claims), step) {
                for (history, claim) in histories.iter_mut().zip(&claims) {
                    history.learn_claim(claim);
                }
            }
            continue;
        }
        for (at, history) in histories.iter_mut().take(count).enumerate() {
            let command = history.command(&twin.places[at].queue);
            let step = || twin.step_at(at, &command, clock);
            let reply = traced(names[at], &(clock, &command), step);
            history.learn(&command, reply);
        }
    }
}

/// Lua prints such numbers rounded unless told not to; at the latest clock they are near
/// the end of what it counts one by one.
#[test]
fn numbers_are_exact_to_the_last_microsecond() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server, &HEARD);
    let mix = &mix(12, vec![Mode::EXCLUSIVE], 50, true, 4);
    for (seed, start) in [
        (1, START),
        (2, StoreTime::LATEST.0 - 10_000_001),
        (3, 1_000_000_000_000_001),
    ] {
        twin.restart(&format!("from {start}"));
        let mut history = History::new(seed, mix);
        history.clock = StoreTime(start);
        for _ in 0..100 {
            history.clock = history.clock + Duration::from_micros(history.dice.roll(100_000));
            let command = history.command(&twin.places[0].queue);
            twin.step(&command, history.clock);
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
        ..Claim::new(id(1), Mode::EXCLUSIVE, Duration::from_secs(30))
    };
    let mut clock = StoreTime(START);
    for mode in [Mode::EXCLUSIVE, Mode::SHARED] {
        twin.restart(&format!("{mode:?}"));
        claim.mode = mode;
        for number in 0..600 {
            claim.id = id(number);
            claim.inbox = Some(Inbox::new(INBOXES[usize::from(number % 3 == 0) + 2]).unwrap());
            twin.step(&Command::Claim(claim.clone()), clock);
        }
        // Waiting behind shared holders.
        claim.mode = Mode::EXCLUSIVE;
        for number in 600..620 {
            claim.id = id(number);
            twin.step(&Command::Claim(claim.clone()), clock);
        }
        for wait in [5, 20, 1, 1, 1, 30, 1, 1] {
            clock = clock + Duration::from_secs(wait);
            for number in [0, 3, 700, 7] {
                twin.step(&release(id(number + wait)), clock);
            }
        }
        for number in 800..1_000 {
            twin.step(&release(id(number)), clock);
        }
        twin.step(&break_all(), clock);
    }
}

/// What random histories hardly ever meet: each needs several rare things in a row.
#[test]
fn rare_turns_are_those_of_the_core() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server, &HEARD);
    let clock = StoreTime(START);
    let (second, ms) = (Duration::from_secs(1), Duration::from_millis(1));
    let claim = |number, inbox: &str| Claim {
        inbox: Some(Inbox::new(inbox).unwrap()),
        ..Claim::new(id(number), Mode::EXCLUSIVE, 2 * second)
    };

    // A grant with a minimum hold is cut, since nobody heard of it; whoever asks
    // learns of it, and has its minimum hold again.
    twin.restart("lifted");
    twin.step(&Command::Claim(claim(1, HEARD[0])), clock);
    let wants = Claim {
        min_hold: 20 * second,
        ..claim(2, "dead-1")
    };
    twin.step(&Command::Claim(wants), clock);
    twin.step(&release(id(1)), clock);
    twin.step(&Command::Renew(Renew::new(id(2), ms)), clock + second / 2);
    twin.step(&Command::Claim(claim(3, HEARD[0])), clock + 10 * second);

    // An unfair claim passes claims of its own client, which are not granted behind it then.
    twin.restart("passed");
    let runs = |number, inbox: &str| Claim {
        runs: true,
        ..claim(number, inbox)
    };
    for (number, inbox) in [(1, HEARD[0]), (2, HEARD[1]), (3, HEARD[1])] {
        twin.step(&Command::Claim(runs(number, inbox)), clock);
    }
    twin.step(&leave(id(1), false, true), clock);
    let unfair = Claim {
        ahead: true,
        ..runs(4, HEARD[1])
    };
    assert!(twin.step(&Command::Claim(unfair), clock).is_grant());
    let next = twin.step(&Command::Renew(Renew::new(id(2), second)), clock);
    let is_next = matches!(next, Reply::Standing(next) if next.position == 1);
    assert!(is_next, "{next:?}");

    // A rotation that is refused lets its own claim in: that is told by a push.
    twin.restart("refused");
    twin.step(&Command::Claim(claim(1, HEARD[0])), clock);
    let patient = Claim {
        waiter_ttl: 20 * second,
        ..claim(2, HEARD[0])
    };
    twin.step(&Command::Claim(patient), clock);
    let rotate = Renew {
        rotate: Some(Rotate {
            to: id(9),
            version: 7,
            adopt: None,
        }),
        ..Renew::new(id(2), ms)
    };
    let refused = twin.step(&Command::Renew(rotate), clock + 5 * second);
    assert_eq!(refused, Reply::Superseded);
}

/// Each was found by the long form only.
#[test]
fn rarer_turns_are_those_of_the_core() {
    let server = RedisServer::start();
    let clock = StoreTime(START);
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    let inbox = || Inbox::new(HEARD[0]).unwrap();
    let claim = |number| Claim {
        inbox: Some(inbox()),
        waiter_ttl: hour,
        runs: true,
        ..Claim::new(id(number), Mode::EXCLUSIVE, hour)
    };
    let begin = |kind| {
        server.command(&["FLUSHALL"]);
        let mut twin = Twin::of(&server, &HEARD, kind);
        twin.restart("rarer");
        twin
    };

    // What is void stays so for as long where somebody watches the key.
    let mut twin = begin(Kind::Member);
    let (id_1, released) = (id(1), false);
    let whose = Voided::Claim { id: id_1, released };
    let up_to = Token::from(START);
    twin.step(&Command::Void(Void { up_to, whose }), clock);
    let watch = Command::Watch {
        inbox: inbox(),
        ttl: second,
    };
    twin.step(&watch, clock + second);

    // A claim that is granted behind another is sent back as a quarantine begins, and leaves.
    let mut twin = begin(Kind::Gated);
    twin.step(&Command::Claim(claim(1)), clock);
    let open = clock + hour / 2;
    twin.step(&Command::Renew(Renew::new(id(1), hour)), open);
    let follows = twin.step(&Command::Claim(claim(2)), open);
    let is_behind = matches!(follows, Reply::Standing(it) if it.behind.is_some());
    assert!(is_behind, "{follows:?}");
    twin.forget_marker();
    let left = twin.step(&release(id(2)), open);
    assert_eq!(left, Reply::Released { held: false });

    // Another takes an owner's hold over, of which one claim has expired.
    let mut twin = begin(Kind::Alone);
    for (number, lease_ttl) in [(1, second), (2, hour)] {
        let owned = Claim {
            lease_ttl,
            runs: false,
            secret: Some(OwnerSecret::from_random(7)),
            ..claim(number)
        };
        assert!(twin.step(&Command::Claim(owned), clock).is_grant());
    }
    let (inbox, owner) = (None, ClientInfo::default());
    let adopt = Some(Adopt { inbox, owner });
    let (to, version) = (id(9), 0);
    let rotate = Some(Rotate { to, version, adopt });
    let renew = Renew {
        rotate,
        ..Renew::new(id(2), hour)
    };
    twin.step(&Command::Renew(renew), clock + 2 * second);
    assert_eq!(twin.places[0].queue.look(clock).holders.len(), 1);
}

/// Nothing but the raised token is written then.
#[test]
fn a_break_of_nothing_works_when_the_memory_is_full() {
    let server = RedisServer::start();
    for kind in [Kind::Alone, Kind::Gated] {
        let mut twin = Twin::of(&server, &HEARD, kind);
        twin.restart_all(&["nothing", "another"]);
        let start = StoreTime(START);
        // A server that is gated marks itself first.
        twin.step_at(1, &release(id(1)), start);
        twin.full = true;
        let broken = twin.step(&break_all(), start + Duration::from_secs(600));
        let nobody = matches!(broken, Reply::Broken { holders: 0, .. });
        assert!(nobody, "{broken:?}");
        server.command(&["FLUSHALL"]);
    }
}

/// Beyond it numbers of a record would be above 2^53, and the key of no more use.
#[test]
fn a_clock_that_is_too_late_changes_nothing() {
    let server = RedisServer::start();
    for kind in [Kind::Alone, Kind::InCluster, Kind::Gated] {
        let mut twin = Twin::of(&server, &HEARD, kind);
        let second = Duration::from_secs(1);
        let clock = StoreTime(START);
        let steps = |from: u64| {
            let claim = |number| Claim {
                inbox: Some(Inbox::new(HEARD[0]).unwrap()),
                min_hold: match number % 2 {
                    0 => second,
                    _ => Duration::ZERO,
                },
                ..Claim::new(id(number), Mode::EXCLUSIVE, 30 * second)
            };
            [
                Command::Claim(claim(from)),
                Command::Claim(claim(from + 1)),
                Command::Claim(claim(from + 2)),
                Command::Renew(Renew::new(id(from), second)),
                release(id(from)),
                release(id(from + 1)),
                break_all(),
            ]
        };
        let name = format!("too late {kind:?}");
        twin.restart(&name);
        let late = StoreTime::LATEST + second;
        for (at, step) in steps(1).iter().enumerate() {
            for command in steps(50) {
                twin.refused(&command, late);
            }
            twin.step(step, clock + second * u32::try_from(at).unwrap());
        }
        if kind == Kind::Gated {
            // A quarantine that began by such a clock lasts as long as the step back.
            continue;
        }
        // The last time that is not too late; then the clock is right again.
        twin.restart(&format!("{name}, once accepted"));
        for (at, step) in steps(100).iter().enumerate() {
            twin.step(step, [StoreTime::LATEST, clock][usize::from(at > 2)]);
        }
        // The key's own time goes on from where it was.
        twin.step(&steps(200)[0], clock + second);
        for command in steps(250) {
            twin.refused(&command, StoreTime::LATEST);
        }
        for (at, step) in steps(300).iter().enumerate() {
            twin.step(step, clock + second * u32::try_from(at).unwrap());
        }
    }
}

/// Sends these steps as one call, and reads its answers.
fn take(
    connection: &mut redis::Connection,
    audit: Option<&Audit>,
    steps: &[(&str, Command)],
) -> Vec<Result<(Reply, StoreTime), StoreError>> {
    let gate = Gate {
        marker: String::new(),
        terms: Vec::new(),
    };
    let terms = Kind::Alone.terms(&gate, false, audit);
    let key = |name| format!("leasehold:lock:{name}");
    let steps = steps.iter().map(|(at, step)| Step::new(key(at), step));
    let (steps, all) = (&steps.collect::<Option<Vec<_>>>().unwrap(), false);
    let call = Request::Steps { steps, all }.command(true, terms);
    let answers = script::each_reply(connection.req_command(&call).unwrap()).unwrap();
    answers.iter().map(script::read_reply).collect()
}

fn claim(number: u64, runs: bool) -> Command {
    Command::Claim(Claim {
        inbox: Some(Inbox::new(HEARD[0]).unwrap()),
        runs,
        ..Claim::new(id(number), Mode::EXCLUSIVE, Duration::from_secs(30))
    })
}

/// Whoever was demoted meanwhile takes no step: what was worked out at one key is written when it is
/// another's turn, and where that is refused, nobody is told that it was done.
#[test]
fn a_replica_does_nothing_of_what_travels_together() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut take = |steps: &[(&str, Command)]| take(&mut connection, None, steps);
    let held = [("a", claim(1, true)), ("a", claim(2, true))];
    let line = [("b", claim(3, false)), ("b", claim(4, false))];
    for said in take(&held).into_iter().chain(take(&line)) {
        assert!(matches!(said, Ok((Reply::Standing(_), _))), "{said:?}");
    }
    let steps = [("a", leave(id(1), true, true)), ("b", claim(5, false))];
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for said in take(&steps) {
        says(said.unwrap_err(), ["read-only replica"]);
    }
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let replies = take(&steps).into_iter().map(|said| said.unwrap().0);
    let [released, waits]: [Reply; 2] = replies.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(released, Reply::Released { held: true });
    assert!(matches!(waits, Reply::Standing(_)), "{waits:?}");
}

/// A release between claims that find the memory full is noted: it was carried out.
#[test]
fn a_claim_that_is_refused_takes_no_note_of_another_with_it() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let audit = Audit::new("leasehold:", AuditLimit::Entries(1_000));
    let mut take = |steps: &[(&str, Command)]| take(&mut connection, Some(&audit), steps);
    for (number, key) in (1..).zip(["a", "a", "b", "c", "c"]) {
        take(&[(key, claim(number, false))]);
    }
    let limit = |bytes| server.command(&["CONFIG", "SET", "maxmemory", bytes]);
    limit("1");
    let said = take(&[
        ("a", claim(6, false)),
        ("b", leave(id(3), true, true)),
        ("c", claim(7, false)),
    ]);
    limit("0");
    let released = matches!(said[1], Ok((Reply::Released { held: true }, _)));
    assert!(released, "{said:?}");
    let last = ["XREVRANGE", "leasehold:audit", "+", "-", "COUNT", "1"];
    let last: Vec<(String, Vec<Vec<u8>>)> = server.query(&last);
    let noted = audit::read("leasehold:", &last[0].1[1]).unwrap();
    let [only] = noted.as_slice() else {
        panic!("{noted:?}");
    };
    let is_release = matches!(only.entry.event, AuditEvent::Released { .. });
    assert!(is_release && only.key.as_str() == "b", "{only:?}");
}
