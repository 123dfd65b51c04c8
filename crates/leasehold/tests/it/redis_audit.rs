//! The audit log in Redis.
#![cfg(feature = "redis")]

use std::time::SystemTime;

use crate::redis_support::*;
use leasehold::core::{Claim, ClientInfo, Note, OwnerSecret, Renew, Rotate};

/// Each page may take as long as a request does, not all that lie before the key's entries: over a
/// slow network its log could not be read at all.
#[tokio::test]
async fn a_key_among_many_has_its_log() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let patience = Duration::from_secs(2);
    let settings = Settings::default().with_operation_timeout(patience);
    let client = client_with(&format!("{}?audit=10000", proxy.url()), settings).await;
    let _other = client.mutex("other").unwrap().lock().await.unwrap();
    let again = "local entry = redis.call('XRANGE', KEYS[1], '-', '+')[1][2] \
                 for _ = 1, 2000 do redis.call('XADD', KEYS[1], '*', unpack(entry)) end";
    server.command(&["EVAL", again, "1", "leasehold:audit"]);
    let _lease = client.mutex("k").unwrap().lock().await.unwrap();
    let mut log = client.audit_log(Some("k"), SystemTime::UNIX_EPOCH).unwrap();
    proxy.delay(Direction::ToClient, patience / 4);
    let entries = log.next().await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].key.as_str(), "k");
}

/// However much others write: what there was when it was read is read to an end.
#[tokio::test]
async fn a_log_that_grows_has_an_end() {
    let server = RedisServer::start();
    let url = format!("{}?audit=1000", server.url());
    let client = leasehold::connect(&url).await.unwrap();
    let mut log = client.audit_log(None, SystemTime::UNIX_EPOCH).unwrap();
    let _one = client.mutex("one").unwrap().lock().await.unwrap();
    assert_eq!(log.next().await.unwrap().len(), 1);
    let _another = client.mutex("another").unwrap().lock().await.unwrap();
    assert_eq!(log.next().await.unwrap().len(), 0, "it was read until then");
    assert_eq!(log.next().await.unwrap().len(), 1);
}

/// Nothing of a step that fails is saved: a damaged record added an entry with each attempt. But a
/// hand-over is written before it is told, and that nobody hears it may lead to the damaged record.
#[tokio::test]
async fn of_a_step_that_failed_the_log_has_what_was_saved_before() {
    for (damaged, noted, why) in [
        (2, 1, "the grant of the first"),
        (4, 2, "a grant, and the hand-over"),
    ] {
        let server = RedisServer::start();
        let store = connect(&format!("{}?audit=1000", server.url())).await;
        let (store, key) = (store.unwrap(), key("k"));
        queue_up(&store, &key, 1..=damaged).await;
        // Who waits is read when the holder has gone.
        server.command(&["HSET", "leasehold:lock:k", id(damaged).expose(), "x"]);
        store.release(&key, &release(1)).await.unwrap_err();
        let entries: usize = server.query(&["XLEN", "leasehold:audit"]);
        assert_eq!(entries, noted, "{why}");
        let left: usize = server.query(&["HEXISTS", "leasehold:lock:k", id(1).expose()]);
        assert!(left == 0 || noted == 1, "the hand-over is saved");
    }
}

/// Whoever may read the log cannot release, take over or enter anything, and a note is none of its
/// business. Not what is shown of it counts here, but what lies there.
#[tokio::test]
async fn no_secret_is_in_the_audit_log() {
    let server = RedisServer::start();
    let store = connect(&format!("{}?audit=1000", server.url())).await;
    let store = store.unwrap();
    let secret = OwnerSecret::from_random(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
    let note = note();
    let owned = Claim {
        secret: Some(secret),
        note: note.clone(),
        min_hold: Duration::from_millis(1),
        ..claim(&store, 1)
    };
    let lean = but(claim(&store, 3), |it| it.secret = Some(secret));
    let key = key("k");
    store.claim(&key, &lean).await.unwrap();
    store.release(&key, &release(3)).await.unwrap();
    store.claim(&key, &owned).await.unwrap();
    store.claim(&key, &claim(&store, 4)).await.unwrap();
    let rotates = Renew {
        rotate: Some(Rotate {
            to: id(2),
            version: 0,
            adopt: None,
        }),
        note,
        ..renew(1)
    };
    store.renew(&key, &rotates).await.unwrap();
    store.release(&key, &release(2)).await.unwrap();
    store.release(&key, &release(4)).await.unwrap();

    let log = no_secret_lies_at(&server);
    assert!(!has(&log, &secret.expose()), "the owner's secret");
}

/// An address, which is nothing for the log.
fn note() -> Option<Note> {
    Some(Note::new("10.0.0.7:80").unwrap())
}

/// The log of a server, in which neither an id of the four claims nor their note is.
fn no_secret_lies_at(server: &RedisServer) -> Vec<u8> {
    let log: Vec<(String, Vec<Vec<u8>>)> = server.query(&["XRANGE", "leasehold:audit", "-", "+"]);
    let fields = log.into_iter().flat_map(|(_, fields)| fields.concat());
    let log: Vec<u8> = fields.collect();
    let holds = |text: &str| has(&log, text);
    let is_log = holds("a label") && holds("leasehold:lock:k");
    assert!(is_log, "it is the log");
    for number in 1..=4 {
        assert!(!holds(id(number).expose()), "the id of claim {number}");
    }
    assert!(!holds("10.0.0.7"), "the note");
    log
}

fn has(log: &[u8], text: &str) -> bool {
    log.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The same of the servers of a set, each of which keeps a log.
#[tokio::test]
async fn no_secret_is_in_the_audit_logs_of_a_set() {
    use crate::redlock_support as redlock;
    let set = redlock::Set::start(3, "audit=1000&max_ttl=1s").await;
    let store = set.store().await;
    let key = key("k");
    let (brief, second) = (Duration::from_millis(100), Duration::from_secs(1));
    for (number, ttl) in [(1, brief), (2, second), (3, second)] {
        let claim = but(redlock::claim(&store, number, ttl), |it| it.note = note());
        // On a busy machine a server may not answer within the share of so short a TTL.
        let granted = async {
            while !store.claim(&key, &claim).await.is_ok_and(|it| it.holds()) {
                sleep(brief).await;
            }
        };
        soon("a grant", granted).await;
        if number == 2 {
            // Whoever gives up, and an administrator.
            let other = redlock::claim(&store, 4, brief);
            assert!(!store.claim(&key, &other).await.unwrap().holds());
            store.release(&key, &release(2)).await.unwrap();
        }
    }
    let by = ClientInfo::new("ops", 1, None);
    store.break_key(&key, &by).await.unwrap();
    for server in &set.servers {
        let log = no_secret_lies_at(server);
        assert!(has(&log, "ops"), "it is the log");
        assert!(!has(&log, store.inbox().as_str()), "the inbox");
    }
}
