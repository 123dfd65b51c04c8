//! What the scripts cost the server, against the least that a fenced lock can
//! do: one script with `SET NX PX` and `INCR`, one that compares and deletes.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::{Claim, ClaimId, ClientInfo, Inbox, Mode, Release, Renew, SetTerms};
use leasehold_testkit::server::RedisServer;
use redis::{Pipeline, Value};

use super::twin::Kind;
use crate::codec::script::{self, Call, SCRIPTS, Script};
use crate::connection::gate::Gate;

const FENCED_CLAIM: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('INCR', KEYS[2]) end return 0";
const FENCED_RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

struct Bench {
    server: RedisServer,
    connection: redis::Connection,
    next: u128,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let connection = redis::Client::open(server.url())
            .unwrap()
            .get_connection()
            .unwrap();
        Self {
            server,
            connection,
            next: 0,
        }
    }

    fn load(&mut self, text: &str) -> String {
        redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(text)
            .query(&mut self.connection)
            .unwrap()
    }

    /// Sends calls in pipelines of 64; server µs a call within scripts, and of
    /// the whole main thread.
    fn cost(&mut self, calls: &[redis::Cmd]) -> (f64, f64) {
        let before = self.server.stats();
        for chunk in calls.chunks(64) {
            let mut pipeline = Pipeline::new();
            for call in chunk {
                pipeline.add_command(call.clone());
            }
            let answers: Vec<Value> = pipeline.query(&mut self.connection).unwrap();
            assert!(
                !answers
                    .iter()
                    .any(|answer| matches!(answer, Value::ServerError(_)))
            );
        }
        let spent = self.server.stats().since(&before);
        let script = spent.command("evalsha");
        let per = |time: Duration| {
            time.as_secs_f64() * 1e6 / f64::from(u32::try_from(calls.len()).unwrap())
        };
        (per(script.time), per(spent.cpu))
    }

    fn id(&mut self) -> ClaimId {
        self.next += 1;
        // As random as they are in use.
        ClaimId::from_random(
            self.next
                .wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
        )
    }
}

fn claim(id: ClaimId, mode: Mode) -> Claim {
    Claim {
        inbox: Some(Inbox::from_random(77)),
        owner: ClientInfo::new("a-host-name.example", 12_345, None),
        ..Claim::new(id, mode, Duration::from_secs(30))
    }
}

fn call(script: &Script, key: &str, arguments: impl Fn(&mut redis::Cmd)) -> redis::Cmd {
    Call::new(script, &[key]).by_hash(arguments)
}

fn fenced(bench: &mut Bench, keys: usize) -> (Vec<redis::Cmd>, Vec<redis::Cmd>) {
    let (claim, release) = (bench.load(FENCED_CLAIM), bench.load(FENCED_RELEASE));
    let mut pair = (Vec::new(), Vec::new());
    for key in 0..keys {
        let id = bench.id();
        let (key, counter) = (
            format!("leasehold:lock:{key}"),
            format!("leasehold:fence:{key}"),
        );
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&claim)
            .arg(2)
            .arg(&key)
            .arg(&counter)
            .arg(id.expose())
            .arg(30_000);
        pair.0.push(command);
        let mut command = redis::cmd("EVALSHA");
        command.arg(&release).arg(1).arg(&key).arg(id.expose());
        pair.1.push(command);
    }
    pair
}

fn ours(bench: &mut Bench, keys: usize, kind: Kind) -> (Vec<redis::Cmd>, Vec<redis::Cmd>) {
    let scripts = [&SCRIPTS.claim, &SCRIPTS.release];
    // On a server that has been marked.
    let terms_of_set = SetTerms {
        set: "one server 60000ms".to_owned(),
        quarantine: Duration::ZERO,
    };
    let gate = Gate::new("leasehold:", &"f".repeat(40), &terms_of_set);
    let call = |script: &Script, key: &str, arguments: &dyn Fn(&mut redis::Cmd)| {
        let keys = &[key];
        let gated = (kind == Kind::Gated).then(|| gate.gated());
        Call {
            script,
            keys,
            gated,
        }
        .by_hash(arguments)
    };
    for script in scripts {
        bench.load(&script.text);
    }
    let mut pair = (Vec::new(), Vec::new());
    for key in 0..keys {
        let id = bench.id();
        let key = format!("leasehold:lock:ours {key} {kind:?}");
        let claim = claim(id.clone(), Mode::EXCLUSIVE);
        pair.0.push(call(scripts[0], &key, &|call| {
            script::add_claim(call, &claim, kind.terms(false));
        }));
        let release = Release {
            id,
            hand_off: true,
            settled: true,
            unused: false,
        };
        pair.1.push(call(scripts[1], &key, &|call| {
            script::add_release(call, &release, kind.terms(false));
        }));
    }
    pair
}

/// µs of a claim and a release: in scripts, and of the whole thread.
fn pair(bench: &mut Bench, (claims, releases): &(Vec<redis::Cmd>, Vec<redis::Cmd>)) -> [f64; 2] {
    let (claim, claim_cpu) = bench.cost(claims);
    let (release, release_cpu) = bench.cost(releases);
    [claim + release, claim_cpu + release_cpu]
}

fn least(rounds: &[[f64; 2]], at: usize) -> f64 {
    rounds
        .iter()
        .map(|round| round[at])
        .fold(f64::MAX, f64::min)
}

#[test]
fn a_pair_costs_at_most_2_2_times_the_least() {
    let mut bench = Bench::new();
    let (mut theirs, mut our_own) = (Vec::new(), Vec::new());
    let (mut in_cluster, mut gated) = (Vec::new(), Vec::new());
    // Noise only ever adds: more rounds when there is much of it.
    for round in 0..48 {
        let fenced = fenced(&mut bench, 2_000);
        let kinds = [Kind::Alone, Kind::InCluster, Kind::Gated];
        let [ours, hashes, checked] = kinds.map(|kind| ours(&mut bench, 2_000, kind));
        theirs.push(pair(&mut bench, &fenced));
        our_own.push(pair(&mut bench, &ours));
        in_cluster.push(pair(&mut bench, &hashes));
        gated.push(pair(&mut bench, &checked));
        if round >= 11 && least(&our_own, 1) <= 2.2 * least(&theirs, 1) {
            break;
        }
    }
    let script = [least(&theirs, 0), least(&our_own, 0)];
    let cpu = [least(&theirs, 1), least(&our_own, 1)];
    eprintln!(
        "µs a pair, fenced minimum and ours: in scripts {script:.2?} (× {:.2}), in all {cpu:.2?} (× {:.2})",
        script[1] / script[0],
        cpu[1] / cpu[0]
    );
    assert!(cpu[1] <= 2.2 * cpu[0], "{cpu:?}");
    eprintln!(
        "in a cluster: in scripts {:.2}, in all {:.2}",
        least(&in_cluster, 0),
        least(&in_cluster, 1)
    );
    assert!(least(&in_cluster, 1) <= 3.5 * cpu[0]);
    eprintln!(
        "with restart=quarantine: in scripts {:.2}, in all {:.2}",
        least(&gated, 0),
        least(&gated, 1)
    );
    assert!(least(&gated, 1) <= 3.0 * cpu[0]);
}

/// What one turn costs with so many claims in the queue: one leaves, one joins,
/// one in the middle is renewed.
fn turn(bench: &mut Bench, mode: Mode, queue: usize) -> f64 {
    for script in [&SCRIPTS.claim, &SCRIPTS.release, &SCRIPTS.renew] {
        bench.load(&script.text);
    }
    let key = format!("leasehold:lock:{mode:?} {queue}");
    let mut ids: VecDeque<_> = (0..=queue).map(|_| bench.id()).collect();
    let join = |id: &ClaimId| {
        let claim = claim(id.clone(), mode);
        call(&SCRIPTS.claim, &key, |call| {
            script::add_claim(call, &claim, Kind::Alone.terms(false));
        })
    };
    let calls: Vec<_> = ids.iter().map(join).collect();
    bench.cost(&calls);
    let mut best = f64::MAX;
    for round in 0..5 {
        let mut calls = Vec::new();
        for turn in 0..200 {
            // The holder, the last, and one in the middle, by turns.
            let leaves = [0, ids.len() - 1, ids.len() / 2][turn % 3];
            let id = ids.remove(leaves).unwrap();
            let release = Release {
                id,
                hand_off: true,
                settled: true,
                unused: false,
            };
            calls.push(call(&SCRIPTS.release, &key, |call| {
                script::add_release(call, &release, Kind::Alone.terms(false));
            }));
            let renew = Renew::new(ids[ids.len() / 3].clone(), Duration::from_secs(30 + round));
            calls.push(call(&SCRIPTS.renew, &key, |call| {
                script::add_renew(call, &renew, Kind::Alone.terms(false));
            }));
            ids.push_back(bench.id());
            calls.push(join(&ids[ids.len() - 1]));
        }
        best = best.min(bench.cost(&calls).1);
    }
    best
}

#[test]
fn the_length_of_the_queue_costs_nothing() {
    let mut bench = Bench::new();
    for mode in [Mode::EXCLUSIVE, Mode::SHARED] {
        let (mut few, mut many) = (f64::MAX, f64::MAX);
        for _ in 0..4 {
            few = few.min(turn(&mut bench, mode, 10));
            many = many.min(turn(&mut bench, mode, 10_000));
            if many <= 1.5 * few {
                break;
            }
        }
        eprintln!("{mode:?}: µs a step with 10 claims {few:.2}, with 10,000 {many:.2}");
        assert!(
            many <= 1.5 * few,
            "{mode:?}: {few} with 10, {many} with 10,000"
        );
    }
}
