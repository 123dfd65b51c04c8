//! Redlock on real servers: behaviour and faults.
#![cfg(feature = "redis")]

use futures_util::poll;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::redis_support::{LEAST_RIGHTS, rate};
use crate::redlock_support::{Data, RedisServer, Set, claim, key, members, release, renew, token};
use crate::steps::{self, *};
use leasehold::audit::{AuditEvent, AuditRecord};
use leasehold::store::redis::{RedlockOptions, RedlockStore};
use leasehold_testkit::deployment::Independent;
use leasehold_testkit::proxy::{Direction, Proxy};

const SOON: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(10);

/// Claims `k`, which is free.
async fn granted(store: &RedlockStore, number: u128, ttl: Duration) -> Token {
    let granted = store.claim(&key("k"), &claim(store, number, ttl)).await;
    let granted = granted.unwrap_or_else(|error| panic!("claim {number}: {error}"));
    token(granted.reply)
}

/// Releases `k`, which this claim holds.
async fn released(store: &RedlockStore, number: u128) {
    let released = store.release(&key("k"), &release(number)).await.unwrap();
    let held = ReleaseReply::Released { held: true };
    assert_eq!(released.reply, held, "claim {number}");
}

/// A renewal that finds its claim released sends no release of its own: the servers could take that
/// one first, and then the caller's finds nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_renewal_under_way_does_not_overtake_the_release() {
    let set = Set::start(3, "node_timeout=10s").await;
    // On the worker, which runs first what was spawned last.
    let on_the_worker = tokio::spawn(async move {
        let (store, key) = (set.store().await, key("k"));
        granted(&store, 1, SOON).await;
        let (renew, release) = (renew(1, SOON), release(1));
        let mut renewed = std::pin::pin!(store.renew(&key, &renew));
        assert!(poll!(&mut renewed).is_pending());
        // Each server answers in order.
        store.inspect(&key).await.unwrap();
        let mut released = std::pin::pin!(store.release(&key, &release));
        assert!(poll!(&mut released).is_pending());
        assert_eq!(renewed.await.unwrap().reply, RenewReply::Gone);
        released.await.unwrap().reply
    });
    let released = on_the_worker.await.unwrap();
    assert_eq!(released, ReleaseReply::Released { held: true });
}

/// As `leasehold renew` does with a lease that `hold --detach` has left.
#[tokio::test]
async fn another_process_renews_by_the_parts() {
    let set = Set::start(3, "node_timeout=10s").await;
    let (holder, other) = (set.client().await, set.client().await);
    let lease = holder.mutex("k").unwrap().lock().await.unwrap();
    let parts = lease.parts().unwrap();
    other.renew_by_parts(&parts, SOON).await.unwrap();
    let released = other.release_by_parts(&parts).await.unwrap();
    assert_eq!(released, Released::Held);
    let ended = set.client().await.renew_by_parts(&parts, SOON).await;
    fails(ended, ErrorKind::Lost, &[]);
}

/// Asks with this claim until a majority answers: a machine may be busy.
async fn answered(store: &RedlockStore, claim: &Claim) -> ClaimReply {
    let asked = steps::answered("an answer", async || store.claim(&key("k"), claim).await);
    asked.await.reply
}

/// The first grant of `k` to one of these claims, which come until then.
async fn first_grant(store: &RedlockStore, mut next: impl FnMut() -> Claim) -> Token {
    let granted = async {
        loop {
            if let Ok(answer) = store.claim(&key("k"), &next()).await
                && answer.holds()
            {
                return token(answer.reply);
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, granted).await.expect("a grant")
}

/// The servers have forgotten it, and another client has come with its id: that one keeps the key.
#[tokio::test]
async fn a_claim_whose_id_is_anothers_by_now_takes_nothing_from_it() {
    let set = Set::start(3, "quarantine=0s&node_timeout=10s").await;
    let (store, other) = (set.store().await, set.store().await);
    let former = claim(&store, 1, SOON);
    granted(&store, 1, SOON).await;
    for server in &set.servers {
        server.command(&["FLUSHALL"]);
    }
    granted(&other, 1, SOON).await;
    assert_eq!(answered(&store, &former).await, ClaimReply::Taken);
    released(&other, 1).await;
}

/// Its client asks again, so what it has proposed is not withdrawn: a withdrawal that reached a server
/// late would take a vote that the claim holds by.
#[tokio::test]
async fn a_claim_that_is_asked_for_again_keeps_what_it_has_proposed() {
    let set = Set::start(3, "").await;
    let (store, other) = (set.store().await, set.store().await);
    // Before half of it is over, the same token is proposed again.
    let ttl = SOON;
    let (first, second) = (claim(&store, 1, ttl), claim(&other, 2, ttl));
    let rest = &set.servers[1..];
    let need_replicas = |so_many| {
        for server in rest {
            server.command(&["config", "set", "min-replicas-to-write", so_many]);
        }
    };
    rest.iter().for_each(RedisServer::stop);
    let unanswered = store.claim(&key("k"), &first).await.unwrap_err();
    assert_eq!(unanswered.retry_after(), None, "{unanswered}");
    rest.iter().for_each(RedisServer::cont);
    let first_asked_before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    need_replicas("1");
    let not_now = |error: &StoreError| error.retry_after().is_some();
    until("their refusal", async || {
        not_now(&store.claim(&key("k"), &first).await.unwrap_err())
    })
    .await;
    need_replicas("0");
    let proposed = Duration::from_micros(token(answered(&store, &first).await).get());
    let second = answered(&other, &second).await;
    assert!(matches!(second, ClaimReply::Busy { .. }), "{second:?}");
    assert!(proposed < first_asked_before, "another token");
}

/// Nobody carries on with what a program has left in the background when it ends.
#[test]
fn an_attempt_that_fails_has_given_back_its_votes() {
    let set = runtime().block_on(Set::start(3, ""));
    for server in &set.servers[1..] {
        server.command(&["config", "set", "min-replicas-to-write", "1"]);
    }
    let attempt = |number| {
        runtime().block_on(async {
            let store = set.store().await;
            let failed = store.claim(&key("k"), &claim(&store, number, SOON)).await;
            failed.unwrap_err().to_string()
        })
    };
    let voted = format!("127.0.0.1:{}: yes", set.servers[0].port());
    says(&attempt(1), [voted.as_str()]);
    says(&attempt(2), [voted.as_str()]);
}

#[tokio::test]
async fn two_of_five_may_be_down_stopped_or_slow() {
    let set = Set::start(5, "").await;
    let store = set.store().await;
    let (key, another) = (key("k"), claim(&store, 99, TTL));
    let mut last = granted(&store, 1, TTL).await;
    set.servers[1].kill();
    set.servers[3].stop();
    let renewed = store.renew(&key, &renew(1, TTL)).await.unwrap().reply;
    assert_eq!(token(renewed), last);
    released(&store, 1).await;
    for number in 2..20 {
        let next = granted(&store, number, TTL).await;
        assert!(next > last);
        last = next;
        let busy = store.claim(&key, &another).await.unwrap().reply;
        assert!(matches!(busy, ClaimReply::Busy { .. }), "{busy:?}");
        released(&store, number).await;
    }
    // A client that comes now finds it so.
    use_once(&set.client().await, "k").await;
    set.servers[3].cont();
}

#[tokio::test]
async fn with_three_of_five_down_it_fails_in_time_and_says_who_did_what() {
    let set = Set::start(5, "max_ttl=10s").await;
    let settings = Settings::default().with_operation_timeout(Duration::from_secs(2));
    let client = set.client_with(settings.with_ttl(TTL)).await;
    let other = set.store().await;
    set.servers[0].kill();
    set.servers[2].kill();
    set.servers[4].stop();
    let locked = timeout(SOON, client.mutex("k").unwrap().lock()).await;
    let error = fails(locked.unwrap(), ErrorKind::Unavailable, &[]);
    says(&error, ["2 of 5 servers agreed, 3 are needed"]);
    for (server, vote) in [(1, "yes"), (3, "yes"), (4, "no answer"), (0, "")] {
        let port = set.servers[server].port();
        says(&error, [format!("127.0.0.1:{port}: {vote}")]);
    }
    // What it had got is released: the two that are up vote for another.
    set.servers[4].cont();
    let (key, claim) = (key("k"), claim(&other, 1, TTL));
    let has_all = async || other.claim(&key, &claim).await.unwrap().holds();
    until("all votes are given back", has_all).await;
}

#[tokio::test]
async fn a_server_without_its_data_does_not_vote_until_all_that_it_forgot_is_over() {
    let set = Set::start(3, "max_ttl=500ms").await;
    let store = set.store().await;
    let (key, ttl) = (key("k"), Duration::from_millis(500));
    set.servers[2].kill();
    let first = granted(&store, 1, ttl).await;
    set.servers[0].restart(Data::Lose);
    set.servers[2].start_again();
    let other = set.store().await;
    let began = SystemTime::now();
    let closed = other.claim(&key, &claim(&other, 2, ttl)).await;
    let why = "it is new or may have lost data";
    fails(closed, ErrorKind::Refused, &[why]);
    let mut number = 2;
    let second = first_grant(&other, || {
        number += 1;
        claim(&other, number, ttl)
    });
    assert!(second.await > first);
    assert!(began.elapsed().unwrap() > Duration::from_millis(900));
}

/// Two of five swallow every answer, or are slow: nobody waits for them. Three: the
/// same claim asks again when they are back, and its votes are its own.
#[tokio::test]
async fn servers_that_swallow_their_answers_are_gone_round() {
    let set = Set::start(5, "set=blue").await;
    let proxies: Vec<_> = set.servers.iter().map(Proxy::to).collect();
    let members = members(proxies.iter().map(Proxy::port));
    let url = format!("redlock://{members}/?set=blue&node_timeout=300ms");
    let options = RedlockOptions::from_url(&url).unwrap();
    let store = RedlockStore::connect(options).await.unwrap();
    let key = key("k");
    // All connections are up, and their run ids are known.
    let mut last = granted(&store, 1, TTL).await;
    store.release(&key, &release(1)).await.unwrap();
    proxies[0].black_hole(Direction::ToClient);
    proxies[4].delay(Direction::ToClient, Duration::from_secs(1));
    let mut number = 1;
    for _ in 0..4 {
        // On a busy machine one of the other three may be late with a release, and then it
        // votes for who has left: the next try is due.
        let mut tries = 0;
        let next = loop {
            (number, tries) = (number + 1, tries + 1);
            let claim = claim(&store, number, TTL);
            match store.claim(&key, &claim).await.unwrap().reply {
                ClaimReply::Busy { .. } if tries < 20 => {
                    sleep(Duration::from_millis(50)).await;
                }
                reply => break token(reply),
            }
        };
        assert!(next > last);
        last = next;
        let renewed = store.renew(&key, &renew(number, TTL)).await.unwrap();
        assert_eq!(token(renewed.reply), last);
        released(&store, number).await;
    }
    proxies[2].black_hole(Direction::ToClient);
    let wanted = claim(&store, 1_000, TTL);
    let began = SystemTime::now();
    let silent = store.claim(&key, &wanted).await;
    assert!(began.elapsed().unwrap() < Duration::from_secs(2));
    fails(silent, ErrorKind::Unavailable, &["no answer within 300ms"]);
    for proxy in [0, 2, 4] {
        proxies[proxy].heal();
        proxies[proxy].reset();
    }
    assert!(first_grant(&store, || wanted.clone()).await > last);
    assert_eq!(store.inspect(&key).await.unwrap().holders.len(), 1);
}

/// What several clients believed: from when until when, and with which token.
type Holds = Arc<Mutex<Vec<(SystemTime, SystemTime, u64)>>>;

/// How often a contender looks until when its lease may be relied on.
const LOOK: Duration = Duration::from_millis(20);

/// One client that asks again and again, and holds for a while; it works for as
/// long as its lease is valid by its own clock.
async fn contend(url: String, ttl: Duration, seed: u64, ended: Arc<AtomicBool>, holds: Holds) {
    let settings = Settings::default().with_ttl(ttl);
    let settings = settings.with_operation_timeout(Duration::from_millis(500));
    let builder = Client::builder().store(url).settings(settings);
    let Ok(client) = builder.connect().await else {
        return;
    };
    let lock = client.mutex("k").unwrap();
    let mut dice = Dice(seed);
    while !ended.load(Ordering::SeqCst) {
        if let Ok(Some(lease)) = lock.try_lock().await {
            let from = SystemTime::now();
            // A lease that is not renewed any more still counts till its end, and not for as long
            // as a busy machine takes to tell of it.
            let mut until = from + lease.remaining();
            {
                let work = lease.run(sleep(dice.millis(0, 601)));
                tokio::pin!(work);
                while lease.is_valid() && timeout(LOOK, &mut work).await.is_err() {
                    until = until.max(SystemTime::now() + lease.remaining());
                }
            }
            let to = SystemTime::now().min(until);
            if lease.is_valid() || to > from {
                holds.lock().unwrap().push((from, to, lease.token().get()));
            }
            let _ = lease.release().await;
        }
        sleep(dice.millis(0, 31)).await;
    }
}

/// Two holds that overlap.
fn overlap(holds: &Holds) -> Option<(u64, u64)> {
    let mut holds = holds.lock().unwrap().clone();
    holds.sort_unstable();
    let mut last: Option<(SystemTime, u64)> = None;
    for (from, to, token) in holds {
        if let Some((end, other)) = last
            && from < end
        {
            return Some((other, token));
        }
        last = Some(last.map_or((to, token), |(end, other)| {
            if end > to { (end, other) } else { (to, token) }
        }));
    }
    None
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// One random schedule: clients contend, and one server after the other comes
/// back without its data, for a while, and until there were a few holds. How often two held at
/// once, and how often one did.
async fn schedule(parameters: &str, seed: u64) -> (Option<(u64, u64)>, usize) {
    let set = Set::start(3, parameters).await;
    let ttl = Duration::from_millis(600);
    let holds = Holds::default();
    let mut dice = Dice(seed);
    let ended = Arc::new(AtomicBool::new(false));
    let mut contenders = JoinSet::new();
    for n in 0..3 {
        let (ended, holds) = (ended.clone(), holds.clone());
        contenders.spawn(contend(set.url(), ttl, seed * 10 + n, ended, holds));
    }
    let begun = Instant::now();
    let few = || holds.lock().unwrap().len() < 4;
    while begun.elapsed() < Duration::from_millis(1_500)
        || (few() && begun.elapsed() < Duration::from_secs(8))
    {
        // Now and then they are left alone for as long as it takes until most of them vote again.
        let longest = [2_001, 401][usize::from(dice.roll(4) > 0)];
        sleep(dice.millis(0, longest)).await;
        let server = usize::try_from(dice.roll(3)).unwrap();
        set.servers[server].kill();
        set.servers[server].start_again();
    }
    ended.store(true, Ordering::SeqCst);
    contenders.join_all().await;
    (overlap(&holds), holds.lock().unwrap().len())
}

/// Where two held at once, by seed and tokens, and how often one did.
#[derive(Default)]
struct Seen {
    doubled: Vec<(u64, (u64, u64))>,
    held: u64,
}

/// At least so many schedules, several at a time; more of them, up to `most`, where they have not
/// shown enough: a busy machine gets little done in one.
async fn schedules(
    parameters: &'static str,
    (least, most): (u64, u64),
    shows_enough: impl Fn(&Seen) -> bool,
) -> Seen {
    let mut seen = Seen::default();
    let mut next = 0;
    let mut running = JoinSet::new();
    let goes_on = |next, seen: &Seen| next < least || (next < most && !shows_enough(seen));
    while goes_on(next, &seen) || !running.is_empty() {
        while goes_on(next, &seen) && running.len() < 4 {
            let seed = next;
            running.spawn(async move { (seed, schedule(parameters, seed).await) });
            next += 1;
        }
        if let Some(done) = running.join_next().await {
            let (seed, (overlap, holds)) = done.unwrap();
            seen.doubled.extend(overlap.map(|tokens| (seed, tokens)));
            seen.held += holds as u64;
        }
    }
    seen
}

/// `LEASEHOLD_SCHEDULES=200` runs as many as are promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_restart_without_their_data_never_let_two_hold() {
    let count = number("LEASEHOLD_SCHEDULES").unwrap_or(24);
    let enough = |seen: &Seen| seen.held > count;
    let Seen { doubled, held } = schedules("max_ttl=1s", (count, 4 * count), enough).await;
    assert!(doubled.is_empty(), "{doubled:?}");
    assert!(held > count, "{held} holds in {count} schedules and more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_quarantine_the_same_schedules_let_two_hold() {
    let most = 4 * number("LEASEHOLD_SCHEDULES").unwrap_or(24);
    let enough = |seen: &Seen| !seen.doubled.is_empty();
    let Seen { doubled, held } = schedules("max_ttl=1s&quarantine=0s", (1, most), enough).await;
    assert!(!doubled.is_empty(), "{held} holds in {most} schedules");
}

/// `LEASEHOLD_ACQUISITIONS=10000` runs as many as are promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_while_servers_restart() {
    let wanted = number("LEASEHOLD_ACQUISITIONS").unwrap_or(1_500);
    let set = Set::start(5, "max_ttl=200ms").await;
    let ttl = Duration::from_millis(200);
    let stores = [set.store().await, set.store().await, set.store().await];
    let key = key("k");
    let (mut last, mut got, mut refused, mut dice) = (0, 0, 0, Dice(5));
    let mut number = 0;
    while got < wanted {
        number += 1;
        if number % 300 == 0 {
            let server = usize::try_from(dice.roll(5)).unwrap();
            set.servers[server].restart(*dice.pick(&[Data::Keep, Data::Lose]));
        }
        let store = &stores[usize::try_from(dice.roll(3)).unwrap()];
        let answer = store.claim(&key, &claim(store, number, ttl)).await;
        match answer.map(|answer| answer.reply) {
            Ok(ClaimReply::Standing(standing)) => {
                let token = standing.token.unwrap().get();
                assert!(token > last, "{token} after {last}");
                (last, got) = (token, got + 1);
                // Some are given back, some lapse.
                if dice.roll(200) > 0 {
                    let _ = store.release(&key, &release(number)).await;
                }
            }
            Ok(_) => sleep(Duration::from_millis(1)).await,
            Err(_) => {
                refused += 1;
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    eprintln!("{got} acquisitions in {number} tries, {refused} refused or unanswered");
}

/// How long the threads of this process have run, and how long they have waited for a processor.
fn ran_and_waited() -> (f64, f64) {
    let (mut ran, mut waited) = (0.0, 0.0);
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let stat = task.unwrap().path().join("schedstat");
        // A thread may have ended.
        let stat = std::fs::read_to_string(stat).unwrap_or_default();
        let mut nanos = stat.split(' ').map_while(|field| field.parse::<f64>().ok());
        ran += nanos.next().unwrap_or_default();
        waited += nanos.next().unwrap_or_default();
    }
    (ran, waited)
}

/// Half, where the machine has time for them. Where they wait for processors, each of the twenty
/// asks more often in vain: so much less, as they had less time than they wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_get_at_least_half_of_what_two_get() {
    let set = Set::start(5, "").await;
    let open = async || set.client().await;
    // Whatever else runs slows twenty more than two: two rounds of a few have to show it.
    let mut rounds = Vec::new();
    for round in 0..9 {
        let (ran, waited) = ran_and_waited();
        let two = rate(&open, 2, &format!("two {round}")).await;
        let twenty = rate(&open, 20, &format!("twenty {round}")).await;
        let after = ran_and_waited();
        let (ran, waited) = (after.0 - ran, after.1 - waited);
        let least = 0.5 * ran / (ran + waited);
        eprintln!("{two:.0} leases/s of two, {twenty:.0} of twenty; at least {least:.2}");
        rounds.push((two, twenty, least));
        let enough = |(two, twenty, least): &&(f64, f64, f64)| twenty / two >= *least;
        if rounds.iter().filter(enough).count() == 2 {
            return;
        }
    }
    panic!("leases/s of two and of twenty, and the least share: {rounds:?}");
}

#[tokio::test]
async fn the_least_rights_are_enough() {
    least_rights(LEAST_RIGHTS, "").await;
}

/// The two that the log needs besides. Without `+xadd` it is refused at connect.
#[tokio::test]
async fn an_audit_log_needs_two_rights_more() {
    least_rights(&format!("{LEAST_RIGHTS} +xadd +xrange"), "audit=1000").await;
    let (_servers, options) = servers_of_alice(LEAST_RIGHTS, "audit=1000");
    let error = RedlockStore::connect(options).await.unwrap_err();
    says(format!("{error:?}"), ["Refused", "may not run XADD"]);
}

/// Servers on which `alice` may do this, and others nothing; and how `alice` connects to them.
fn servers_of_alice(rule: &str, parameters: &str) -> (Independent, RedlockOptions) {
    let server = RedisServer::builder().user("alice", &format!("on >secret {rule}"));
    let server = server.user("default", "off");
    let servers = Independent::builder(3).server(server).start();
    let url = servers.url().replace("127.0.0.1", "alice:secret@127.0.0.1");
    let options = RedlockOptions::from_url(&format!("{url}?{parameters}"));
    (servers, options.unwrap())
}

async fn least_rights(rule: &str, parameters: &str) {
    let (_servers, options) = servers_of_alice(rule, parameters);
    for marked in RedlockStore::initialise(options.clone()).await.unwrap() {
        assert_eq!(marked.outcome.unwrap().left(), Duration::ZERO);
    }
    let connect = async || {
        let store = RedlockStore::connect(options.clone()).await.unwrap();
        client_of(Arc::new(store)).await
    };
    let (a, b) = (connect().await, connect().await);
    let lease = a.mutex("k").unwrap().lock().await.unwrap();
    lease.renew().await.unwrap();
    let next = hand_over(lease, waiting(&b, "k")).await;
    assert_eq!(a.list("*").await.unwrap().len(), 1);
    a.break_key("k").await.unwrap();
    drop(next);
    let leader = a.election("e").unwrap().campaign("me").await.unwrap();
    assert!(b.election("e").unwrap().leader().await.unwrap().is_some());
    let _ = leader.resign().await.unwrap();
    if parameters.contains("audit") {
        let mut log = a.audit_log(Some("k"), SystemTime::UNIX_EPOCH).unwrap();
        let page = log.next().await.unwrap();
        let grants = page.iter().filter(|record| is_grant(record)).count();
        assert!(grants >= 2, "{page:?}");
    }
}

fn is_grant(record: &AuditRecord) -> bool {
    matches!(record.entry.event, AuditEvent::Granted { .. })
}

/// Each server has its own log of each claim, and is named; without a quorum of them there is an
/// error.
#[tokio::test]
async fn each_server_has_an_audit_log_of_its_own() {
    let set = Set::start(3, "audit=1000&node_timeout=2s").await;
    // All servers are to hear of all, however busy the machine is.
    let mut patient = set.options();
    patient.node_timeout = Duration::from_secs(30);
    let store = RedlockStore::connect(patient).await.unwrap();
    let token = granted(&store, 1, TTL * 4).await;
    released(&store, 1).await;
    let noted = |server: &RedisServer| server.query::<u64>(&["XLEN", "leasehold:audit"]) >= 2;
    let all_noted = async || set.servers.iter().all(noted);
    until("the release in each log", all_noted).await;
    let reader = set.store().await;
    let read = async || {
        let mut log = reader.audit_log(None, StoreTime(0)).unwrap();
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        loop {
            let page = log.next_page().await?;
            if page.is_empty() {
                return Ok::<_, StoreError>(all);
            }
            for record in page {
                let granted = is_grant(&record);
                let said = (record.entry.hold.unwrap().token, granted);
                all.entry(record.server.unwrap()).or_default().push(said);
            }
        }
    };
    let name = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let history = vec![(token, true), (token, false)];
    let each = set.servers.iter().map(|it| (name(it), history.clone()));
    let all: BTreeMap<_, _> = each.collect();
    assert_eq!(read().await.unwrap(), all);
    // The log of one is lost with its data.
    set.servers[0].restart(Data::Lose);
    let mut fewer = all;
    fewer.remove(&name(&set.servers[0]));
    assert_eq!(read().await.unwrap(), fewer);
    set.servers[0].stop();
    assert_eq!(read().await.unwrap(), fewer);
    set.servers[1].stop();
    fails(read().await, ErrorKind::Unavailable, &["2 are needed"]);
    set.servers[0].cont();
    set.servers[1].cont();
}

/// However much others write: what there was when it was read is read to an end.
#[tokio::test]
async fn logs_that_grow_have_an_end() {
    let set = Set::start(3, "audit=1000").await;
    let store = set.store().await;
    let mut log = store.audit_log(None, StoreTime(0)).unwrap();
    for number in 1..10 {
        let (key, claim) = (key(&number.to_string()), claim(&store, number, TTL));
        steps::answered("a claim", async || store.claim(&key, &claim).await).await;
        if log.next_page().await.unwrap().is_empty() {
            return;
        }
    }
    panic!("no end");
}

/// A record of before is refused, with both versions, and not touched.
#[tokio::test]
async fn a_vote_of_an_earlier_version_is_refused() {
    let set = Set::start(3, "").await;
    let earlier: Vec<u8> = [b"lq\x01".as_slice(), &[0; 60]].concat();
    for server in &set.servers {
        let mut write = ::redis::cmd("SET");
        write.arg("leasehold:lock:k").arg(&earlier);
        write.exec(&mut server.admin().unwrap()).unwrap();
    }
    let store = set.store().await;
    let claimed = store.claim(&key("k"), &claim(&store, 1, TTL)).await;
    let versions = ["format version 1", "format version 2"];
    hints(&fails(claimed, ErrorKind::Refused, &versions), "wait until");
}
