//! Measures what the scripts cost the server, compared with a minimal fenced lock: one script
//! with `SET NX PX` and `INCR`, and one that compares and deletes.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::{Claim, ClaimId, ClientInfo, Command, Inbox, Mode, Renew, SetTerms};
use leasehold_store::AuditLimit;
use leasehold_testkit::server::RedisServer;
use redis::{Pipeline, Value};

use super::history::leave;
use super::twin::Kind;
use crate::codec::audit::Audit;
use crate::codec::script::{Gate, Request, STEP, Step};

const FENCED_CLAIM: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('INCR', KEYS[2]) end return 0";
const FENCED_RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Of how many keys a claim and a release are measured.
const KEYS: usize = 2_000;

/// The claims, and the releases.
type Calls = (Vec<redis::Cmd>, Vec<redis::Cmd>);

struct Bench {
    server: RedisServer,
    connection: redis::Connection,
    next: u128,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            server,
            connection: client.get_connection().unwrap(),
            next: 0,
        }
    }

    fn load(&mut self, text: &str) -> String {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(text);
        load.query(&mut self.connection).unwrap()
    }

    /// Sends calls in pipelines of 64; server µs of each of so many steps within scripts,
    /// and of the whole main thread.
    fn cost(&mut self, calls: &[redis::Cmd], steps: usize) -> (f64, f64) {
        let before = self.server.stats();
        for chunk in calls.chunks(64) {
            let mut pipeline = Pipeline::new();
            for call in chunk {
                pipeline.add_command(call.clone());
            }
            let answers: Vec<Value> = pipeline.query(&mut self.connection).unwrap();
            let failed = |answer: &Value| matches!(answer, Value::ServerError(_));
            assert!(!answers.iter().any(failed));
        }
        let spent = self.server.stats().since(&before);
        let script = spent.command("evalsha");
        let steps = f64::from(u32::try_from(steps).unwrap());
        let per = |time: Duration| time.as_secs_f64() * 1e6 / steps;
        (per(script.time), per(spent.cpu))
    }

    fn id(&mut self) -> ClaimId {
        const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        self.next += 1;
        // As random as they are in use.
        ClaimId::from_random(self.next.wrapping_mul(SPREAD))
    }
}

fn claim(id: ClaimId, mode: Mode) -> Claim {
    Claim {
        inbox: Some(Inbox::from_random(77)),
        owner: ClientInfo::new("a-host-name.example", 12_345, None),
        ..Claim::new(id, mode, Duration::from_secs(30))
    }
}

fn key_of(name: &str) -> String {
    format!("leasehold:lock:{name}")
}

/// Calls with so many steps each.
fn calls(
    steps: &[(String, Command)],
    together: usize,
    kind: Kind,
    audit: Option<&Audit>,
) -> Vec<redis::Cmd> {
    // On a server that has been marked.
    let terms_of_set = SetTerms {
        set: "one server 60000ms".to_owned(),
        quarantine: Duration::ZERO,
    };
    let gate = Gate::new("leasehold:", &"f".repeat(40), &terms_of_set);
    let call = |part: &[(String, Command)]| {
        let steps = part.iter();
        let steps = steps.map(|(key, step)| Step::new(key.clone(), step).unwrap());
        let (steps, all) = (&steps.collect::<Vec<_>>(), false);
        Request::Steps { steps, all }.command(false, kind.terms(&gate, false, audit))
    };
    steps.chunks(together).map(call).collect()
}

fn fenced(bench: &mut Bench) -> Calls {
    let (claim, release) = (bench.load(FENCED_CLAIM), bench.load(FENCED_RELEASE));
    let mut pair = (Vec::new(), Vec::new());
    for number in 0..KEYS {
        let id = bench.id();
        let key = format!("leasehold:lock:{number}");
        let counter = format!("leasehold:fence:{number}");
        let mut command = redis::cmd("EVALSHA");
        command.arg(&claim).arg(2).arg(&key).arg(&counter);
        command.arg(id.expose()).arg(30_000);
        pair.0.push(command);
        let mut command = redis::cmd("EVALSHA");
        command.arg(&release).arg(1).arg(&key).arg(id.expose());
        pair.1.push(command);
    }
    pair
}

fn ours(bench: &mut Bench, together: usize, kind: Kind, audit: Option<&Audit>) -> Calls {
    bench.load(&STEP.text);
    let (mut claims, mut releases) = (Vec::new(), Vec::new());
    for key in 0..KEYS {
        let id = bench.id();
        let key = key_of(&format!("ours {key} {kind:?}"));
        let claim = claim(id.clone(), Mode::EXCLUSIVE);
        claims.push((key.clone(), Command::Claim(claim)));
        releases.push((key, leave(id, true, true)));
    }
    [claims, releases]
        .map(|steps| calls(&steps, together, kind, audit))
        .into()
}

/// µs of a claim and a release: in scripts, and of the whole thread.
fn pair(bench: &mut Bench, (claims, releases): &Calls) -> [f64; 2] {
    let (claim, claim_cpu) = bench.cost(claims, KEYS);
    let (release, release_cpu) = bench.cost(releases, KEYS);
    [claim + release, claim_cpu + release_cpu]
}

/// Measures in 12 rounds at least, and in 48 at most, until what is measured is within its bounds.
fn settles(mut is_within: impl FnMut() -> bool) -> bool {
    (0..48).any(|round| is_within() && round >= 11)
}

fn least(rounds: &[[f64; 2]], at: usize) -> f64 {
    let costs = rounds.iter().map(|round| round[at]);
    costs.fold(f64::MAX, f64::min)
}

/// How many times the processor time of `theirs` ours takes: the median over the rounds, in each of
/// which they follow each other. What else the machine does changes both, and the least of many
/// rounds need not come from times that were alike.
fn ratio(ours: &[[f64; 2]], theirs: &[[f64; 2]]) -> f64 {
    let rounds = ours.iter().zip(theirs);
    let mut ratios: Vec<_> = rounds.map(|(ours, theirs)| ours[1] / theirs[1]).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

#[test]
fn a_pair_costs_no_more_than_the_least_where_many_travel_together() {
    // How many travel together, where, and how many times the fenced minimum it may cost.
    const OURS: [(usize, Kind, f64); 5] = [
        (16, Kind::Alone, 1.0),
        (16, Kind::Gated, 1.0),
        (1, Kind::Alone, 3.0),
        (1, Kind::Gated, 3.5),
        (1, Kind::InCluster, 5.0),
    ];
    let mut bench = Bench::new();
    let (mut theirs, mut ours_all) = (Vec::new(), OURS.map(|_| Vec::new()));
    let within = settles(|| {
        let fenced = fenced(&mut bench);
        theirs.push(pair(&mut bench, &fenced));
        for ((together, kind, _), costs) in OURS.iter().zip(&mut ours_all) {
            let ours = ours(&mut bench, *together, *kind, None);
            costs.push(pair(&mut bench, &ours));
        }
        let mut all = OURS.iter().zip(&ours_all);
        all.all(|((.., bound), costs)| ratio(costs, &theirs) <= *bound)
    });
    let (script, cpu) = (least(&theirs, 0), least(&theirs, 1));
    eprintln!("µs a pair, fenced minimum: in scripts {script:.2}, in all {cpu:.2}");
    for ((together, kind, bound), costs) in OURS.iter().zip(&ours_all) {
        let [script, all] = [0, 1].map(|at| least(costs, at));
        let ratio = ratio(costs, &theirs);
        eprintln!(
            "{kind:?}, {together} together: in scripts {script:.2}, in all {all:.2} \
             (× {ratio:.2}, at most {bound})"
        );
    }
    assert!(within, "too much, by what is printed above");
}

/// What an audit log adds to the scripts' time. Of all the time that the server spends on a pair,
/// with its networking, it is less: `docs/audit.md`.
#[test]
fn an_audit_log_costs_a_part_of_a_pair() {
    // How many travel together, where, and how many times the pair without a log it may cost.
    const OURS: [(usize, Kind, f64); 3] = [
        (1, Kind::Alone, 1.5),
        (16, Kind::Alone, 1.5),
        (1, Kind::InCluster, 1.4),
    ];
    let audit = Audit::new("leasehold:", AuditLimit::Entries(10_000));
    let mut bench = Bench::new();
    let mut costs = OURS.map(|_| [Vec::new(), Vec::new()]);
    let within = settles(|| {
        for ((together, kind, _), costs) in OURS.iter().zip(&mut costs) {
            for (costs, audit) in costs.iter_mut().zip([None, Some(&audit)]) {
                let ours = ours(&mut bench, *together, *kind, audit);
                costs.push(pair(&mut bench, &ours));
            }
        }
        let mut all = OURS.iter().zip(&costs);
        all.all(|((.., bound), [without, with])| ratio(with, without) <= *bound)
    });
    for ((together, kind, bound), [without, with]) in OURS.iter().zip(&costs) {
        let [(script, all), (script_with, all_with)] =
            [without, with].map(|costs| (least(costs, 0), least(costs, 1)));
        let ratio = ratio(with, without);
        eprintln!(
            "{kind:?}, {together} together: µs a pair in scripts {script:.2}, with a log \
             {script_with:.2}; in all {all:.2} and {all_with:.2} (× {ratio:.2}, at most {bound})"
        );
    }
    assert!(within, "too much, by what is printed above");
}

/// What one turn costs with so many claims in the queue: one leaves, one joins,
/// one in the middle is renewed.
fn turn(bench: &mut Bench, mode: Mode, queue: usize) -> f64 {
    bench.load(&STEP.text);
    let key = key_of(&format!("{mode:?} {queue}"));
    let mut ids: VecDeque<_> = (0..=queue).map(|_| bench.id()).collect();
    let join = |id: &ClaimId| (key.clone(), Command::Claim(claim(id.clone(), mode)));
    let steps: Vec<_> = ids.iter().map(join).collect();
    bench.cost(&calls(&steps, 1, Kind::Alone, None), steps.len());
    let mut best = f64::MAX;
    for round in 0..5 {
        let mut steps = Vec::new();
        for turn in 0..200 {
            // The holder, the last, and one in the middle, by turns.
            let leaves = [0, ids.len() - 1, ids.len() / 2][turn % 3];
            let id = ids.remove(leaves).unwrap();
            steps.push((key.clone(), leave(id, true, true)));
            let renew = Renew::new(ids[ids.len() / 3].clone(), Duration::from_secs(30 + round));
            steps.push((key.clone(), Command::Renew(renew)));
            ids.push_back(bench.id());
            steps.push(join(&ids[ids.len() - 1]));
        }
        let (_, cpu) = bench.cost(&calls(&steps, 1, Kind::Alone, None), steps.len());
        best = best.min(cpu);
    }
    best
}

#[test]
fn the_length_of_the_queue_costs_nothing() {
    let mut bench = Bench::new();
    for mode in [Mode::EXCLUSIVE, Mode::SHARED] {
        let (mut few, mut many) = (f64::MAX, f64::MAX);
        for _ in 0..12 {
            few = few.min(turn(&mut bench, mode, 10));
            many = many.min(turn(&mut bench, mode, 10_000));
            if many <= 1.5 * few {
                break;
            }
        }
        let told = format!("{mode:?}: µs a step with 10 claims {few:.2}, with 10,000 {many:.2}");
        eprintln!("{told}");
        assert!(many <= 1.5 * few, "{told}");
    }
}
