//! Special states of a server: out of memory, foreign data, data loss, missing permissions.
#![cfg(feature = "redis")]

use std::path::Path;

use crate::redis_support::*;
use leasehold::core::{
    ClaimReply, ClientInfo, Command, Key, Note, ReleaseReply, Renew, Reply, Rotate, Standing, Token,
};
use leasehold::store::{AllAnswer, Answer};
use leasehold::{Access, StoreError, TlsOptions};

fn standing<R: Copy + Into<Reply>>(answer: &Answer<R>) -> Standing {
    match answer.reply.into() {
        Reply::Standing(standing) => standing,
        other => panic!("not in the queue: {other:?}"),
    }
}

async fn fresh() -> (RedisServer, RedisStore) {
    let server = RedisServer::start();
    let store = store(&server).await;
    (server, store)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, named: &str) -> String {
    format!("{:?}", fails(answer, ErrorKind::Refused, &[named]))
}

/// It cannot do it now, and has carried out nothing.
#[track_caller]
fn not_now<T: std::fmt::Debug>(answer: Result<T, StoreError>, named: &str) {
    let error = fails(answer, ErrorKind::Unavailable, &[named]);
    assert!(error.retry_after().is_some(), "{error:?}");
}

/// In records, listings and pushes.
#[tokio::test]
async fn a_key_has_any_name() {
    let server = RedisServer::start();
    let (alice, bob) = (store(&server).await, store(&server).await);
    let (_ear, mut pushes) = listen(&bob).await;
    for name in ["a b lock: {x} é 🦀 *?[", &"x".repeat(512)] {
        let key = key(name);
        assert!(alice.claim(&key, &claim(&alice, 1)).await.unwrap().holds());
        let waits = standing(&bob.claim(&key, &claim(&bob, 2)).await.unwrap());
        let listed = alice.list("*").await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].0, key);
        alice.release(&key, &release(1)).await.unwrap();
        let told = next(&mut pushes).await;
        let is_its_grant = matches!(&told, Push::Granted { key: of, arrival, .. }
            if *of == key && *arrival == waits.arrival);
        assert!(is_its_grant, "{told:?}");
        bob.release(&key, &release(2)).await.unwrap();
        assert!(alice.list("*").await.unwrap().is_empty());
    }
}

/// Also where the prefix looks like a pattern.
#[tokio::test]
async fn lists_under_its_own_prefix() {
    let server = RedisServer::start();
    let odd = RedisStore::connect(options(&server).prefix("app[1]*:"));
    let (odd, plain) = (odd.await.unwrap(), store(&server).await);
    for (store, name) in [(&odd, "a/1"), (&odd, "b/1"), (&plain, "plain")] {
        store.claim(&key(name), &claim(store, 1)).await.unwrap();
    }
    for (store, pattern, wanted) in [
        (&odd, "*", &["a/1", "b/1"][..]),
        (&odd, "a/*", &["a/1"]),
        (&plain, "*", &["plain"]),
    ] {
        let listed = store.list(pattern).await.unwrap();
        let names: Vec<_> = listed.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, wanted, "{pattern}");
    }
}

/// Keys that an earlier version has left: it kept the last token of each.
fn make_idle_keys(server: &RedisServer, prefix: &str, count: u32) {
    let script = "local record = struct.pack('<BBBddddddBI2', 108, 104, 1, 9, 0, 9, 9, 9, 9, 0, 0) \
                  for i = 1, ARGV[2] do redis.call('SET', ARGV[1] .. i, record) end";
    let prefix = format!("leasehold:lock:{prefix}");
    server.command(&["EVAL", script, "0", &prefix, &count.to_string()]);
}

/// A listing of very many keys takes longer than an answer may take, and each page less.
#[tokio::test]
async fn a_listing_takes_as_long_as_it_takes() {
    let server = RedisServer::start();
    let limit = Duration::from_millis(500);
    let settings = Settings::default().with_operation_timeout(limit);
    let client = client_with(&server.url(), settings).await;
    let _held = client.mutex("held").unwrap().lock().await.unwrap();
    for round in 1.. {
        make_idle_keys(&server, &format!("idle/{round}/"), 20_000);
        let begun = Instant::now();
        let mut listing = client.listing("*");
        let (mut live, mut parts) = (Vec::new(), 0);
        while let Some(part) = listing.next().await.unwrap() {
            live.extend(part.keys.into_iter().map(|seen| seen.key.to_string()));
            parts += 1;
        }
        assert_eq!(live, ["held"]);
        assert!(parts > 50, "{parts} parts");
        if begun.elapsed() > limit {
            break;
        }
    }
    assert_eq!(client.list("*").await.unwrap().len(), 1);
}

/// What is passed over has a name and a reason, and hides nothing else.
#[tokio::test]
async fn a_listing_names_what_it_passes_over() {
    let (server, store) = fresh().await;
    store.claim(&key("held"), &claim(&store, 1)).await.unwrap();
    server.command(&["RPUSH", "leasehold:lock:list", "x"]);
    server.command(&["SET", "leasehold:lock:string", "not ours"]);
    server.command(&["HSET", "leasehold:lock:hash", "f", "v"]);
    server.command(&["SET", "leasehold:lock:tab\there", "x"]);
    let damaged = "return redis.call('SET', KEYS[1], 'lh\\1' .. string.rep('\\255', 60))";
    server.command(&["EVAL", damaged, "1", "leasehold:lock:damaged"]);
    let later = "return redis.call('SET', KEYS[1], 'lh\\9' .. string.rep('\\0', 60))";
    server.command(&["EVAL", later, "1", "leasehold:lock:later"]);
    let bytes = "return redis.call('SET', KEYS[1] .. '\\255', 'x')";
    server.command(&["EVAL", bytes, "1", "leasehold:lock:bytes"]);

    let mut listing = store.listing("*");
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    while let Some(page) = listing.next_page().await.unwrap() {
        found.extend(page.found.into_iter().map(|(key, _)| key.to_string()));
        skipped.extend(page.skipped);
    }
    assert_eq!(found, ["held"]);
    skipped.sort_by(|(a, _), (b, _)| a.cmp(b));
    for ((name, error), (wanted, why)) in skipped.iter().zip([
        ("bytes\u{fffd}", "not UTF-8"),
        ("damaged", "is damaged"),
        ("hash", "a hash that is not leasehold's"),
        ("later", "version 9"),
        ("list", "a list that is not leasehold's"),
        ("string", "a string that is not leasehold's"),
        ("tab\there", "control character"),
    ]) {
        assert_eq!(name, wanted, "{skipped:?}");
        says(error, [why]);
    }
    assert_eq!(skipped.len(), 7, "{skipped:?}");
}

#[tokio::test]
async fn several_keys_are_not_claimed_where_one_is_foreign() {
    let (server, store) = fresh().await;
    server.command(&["RPUSH", "leasehold:lock:f", "x"]);
    let parts = ["d", "f"].map(|name| (key(name), trying(&store, 1)));
    fails(store.claim_all(&parts).await, ErrorKind::Corrupt, &[]);
    assert_eq!(server.query::<u64>(&["EXISTS", "leasehold:lock:d"]), 0);
    let none = store.claim_all(&[]).await.unwrap();
    assert_eq!(none, Some(AllAnswer::All(Vec::new())));
}

/// A watch that ends at a key that nobody uses leaves nothing.
#[tokio::test]
async fn a_watched_key_is_forgotten_with_its_watch() {
    let (server, store) = fresh().await;
    let (_ear, _pushes) = listen(&store).await;
    let key = key("k");
    let kind = || server.query::<String>(&["TYPE", "leasehold:lock:k"]);
    store.watch(&key, Duration::from_secs(60)).await.unwrap();
    assert_eq!(store.list("*").await.unwrap(), [], "nobody holds or waits");
    store.claim(&key, &claim(&store, 1)).await.unwrap();
    store.release(&key, &settled(id(1))).await.unwrap();
    assert_eq!(kind(), "hash");
    store.watch(&key, Duration::ZERO).await.unwrap();
    assert_eq!(kind(), "none", "nothing is left");
}

#[tokio::test]
async fn a_full_server_takes_no_claims_but_lets_go() {
    let (server, store) = fresh().await;
    let (_ear, mut pushes) = listen(&store).await;
    let (lone, queued, idle) = (key("lone"), key("queued"), key("idle"));
    store.claim(&lone, &claim(&store, 1)).await.unwrap();
    queue_up(&store, &queued, [1, 2, 3]).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);

    for key in [&idle, &lone, &queued] {
        not_now(store.claim(key, &claim(&store, 9)).await, "out of memory");
    }
    for key in [&lone, &queued] {
        // Asking again for what is there is no new claim.
        standing(&store.claim(key, &claim(&store, 1)).await.unwrap());
        standing(&store.renew(key, &renew(1)).await.unwrap());
    }
    standing(&store.renew(&queued, &renew(3)).await.unwrap());
    // Several at once: not one, wherever the part stands that takes memory.
    for keys in [[&idle, &lone], [&lone, &idle]] {
        let parts = keys.map(|key| {
            let number = if *key == lone { 1 } else { 9 };
            (key.clone(), trying(&store, number))
        });
        let error = store.claim_all(&parts).await.unwrap_err();
        says(error, ["out of memory"]);
    }
    assert_eq!(store.inspect(&idle).await.unwrap().holders, []);
    let change = |number, to| Renew {
        note: Some(Note::new("x".repeat(Note::MAX_BYTES)).unwrap()),
        rotate: Some(Rotate {
            to: id(to),
            version: 0,
            adopt: None,
        }),
        ..renew(number)
    };
    standing(&store.renew(&lone, &change(1, 11)).await.unwrap());
    standing(&store.renew(&queued, &change(1, 11)).await.unwrap());
    let released =
        async |key: &Key, number| store.release(key, &release(number)).await.unwrap().reply;
    assert_eq!(released(&idle, 7).await, ReleaseReply::Absent);
    assert_eq!(store.inspect(&queued).await.unwrap().waiters.len(), 2);
    let freed = ReleaseReply::Released { held: true };
    assert_eq!(released(&lone, 11).await, freed);
    for number in [11, 2, 3] {
        assert_eq!(released(&queued, number).await, freed);
        if number != 3 {
            assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));
        }
        if number == 11 {
            assert!(matches!(next(&mut pushes).await, Push::Next { .. }));
        }
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let again = store.claim(&lone, &claim(&store, 1)).await.unwrap();
    assert_eq!(again.reply, ClaimReply::Gone);
    for name in ["lone", "queued", "idle"] {
        let left: i64 = server.query(&["PTTL", &format!("leasehold:lock:{name}")]);
        assert!(left > 55_000, "{name} was released: {left} ms");
    }
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let (server, store) = fresh().await;
    let redis_key = "leasehold:lock:taken";
    let (key, by) = (key("taken"), ClientInfo::unknown());
    let dump = || server.query::<Vec<u8>>(&["DUMP", redis_key]);
    let long = "and long enough to be taken for a record of ours";
    let (alike, unlike) = (format!("lh, {long}"), format!("xx, {long}, too"));
    for (kind, verb, arguments) in [
        ("string", "SET", "mine"),
        ("string", "SET", &*alike),
        ("string", "SET", &*unlike),
        ("list", "RPUSH", "x"),
        ("set", "SADD", "x"),
        ("zset", "ZADD", "1|x"),
        ("hash", "HSET", "field|x"),
        ("hash", "HSET", " head|x"),
        ("stream", "XADD", "1-1|field|x"),
    ] {
        server.command(&["DEL", redis_key]);
        let make = [verb, redis_key].into_iter().chain(arguments.split('|'));
        server.command(&make.collect::<Vec<_>>());
        let before = dump();
        for answer in [
            store.claim(&key, &claim(&store, 1)).await.map(drop),
            store.renew(&key, &renew(1)).await.map(drop),
            store.release(&key, &release(1)).await.map(drop),
            store.break_key(&key, &by).await.map(drop),
            store.inspect(&key).await.map(drop),
        ] {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{kind}: {error:?}");
            says(error, [format!("a {kind} ")]);
        }
        assert!(store.list("*").await.unwrap().is_empty());
        assert_eq!(dump(), before, "{kind}");
    }
}

#[tokio::test]
async fn a_newer_format_asks_for_an_upgrade() {
    let (server, store) = fresh().await;
    let (string, hash) = ("leasehold:lock:string", "leasehold:lock:hash");
    let newer = format!("lh\u{3}{}", "x".repeat(60));
    server.command(&["SET", string, &newer]);
    server.command(&["HSET", hash, " head", &newer]);
    for name in ["string", "hash"] {
        let key = key(name);
        for answer in [
            store.claim(&key, &claim(&store, 1)).await.map(drop),
            store.release(&key, &release(1)).await.map(drop),
            store.inspect(&key).await.map(drop),
        ] {
            assert!(refused(answer, "version 3").contains("upgrade"));
        }
    }
    assert_eq!(server.query::<String>(&["GET", string]), newer);
}

/// What an earlier version has left at a key: its last token, and perhaps who holds it.
fn set_earlier(server: &RedisServer, name: &str, last_token: u64, holder: Option<u128>) {
    let key = format!("leasehold:lock:{name}");
    let script = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
        local claim = '' \
        if ARGV[2] ~= '' then \
          claim = struct.pack('<ddBc0BI4I4BI4Bc0B', now + 30000000, now, #ARGV[2], ARGV[2], 0, 0, 1048576, \
            0, 7, 4, 'host', 0) \
        end \
        local record = struct.pack('<BBBddddddBI2', 108, 104, 1, now, 0, ARGV[1], ARGV[1], now, \
          now + 90000000, 0, #claim) .. claim \
        redis.call('SET', KEYS[1], record, 'PX', 90000)";
    let holder = holder.map_or(String::new(), |number| id(number).expose().to_owned());
    server.command(&["EVAL", script, "1", &key, &last_token.to_string(), &holder]);
}

/// Its clients and ours exclude each other while both are in use.
#[tokio::test]
async fn what_an_earlier_version_has_left_is_taken_over() {
    let (server, store) = fresh().await;
    let ahead = 8_000_000_000_000_000;
    let (idle, held) = (key("idle"), key("held"));
    set_earlier(&server, "idle", ahead, None);
    set_earlier(&server, "held", ahead + 50, Some(7));
    let token = |answer: Answer<ClaimReply>| standing(&answer).token;
    let above = Some(Token::from(ahead + 1));
    let first = token(store.claim(&idle, &claim(&store, 1)).await.unwrap());
    assert_eq!(first, above, "above those of the key");
    let waits = token(store.claim(&held, &claim(&store, 1)).await.unwrap());
    assert_eq!(waits, None, "it waits");
    let look = store.inspect(&held).await.unwrap();
    assert_eq!(look.holders[0].token, Token::from(ahead + 50));
    // Its holder goes on, and leaves.
    let renewed = store.renew(&held, &renew(7)).await.unwrap();
    assert_eq!(standing(&renewed).token, Some(Token::from(ahead + 50)));
    let released = store.release(&held, &release(7)).await.unwrap();
    assert_eq!(released.reply, ReleaseReply::Released { held: true });
    let ours = token(store.claim(&held, &claim(&store, 1)).await.unwrap());
    assert_eq!(ours, Some(Token::from(ahead + 51)));
}

/// It does not know the short form of ours, and would lose its lease if its record became one.
#[tokio::test]
async fn a_holder_of_an_earlier_version_can_read_its_record_after_ours_have_asked() {
    let (server, store) = fresh().await;
    let held = key("held");
    let redis_key = "leasehold:lock:held";
    set_earlier(&server, "held", 8_000_000_000_000_000, Some(7));
    let busy = store.claim(&held, &trying(&store, 1)).await.unwrap().reply;
    assert!(matches!(busy, ClaimReply::Busy { .. }), "{busy:?}");
    assert_eq!(server.query::<String>(&["TYPE", redis_key]), "hash");
    let head: Vec<u8> = server.query(&["HGET", redis_key, " head"]);
    assert_eq!(head[..3], *b"lh\x01");
    store.renew(&held, &renew(7)).await.unwrap();
    assert_eq!(server.query::<String>(&["TYPE", redis_key]), "hash");
}

/// And tokens go on rising over all keys, also those of which nothing is left.
#[tokio::test]
async fn an_idle_key_leaves_nothing() {
    let (server, store) = fresh().await;
    let mut last = Token::NONE;
    for name in ["a", "b", "a"] {
        let key = key(name);
        let token = standing(&store.claim(&key, &claim(&store, 1)).await.unwrap()).token;
        assert!(token.unwrap() > last);
        last = token.unwrap();
        store.release(&key, &settled(id(1))).await.unwrap();
        let left: Vec<String> = server.query(&["KEYS", "*"]);
        assert_eq!(left, ["leasehold:last"]);
    }
    assert_eq!(store.inspect(&key("c")).await.unwrap().last_token, last);
}

/// The key itself ends with the lease, or soon after the queue.
#[tokio::test]
async fn what_the_dead_leave_expires() {
    let (server, store) = fresh().await;
    let (alone, queued) = (key("alone"), key("queued"));
    let lives = |name: &str| -> u64 {
        let left: i64 = server.query(&["PTTL", &format!("leasehold:lock:{name}")]);
        u64::try_from(left).expect("it expires")
    };
    store.claim(&alone, &claim(&store, 1)).await.unwrap();
    let ttl = u64::try_from(claim(&store, 1).lease_ttl.as_millis()).unwrap();
    assert!(lives("alone") <= ttl);
    let longer = Renew::new(id(1), Duration::from_secs(3600));
    store.renew(&alone, &longer).await.unwrap();
    assert!((3_500_000..=3_600_000).contains(&lives("alone")));
    queue_up(&store, &queued, [1, 2]).await;
    store.renew(&queued, &longer).await.unwrap();
    assert!((3_550_000..=3_664_000).contains(&lives("queued")));
}

#[tokio::test]
async fn a_damaged_record_is_named() {
    let (server, store) = fresh().await;
    let key = key("damaged");
    queue_up(&store, &key, [1, 2, 3]).await;
    server.command(&["HDEL", "leasehold:lock:damaged", id(2).expose()]);
    let released = store.release(&key, &release(1)).await;
    fails(released, ErrorKind::Corrupt, &[]);
    fails(store.inspect(&key).await, ErrorKind::Corrupt, &[]);
}

/// Steps that find others under way are sent as one call, which has one answer for each, also where
/// a record is not ours.
#[tokio::test]
async fn each_step_of_a_call_gets_its_own_answer() {
    let (server, store) = fresh().await;
    server.command(&["RPUSH", "leasehold:lock:7", "x"]);
    let keys: Vec<_> = (0..100).map(|number| key(&number.to_string())).collect();
    // The server knows the script from then on.
    let first = claim(&store, 100);
    store.claim(&key("known"), &first).await.unwrap();
    let before = server.stats();
    let claims: Vec<_> = (0..100).map(|number| claim(&store, number)).collect();
    let claimed = keys.iter().zip(&claims);
    let claimed = claimed.map(|(key, claim)| store.claim(key, claim));
    let claimed = futures_util::future::join_all(claimed).await;
    let calls = server.stats().since(&before).command("evalsha").calls;
    assert!(calls < 20, "{calls} calls");
    for (key, answer) in keys.iter().zip(claimed) {
        if key.as_str() == "7" {
            fails(answer, ErrorKind::Corrupt, &[]);
            continue;
        }
        let held = store.inspect(key).await.unwrap().holders[0].token;
        assert_eq!(standing(&answer.unwrap()).token, Some(held), "of {key}");
    }
}

/// A request is moved when it is made, so what is seldom needed lies apart.
#[tokio::test]
async fn a_step_is_small() {
    let (_server, store) = fresh().await;
    let step = (&key("k"), &Command::Claim(claim(&store, 1)));
    let bytes = size_of_val(&*LockStore::step(&store, step.0, step.1));
    assert!(bytes <= 2_400, "{bytes} bytes");
}

#[tokio::test]
async fn the_least_rights_are_enough() {
    let server = RedisServer::builder()
        .user("alice", &format!("on >secret {LEAST_RIGHTS}"))
        .user("carol", "on >secret +@all")
        .user("default", "off")
        .start();
    let log_in = async |user: &str, password: &str| connect(&server.url_as(user, password)).await;
    let alice = log_in("alice", "secret").await.unwrap();
    let (_ear, mut pushes) = listen(&alice).await;
    let (key, list, by) = (key("k"), key("list"), ClientInfo::unknown());
    queue_up(&alice, &key, [1, 2, 3]).await;
    standing(&alice.renew(&key, &renew(2)).await.unwrap());
    alice.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));
    assert_eq!(alice.list("*").await.unwrap().len(), 1);
    alice.watch(&key, Duration::from_secs(9)).await.unwrap();
    alice.resize(&key, 1, 2).await.unwrap();
    let several = [(key.clone(), trying(&alice, 5))];
    alice.claim_all(&several).await.unwrap();
    alice.break_key(&key, &by).await.unwrap();
    alice.break_key(&key, &by).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    alice.claim(&key, &claim(&alice, 4)).await.unwrap_err();
    alice.release(&key, &release(3)).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    server.command(&["RPUSH", "leasehold:lock:list", "x"]);
    fails(alice.inspect(&list).await, ErrorKind::Corrupt, &[]);

    let log: Vec<redis::Value> = server.query(&["ACL", "LOG"]);
    assert_eq!(log, [], "nothing is tried that is forbidden");

    let carol = refused(log_in("carol", "secret").await, "may not run");
    assert!(carol.contains(LEAST_RIGHTS), "{carol}");

    for (user, password) in [("alice", "wr0ng"), ("nobody", "wr0ng")] {
        let message = refused(log_in(user, password).await, "user name or password");
        assert!(!message.contains("wr0ng"), "{message}");
    }
    refused(connect(&server.url()).await, "NOAUTH");
}

#[tokio::test]
async fn other_ways_in() {
    let server = RedisServer::builder().password("hunter2").start();
    let socket = RedisOptions::from_url(&server.unix_url()).unwrap();
    let socket = RedisStore::connect(socket.db(3)).await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let brought = RedisOptions::try_from(&client).unwrap();
    let brought = RedisStore::connect(brought).await.unwrap();
    for store in [&socket, &brought] {
        assert!(!format!("{store:?} {}", store.redacted_url()).contains("hunter2"));
        let _inbox = listen(store).await;
        let answer = store.claim(&key("k"), &claim(store, 1)).await.unwrap();
        assert!(standing(&answer).token.is_some());
        assert_eq!(answer.epoch, 1);
    }
}

#[cfg(feature = "tls-ring")]
#[tokio::test]
async fn encrypted() {
    use leasehold_testkit::server::ClientCertificate;
    let server = RedisServer::builder().tls(ClientCertificate::Required);
    let server = server.start();
    let certificates = server.certificates();
    let strange = connect(&server.url()).await;
    fails(strange, ErrorKind::Refused, &["not trusted"]);
    let with = async |tls: &TlsOptions| {
        let access = Access::default().tls(tls.clone());
        RedisStore::connect(options(&server).with_access(&access)).await
    };
    let trusting = TlsOptions::trusting(&*certificates.authority.path);
    let nameless = with(&trusting).await;
    fails(nameless, ErrorKind::Refused, &["TLS handshake"]);
    let known = trusting.with_certificate(
        &*certificates.client_certificate.path,
        &*certificates.client_key.path,
    );
    let store = with(&known).await.unwrap();
    let (_ear, mut pushes) = listen(&store).await;
    let key = key("k");
    queue_up(&store, &key, [1, 2]).await;
    store.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));

    let missing = with(&TlsOptions::trusting(Path::new("/nowhere/ca.pem"))).await;
    fails(missing, ErrorKind::Invalid, &["/nowhere/ca.pem"]);
}

/// What the doctor's trial leaves if nobody comes to remove it is gone within seconds.
#[tokio::test]
async fn an_examination_that_is_given_up_leaves_nothing_for_long() {
    let server = RedisServer::start();
    let (url, access) = (server.url(), Default::default());
    let mut examined = Box::pin(leasehold::doctor::examine(&url, &access));
    let key = loop {
        tokio::select! {
            biased;
            report = &mut examined => panic!("its lock was not seen: {report:?}"),
            () = yield_now() => {}
        }
        let keys: Vec<String> = server.query(&["KEYS", "*leasehold-doctor/*"]);
        if let Some(key) = keys.into_iter().next() {
            break key;
        }
    };
    drop(examined);
    let left: i64 = server.query(&["PTTL", &key]);
    assert!((-2..15_000).contains(&left), "{left} ms");
}

#[tokio::test]
async fn a_loss_has_what_the_server_said_for_its_cause() {
    let server = RedisServer::start();
    let settings = Settings::default().with_ttl(Duration::from_secs(1));
    let client = client_with(&server.url(), settings).await;
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert!(lease.last_error().is_none());
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let lost = lease.run(std::future::pending::<()>()).await;
    fails(lost, ErrorKind::Lost, &["too few replicas"]);
    let said = lease.last_error().unwrap();
    assert_eq!(said.kind(), ErrorKind::Unavailable, "{said}");
    let why = "the server has too few replicas and refuses writes";
    assert_eq!(said.reason(), why);
}

/// The client waits for a third of the TTL, and the store must say before that what it knows.
#[tokio::test]
async fn a_loss_has_what_ended_the_connection_for_its_cause() {
    let server = RedisServer::start();
    let settings = Settings::default().with_ttl(Duration::from_secs(1) * overload());
    for layout in ["", "?layout=classic"] {
        let client = client_with(&(server.url() + layout), settings.clone()).await;
        let lease = client.mutex("k").unwrap().lock().await.unwrap();
        server.kill();
        let lost = lease.run(std::future::pending::<()>()).await;
        fails(lost, ErrorKind::Lost, &["there is no connection"]);
        server.start_again();
    }
}
