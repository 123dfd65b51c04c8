//! Locks shared with other libraries (`layout=classic`): the data in Redis, refusals, and values
//! of others.
#![cfg(feature = "redis")]

use std::sync::mpsc::{Sender, channel};

use leasehold::fence::{Gate, Guarded};
use leasehold::observe::{Fact, ObservedClaim, Observer, StoreRequest};
use leasehold::store::redis::{ClassicStore, RedisClusterOptions, RedlockStore};
use leasehold::{Retry, Token};
use leasehold_testkit::deployment::Cluster;

use crate::redis_support::*;
use crate::redlock_support::Set;

async fn classic(server: &RedisServer) -> Client {
    at(&format!("{}?layout=classic", server.url())).await
}

async fn at(url: &str) -> Client {
    leasehold::connect(url).await.unwrap()
}

async fn store(url: &str) -> ClassicStore {
    let options = RedisOptions::from_url(url).unwrap();
    ClassicStore::connect(options).await.unwrap()
}

#[tokio::test]
async fn the_key_is_the_name_and_the_value_is_the_id() {
    let server = RedisServer::start();
    let client = classic(&server).await;
    let lease = client.mutex("invoice-42").unwrap().lock().await.unwrap();
    let id: String = server.query(&["GET", "invoice-42"]);
    assert_eq!(id, lease.parts().unwrap().claim().expose());
    assert_eq!(id.len(), 32);
    let left: u64 = server.query(&["PTTL", "invoice-42"]);
    assert!((25_000..=30_000).contains(&left), "{left}");
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 1, "and nothing else");
    let _ = lease.release().await.unwrap();
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0);
    let prefixed = at(&format!("{}?layout=classic&prefix=lock:", server.url())).await;
    let _lease = prefixed.mutex("a").unwrap().lock().await.unwrap();
    assert_eq!(server.query::<u64>(&["EXISTS", "lock:a"]), 1);
}

/// What is asked for claims.
struct Asked(Sender<&'static str>);

impl Observer for Asked {
    fn observe(&self, _: &ObservedClaim, _: Fact) {}

    fn request(&self, request: StoreRequest<'_>) {
        self.0.send(request.verb).unwrap();
    }
}

/// Nothing of them is given back that was not asked for.
#[tokio::test]
async fn several_keys_are_claimed_one_by_one() {
    let server = RedisServer::start();
    let (told, asked) = channel();
    let client = Client::builder().store(format!("{}?layout=classic", server.url()));
    let client = client.observer(Asked(told)).connect().await.unwrap();
    let lease = client.multi(["a", "b"]).unwrap().lock().await.unwrap();
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), ["claim", "claim"]);
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}

#[tokio::test]
async fn there_is_no_token_to_fence_with() {
    let server = RedisServer::start();
    let client = classic(&server).await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert!(lease.token().is_none());
    assert!(!client.capabilities().tokens);
    let (gate, value) = (Gate::new(), Guarded::new(0));
    let fenced = gate.admit(lease.token()).unwrap_err();
    assert!(fenced.to_string().contains("no fencing token"), "{fenced}");
    assert!(value.update(lease.token(), |_| unreachable!()).is_err());
    let register = leasehold::fence::redis::Register::at("state");
    let redis = redis::Client::open(server.url()).unwrap();
    let mut redis = redis.get_multiplexed_async_connection().await.unwrap();
    let refused = register.set(&mut redis, lease.token(), "paid").await;
    assert!(refused.unwrap_err().fenced().is_some());
    assert_eq!(server.query::<u64>(&["EXISTS", "state"]), 0);
    let leader = client.election("e").unwrap().campaign("").await.unwrap();
    assert!(leader.term().is_none());
    assert_eq!(client.break_key("k").await.unwrap().token, Token::NONE);
}

#[tokio::test]
async fn what_a_string_cannot_hold_is_refused_with_a_hint() {
    let server = RedisServer::start();
    let client = classic(&server).await;
    let nested = client.reentrant("k", &leasehold::Owner::new()).unwrap();
    let election = client.election("k").unwrap();
    let mutex = client.mutex("k").unwrap();
    let held = mutex.with_min_hold(Duration::from_secs(1));
    let permits = client.semaphore("k", 2).unwrap();
    let errors = [
        client.rwlock("k").unwrap().read().await.unwrap_err(),
        permits.acquire().await.unwrap_err(),
        permits.resize(3).await.unwrap_err(),
        nested.lock().await.unwrap_err(),
        held.lock().await.unwrap_err(),
        election.campaign("here").await.unwrap_err(),
    ];
    for error in &errors {
        let said = "the classic layout cannot do this";
        is_error(error, ErrorKind::Unsupported, &[said]);
        hints(error, "leave out layout=classic");
    }
    assert_eq!(server.query::<u64>(&["DBSIZE"]), 0, "nothing was left");
    let lease = lock(&client, "k").await;
    let said = "cannot replace claim ids";
    let refused = fails(lease.rotate().await, ErrorKind::Unsupported, &[said]);
    hints(&refused, "layout=classic");
    let renewed = lease.renew().await;
    renewed.expect("a renewal does not carry what was refused");
    assert!(lease.is_valid());
    // Nobody can adopt it, but others can release it, as `leasehold release` does.
    let parts = lock(&client, "o").await.into_parts().await.unwrap();
    let released = client.release_by_parts(&parts).await.unwrap();
    assert_eq!(released, Released::Held);
    let leader = client.election("e").unwrap().campaign("").await.unwrap();
    fails(leader.proclaim("here").await, ErrorKind::Unsupported, &[]);
    assert!(leader.is_leader());
}

#[tokio::test]
async fn others_values_are_shown_safely() {
    let server = RedisServer::start();
    let client = classic(&server).await;
    let uuid = "5d6e3e2cf4a611ee8b2d0242ac120002";
    let binary = b"\x00\xff\n\x1b[31mred secret";
    let others: [(&str, &[u8], bool, &str); 5] = [
        ("lock uuid", uuid.as_bytes(), true, "5d6e3e"),
        ("lock empty", b"", true, ""),
        ("lock short", b"x", true, ""),
        ("lock forever", uuid.as_bytes(), false, "5d6e3e"),
        ("lock binary", binary, true, "00ff0a"),
    ];
    for (name, value, lapses, shown) in others {
        let mut set = redis::cmd("SET");
        set.arg(name).arg(value);
        if lapses {
            set.arg("PX").arg(60_000);
        }
        set.exec(&mut server.admin().unwrap()).unwrap();
        let seen = client.inspect(name).await.unwrap();
        assert_eq!(seen.holders.len(), 1, "{name}");
        let holder = &seen.holders[0];
        assert_eq!(holder.id_hint, shown, "{name}");
        let unknown = holder.owner.is_unknown() && holder.token.is_none();
        assert!(unknown, "{name}");
        assert!(!format!("{seen:?}").contains(uuid), "{name}");
        assert!(try_lock(&client, name).await.is_none(), "{name} is taken");
    }
    let listed = client.list("lock *").await.unwrap();
    let listed: Vec<_> = listed.iter().map(|seen| seen.key.as_str()).collect();
    let all = ["lock binary", "lock empty", "lock short", "lock uuid"];
    assert_eq!(listed, all, "what lapses");
    // A pattern for all that is in the database would read what others keep there.
    let refused = fails(client.list("*").await, ErrorKind::Invalid, &[]);
    hints(&refused, "start the pattern");
}

/// It may be whatever other programs keep, and a page of a listing looks at many.
#[tokio::test]
async fn what_is_longer_than_an_id_is_not_sent_as_a_whole() {
    let server = RedisServer::start();
    let client = classic(&server).await;
    let (name, long) = ("lock long", "x".repeat(1_000_000));
    server.command(&["SET", name, &long, "PX", "60000"]);
    let sent = || {
        let stats: String = server.query(&["INFO", "stats"]);
        let mut lines = stats.lines();
        let sent = lines.find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        sent.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = sent();
    assert_eq!(client.list("lock *").await.unwrap().len(), 1);
    assert!(try_lock(&client, name).await.is_none(), "it is taken");
    let sent = sent() - before;
    assert!(sent < 100_000, "{sent} bytes");
}

#[tokio::test]
async fn what_is_no_lock_is_left_as_it_is() {
    let server = RedisServer::start();
    server.command(&["HSET", "hash", "f", "v"]);
    server.command(&["RPUSH", "list", "x"]);
    let client = classic(&server).await;
    for name in ["hash", "list"] {
        let errors = [
            client.mutex(name).unwrap().try_lock().await.unwrap_err(),
            client.inspect(name).await.unwrap_err(),
            client.break_key(name).await.unwrap_err(),
        ];
        for error in errors {
            is_error(&error, ErrorKind::Corrupt, &[&format!("contains a {name}")]);
            hints(&error, "layout=classic");
        }
    }
    assert_eq!(server.query::<u64>(&["HLEN", "hash"]), 1);
    assert_eq!(server.query::<u64>(&["LLEN", "list"]), 1);
}

#[tokio::test]
async fn the_layouts_refuse_each_other() {
    let server = RedisServer::start();
    let native = at(&server.url()).await;
    let kept = lock(&native, "native").await;
    let key = "leasehold:lock:native";
    let classic = classic(&server).await;
    for error in [
        classic.mutex(key).unwrap().try_lock().await.unwrap_err(),
        classic.break_key(key).await.unwrap_err(),
    ] {
        is_error(&error, ErrorKind::Corrupt, &["native layout"]);
        hints(&error, "leave out layout=classic");
    }
    // With a queue it is a hash.
    let other = at(&server.url()).await;
    let waiting = waiting(&other, "native");
    in_line(&native, "native", 1).await;
    let refused = classic.mutex(key).unwrap().try_lock().await;
    let refused = fails(refused, ErrorKind::Corrupt, &[]);
    hints(&refused, "leave out layout=classic");
    let _ = kept.release().await.unwrap();
    drop(granted(waiting).await);

    let lease = lock(&classic, "leasehold:lock:classic").await;
    let refused = native.mutex("classic").unwrap().try_lock().await;
    hints(&fails(refused, ErrorKind::Corrupt, &[]), "layout=classic");
    give_back(lease).await;
}

#[tokio::test]
async fn a_claim_is_asked_for_once_or_finds_itself() {
    let server = RedisServer::start();
    let url = format!("{}?layout=classic", server.url());
    let (a, b) = (store(&url).await, store(&url).await);
    let (k, id) = (key("k"), id(7));
    let claim = Claim::new(id.clone(), Mode::EXCLUSIVE, Duration::from_secs(30));
    assert!(a.claim(&k, &claim).await.unwrap().holds());
    server.command(&["PEXPIRE", "k", "1000"]);
    assert!(a.claim(&k, &claim).await.unwrap().holds());
    let left = || server.query::<i64>(&["PTTL", "k"]);
    assert!(left() > 25_000, "raised");
    assert_eq!(b.claim(&k, &claim).await.unwrap().reply, ClaimReply::Taken);
    let renew = Renew::new(id.clone(), Duration::from_secs(1));
    assert!(a.renew(&k, &renew).await.unwrap().holds());
    assert!(left() > 25_000, "never lowered");
    // Somebody takes the end away: it would outlive its holder.
    server.command(&["PERSIST", "k"]);
    assert!(a.renew(&k, &renew).await.unwrap().holds());
    assert!(left() > 0);
    let noted = but(renew, |it| it.note = Note::new("here").ok());
    fails(a.renew(&k, &noted).await, ErrorKind::Unsupported, &[]);
    let released = a.release(&k, &settled(id)).await.unwrap().reply;
    assert_eq!(released, ReleaseReply::Released { held: true });
    assert_eq!(a.claim(&k, &claim).await.unwrap().reply, ClaimReply::Gone);
}

#[tokio::test]
async fn a_dead_holder_is_passed_when_its_time_is_up() {
    let server = RedisServer::start();
    let client = classic(&server).await;
    server.command(&["SET", "k", "of somebody who died", "PX", "700"]);
    let begun = Instant::now();
    let patient = Retry::Fixed(Duration::from_secs(15));
    let lock = client.mutex("k").unwrap().retrying(patient);
    let lease = lock.lock().await.unwrap();
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(600), "{took:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    drop(lease);
}

#[tokio::test]
async fn a_user_without_rights_to_a_key_is_told_which_rule_is_enough() {
    let rules = "on >secret ~app:* -@all +eval +evalsha +type +get +set +pttl +pexpire \
        +del +scan +info +ping";
    for program in Program::ALL {
        let server = RedisServer::builder().program(program);
        let server = server.user("least", rules).start();
        let url = server.url_as("least", "secret") + "?layout=classic";
        let client = at(&url).await;
        let told = async |key: &str| {
            let refused = client.mutex(key).unwrap().try_lock().await;
            let refused = fails(refused, ErrorKind::Refused, &["may not do this"]);
            hints(&refused, "+pttl");
            hints(&refused, "+eval");
        };
        told("elsewhere").await;
        // Here the call is allowed, and a command of its script is not.
        server.command(&["SET", "app:taken", "another", "PX", "60000"]);
        server.command(&["ACL", "SETUSER", "least", "-pttl"]);
        told("app:taken").await;
        server.command(&["ACL", "SETUSER", "least", "-scan"]);
        let listed = client.list("app:*").await;
        let refused = fails(listed, ErrorKind::Refused, &["may not do this"]);
        hints(&refused, "+pttl");
        server.command(&["ACL", "SETUSER", "least", "-evalsha"]);
        let refused = leasehold::connect(&url).await;
        let refused = fails(refused, ErrorKind::Refused, &["forbids scripts"]);
        hints(&refused, "+pttl");
    }
}

#[tokio::test]
async fn on_a_cluster_too() {
    let cluster = Cluster::start();
    let url = format!("{}?layout=classic&prefix=app:", cluster.url());
    let options = RedisClusterOptions::from_url(&url).unwrap();
    let open = async || {
        let store = ClassicStore::connect_cluster(options.clone()).await;
        client_of(Arc::new(store.unwrap())).await
    };
    let (a, b) = (open().await, open().await);
    let mut leases = Vec::new();
    for n in 0..12 {
        let name = format!("k{n}");
        leases.push(lock(&a, &name).await);
        assert!(try_lock(&b, &name).await.is_none());
    }
    assert_eq!(b.list("*").await.unwrap().len(), 12);
    assert_eq!(b.inspect("k0").await.unwrap().holders.len(), 1);
    let lease = leases.remove(0);
    lease.renew().await.unwrap();
    assert_eq!(b.break_key("k0").await.unwrap().holders, 1);
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyGone);
    for lease in leases {
        give_back(lease).await;
    }
    assert!(b.list("*").await.unwrap().is_empty());
}

// ---- by a majority ----

fn set() -> Set {
    Set::of(vec![Program::Default; 3], "layout=classic")
}

#[tokio::test]
async fn redlock_as_published() {
    let set = set();
    let client = set.client().await;
    let lock = client.mutex("k").unwrap();
    // Another library holds by a majority.
    for server in &set.servers[..2] {
        server.command(&["SET", "k", "theirs", "NX", "PX", "60000"]);
    }
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(client.inspect("k").await.unwrap().holders[0].id_hint, "the");
    // What was had of the third is given back.
    let is_free = |server: usize| set.servers[server].query::<u64>(&["EXISTS", "k"]) == 0;
    until("it is given back", async || is_free(2)).await;
    // It keeps one vote only: that is no majority.
    set.servers[0].command(&["DEL", "k"]);
    assert!(client.inspect("k").await.unwrap().holders.is_empty());
    let lease = lock.lock().await.unwrap();
    assert!(lease.token().is_none());
    let id = lease.parts().unwrap().claim().expose().to_owned();
    let value = |server: usize| set.servers[server].query::<String>(&["GET", "k"]);
    assert_eq!([value(0), value(2)], [&*id; 2]);
    lease.renew().await.unwrap();
    // A vote that was forgotten is not given again: it may have been broken.
    set.servers[2].command(&["FLUSHALL"]);
    fails(lease.renew().await, ErrorKind::Lost, &[]);
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyGone);
    until("it is given back", async || is_free(0)).await;
    assert!(is_free(2));
    assert_eq!(value(1), "theirs", "untouched");
}

#[tokio::test]
async fn a_minority_of_a_set_may_be_down_and_no_mark_is_kept() {
    let set = set();
    let client = set.client().await;
    set.servers[1].kill();
    let lease = lock(&client, "k").await;
    let keys: Vec<String> = set.servers[0].query(&["KEYS", "*"]);
    assert_eq!(keys, ["k"]);
    let _ = lease.release().await.unwrap();
    set.servers[2].kill();
    let down = client.mutex("k").unwrap().try_lock().await;
    fails(down, ErrorKind::Unavailable, &[]);
    let refused = RedlockStore::initialise(set.options()).await;
    fails(refused, ErrorKind::Unsupported, &[]);
}

// ---- throughput ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_get_at_least_half_of_what_two_get() {
    let server = RedisServer::start();
    let mut ratios = Vec::new();
    let open = async || classic(&server).await;
    for round in 0..3 {
        let two = rate(&open, 2, &format!("two {round}")).await;
        let twenty = rate(&open, 20, &format!("twenty {round}")).await;
        ratios.push((twenty / two, two, twenty));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    eprintln!("(ratio, two, twenty) {ratios:?}");
    assert!(ratios[1].0 >= 0.5, "{ratios:?}");
}
