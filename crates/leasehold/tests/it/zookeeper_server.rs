//! What clients of `zookeeper://` see when something is not as it should be.

use std::convert::Infallible;

use leasehold::core::{Claim, Mode, Push, Token};
use leasehold::store::Listening;
use leasehold::{Credentials, CredentialsProvider};
use leasehold_store::PushSink;
use leasehold_testkit::proxy::{Direction, Proxy};
use leasehold_testkit::zookeeper::{Ensemble, ZooKeeper};
use zookeeper_client::{Acl, Acls, AuthId, Client as Raw, CreateMode, Permission};

use super::zookeeper_store::Fresh;
use crate::steps::*;

/// A client of ZooKeeper that knows nothing of locks.
async fn raw(hosts: &str) -> Raw {
    Raw::connect(hosts).await.expect("a session")
}

/// A chroot of its own on the shared server: its URL, and a client of ZooKeeper in it.
async fn place() -> (String, Raw) {
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let raw = raw(&server.hosts()).await.chroot(&*chroot).unwrap();
    (server.url_of(&chroot), raw)
}

/// A server that clients reach near by, and far away through a proxy, in sessions that end soon.
struct Far {
    proxy: Proxy,
    far: String,
    near: String,
    raw: Raw,
}

impl Far {
    async fn new() -> Self {
        let (near, raw) = place().await;
        let address = ZooKeeper::shared().address();
        let proxy = Proxy::start(address);
        let far = near.replacen(&address.to_string(), &proxy.address().to_string(), 1);
        Self {
            far: format!("{far}?session_timeout=400ms"),
            near,
            raw,
            proxy,
        }
    }

    /// Of a client that is far away in a session that goes on.
    fn far_in_a_long_session(&self) -> String {
        self.far.replace("400ms", "60s")
    }

    /// Whether both clients have their inboxes. One that was kept waiting for too long has another
    /// soon.
    async fn both_listen(&self) -> bool {
        self.raw.list_children("/inboxes").await.unwrap().len() == 2
    }

    /// Cuts the connection off until the session of one of both has expired.
    async fn expire(&self) {
        until("both sessions", async || self.both_listen().await).await;
        self.proxy.refuse();
        self.proxy.reset();
        until("a session to expire", async || !self.both_listen().await).await;
    }
}

/// A store in a chroot that waits for `k` as long as a test may take: it asks for nothing by itself
/// meanwhile.
async fn waits(url: &str, sink: Arc<dyn PushSink>) -> (Arc<dyn LockStore>, Box<dyn Listening>) {
    let store = Fresh(url.to_owned()).client().await;
    let listening = store.listen(sink).await.unwrap();
    let long = 10 * LIMIT;
    let claim = Claim {
        inbox: Some(store.inbox().clone()),
        waiter_ttl: long,
        ..Claim::new(id(1), Mode::EXCLUSIVE, long)
    };
    store.claim(&key("k"), &claim).await.unwrap();
    (store, listening)
}

/// Takes the free key, and releases it.
async fn taken_once(client: &Client, key: &str) -> Token {
    let lease = try_lock(client, key).await.expect("free");
    let token = lease.token();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    token
}

async fn remove_children(raw: &Raw, path: &str) {
    for child in raw.list_children(path).await.unwrap() {
        raw.delete(&format!("{path}/{child}"), None).await.unwrap();
    }
}

/// As an administrator does it.
async fn remove(raw: &Raw, path: &str) {
    remove_children(raw, path).await;
    raw.delete(path, None).await.unwrap();
}

/// What is committed is on the disk, and a lease goes on.
#[tokio::test]
async fn a_server_that_is_killed_has_kept_all() {
    let server = ZooKeeper::start();
    let client = connect(&server.url_of("/locks")).await;
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    let token = taken_once(&client, "k").await;
    server.kill();
    let tried = client.mutex("k").unwrap().try_lock().await;
    fails(tried, ErrorKind::Unavailable, &[]);
    server.start_again();
    let lease = soon("another grant", client.mutex("k").unwrap().lock()).await;
    assert!(lease.unwrap().token() > token);
    soon("a renewal", async { while held.renew().await.is_err() {} }).await;
    assert!(held.is_valid());
}

/// A session is only a way to send: leases and places in line outlive it.
#[tokio::test]
async fn a_session_that_expires_takes_nothing_along() {
    let far = Far::new().await;
    let (client, other) = (connect(&far.far).await, connect(&far.near).await);
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    let (before, waiter) = contended(&other, &client, "k").await;
    far.expire().await;
    far.proxy.accept();
    until("another session", async || far.both_listen().await).await;
    give_back(hand_over(before, waiter).await).await;
    assert!(held.is_valid());
    give_back(held).await;
}

/// Each step compares and sets: who is far away reads and sets a key that others change meanwhile.
#[tokio::test]
async fn who_is_far_away_renews_what_others_keep_changing() {
    let far = Far::new().await;
    let client = connect(&far.far_in_a_long_session()).await;
    let permits = client.semaphore("k", 4).unwrap();
    let held = permits.acquire().await.unwrap();
    let late = Duration::from_millis(60);
    far.proxy.delay(Direction::ToServer, late);
    let mut changing: JoinSet<Result<Infallible, Error>> = JoinSet::new();
    for _ in 0..2 {
        let near = connect(&far.near).await;
        changing.spawn(async move {
            let permits = near.semaphore("k", 4).unwrap();
            loop {
                drop(permits.acquire().await?.release().await);
            }
        });
    }
    for _ in 0..5 {
        soon("a renewal", held.renew()).await.unwrap();
    }
    let late = soon("a permit", permits.acquire()).await.unwrap();
    assert!(late.is_valid() && held.is_valid());
    // Who gives up leaves nothing behind.
    let room = async || far.raw.list_children("/keys/k").await.unwrap().len() > 1;
    soon("room to be wanted", async {
        while !room().await {
            drop(timeout(Duration::from_millis(250), permits.acquire()).await);
        }
    })
    .await;
    let ended = changing.try_join_next();
    assert!(ended.is_none(), "{ended:?}");
    changing.shutdown().await;
    until("nobody to want room", async || !room().await).await;
}

/// However many are late one after the other.
#[tokio::test]
async fn room_is_left_for_a_moment() {
    let (url, raw) = place().await;
    let client = connect(&url).await;
    let permits = client.semaphore("k", 2).unwrap();
    let held = permits.acquire().await.unwrap();
    let late = |number: u32| format!("/keys/k/late-{number}");
    let made = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    raw.create(&late(0), b"", &made).await.unwrap();
    // So it learns that somebody is.
    held.renew().await.unwrap();
    let others = async {
        for number in 1.. {
            raw.create(&late(number), b"", &made).await.unwrap();
            raw.delete(&late(number - 1), None).await.unwrap();
        }
    };
    tokio::select! {
        permit = permits.acquire() => drop(permit.unwrap()),
        () = others => {}
    }
}

/// Who has died is passed over when its session has expired, long before its claim would.
#[tokio::test]
async fn a_waiter_that_has_died_holds_up_nobody() {
    let far = Far::new().await;
    let other = connect(&far.near).await;
    let held = other.mutex("k").unwrap().lock().await.unwrap();
    let _dying = waits(&far.far, sink().0).await;
    let alive = waiting(&other, "k");
    in_line(&other, "k", 2).await;
    far.expire().await;
    drop(hand_over(held, alive).await);
}

/// The server forgets what a client watched when its connection ends, also where the session goes on.
#[tokio::test]
async fn who_is_connected_again_is_rung() {
    let far = Far::new().await;
    let other = connect(&far.near).await;
    let held = other.mutex("k").unwrap().lock().await.unwrap();
    let (sink, mut pushes) = sink();
    let (waiter, _listening) = waits(&far.far_in_a_long_session(), sink).await;
    far.proxy.reset();
    answered("the connection", async || waiter.inspect(&key("k")).await).await;
    assert_eq!(held.release().await.unwrap(), Released::Held);
    let granted = async { while !matches!(pushes.recv().await, Some(Push::Granted { .. })) {} };
    soon("the grant", granted).await;
}

/// What cannot be read is left as it is, and other keys go on.
#[tokio::test]
async fn a_node_that_is_not_ours_is_refused_for_its_key_only() {
    let (url, raw) = place().await;
    let client = connect(&url).await;
    for key in ["format", "torn", "theirs", "maimed", "secret", "fine"] {
        taken_once(&client, key).await;
    }
    let read = async |key: &str| raw.get_data(&format!("/keys/{key}")).await.unwrap().0;
    let write = async |key: &str, content: &[u8]| {
        let path = format!("/keys/{key}");
        raw.set_data(&path, content, None).await.unwrap();
    };
    let mut other_format = read("format").await;
    other_format[4] = 7;
    write("format", &other_format).await;
    let mut torn = read("torn").await;
    torn.truncate(torn.len() - 1);
    write("torn", &torn).await;
    write("theirs", b"somebody's").await;
    remove_children(&raw, "/keys/maimed").await;
    let somebody = Acl::new(Permission::ALL, AuthId::new("digest", "somebody:x"));
    let closed = raw.set_acl("/keys/secret", &[somebody], None).await;
    closed.unwrap();
    let other = connect(&url).await;
    for (key, kind) in [
        ("format", ErrorKind::Unsupported),
        ("torn", ErrorKind::Corrupt),
        ("theirs", ErrorKind::Corrupt),
        ("maimed", ErrorKind::Corrupt),
        ("secret", ErrorKind::Refused),
    ] {
        let error = other.mutex(key).unwrap().try_lock().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{key}: {error}");
    }
    assert_eq!(read("format").await, other_format);
    assert_eq!(read("torn").await, torn);
    assert_eq!(read("theirs").await, b"somebody's");
    let _held = try_lock(&other, "fine").await.expect("free");
    assert_eq!(other.list("*").await.unwrap().len(), 1);
    let unread = ["format", "secret", "theirs", "torn"];
    assert_eq!(skipped(&other).await, unread);
}

/// A node that was removed and made again counts its changes anew. Who knew the former one does not take
/// the one for the other.
#[tokio::test]
async fn a_node_that_was_made_again_is_another() {
    let (url, raw) = place().await;
    let (one, other) = (connect(&url).await, connect(&url).await);
    taken_once(&one, "k").await;
    let version = async || raw.check_stat("/keys/k").await.unwrap().unwrap().version;
    let before = version().await;
    // Only the test renews it, and who has lost its session, on a busy machine.
    let lock = other.mutex("k").unwrap().with_ttl(5 * LIMIT);
    let made_again = async {
        loop {
            remove(&raw, "/keys/k").await;
            let held = lock.try_lock().await.unwrap().expect("free");
            while version().await < before {
                held.renew().await.unwrap();
            }
            if version().await == before {
                return held;
            }
            assert_eq!(held.release().await.unwrap(), Released::Held);
        }
    };
    let held = soon("as many changes as before", made_again).await;
    assert!(try_lock(&one, "k").await.is_none(), "it is held");
    held.renew().await.unwrap();
}

/// Nodes that an administrator has removed are made again, and higher tokens follow.
#[tokio::test]
async fn nodes_that_are_removed_are_made_again() {
    let (url, raw) = place().await;
    let client = connect(&url).await;
    let token = taken_once(&client, "k").await;
    remove(&raw, "/keys/k").await;
    remove(&raw, "/keys").await;
    assert!(client.list("*").await.unwrap().is_empty());
    assert!(try_lock(&client, "k").await.expect("free").token() > token);
}

/// With a user, nobody else can use what it has made, and no message repeats the password.
#[tokio::test]
async fn a_user_has_nodes_of_its_own() {
    let Fresh(url) = Fresh::new();
    let with = |identity: &str| url.replace("//", &format!("//{identity}@"));
    let ours = connect(&with("app:sesame%2F1")).await;
    let _held = try_lock(&ours, "k").await.expect("free");
    let again = connect(&with("app:sesame%2F1")).await;
    assert!(try_lock(&again, "k").await.is_none());
    for url in [with("app:other"), url.clone()] {
        let refused = leasehold::connect(&url).await;
        let error = fails(refused, ErrorKind::Refused, &["does not let this user"]);
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
}

/// A claim that would leave no room is refused before it is sent, and those in the queue renew.
#[tokio::test]
async fn a_queue_that_is_full_takes_no_more() {
    let url = format!("{}?maxbuffer=20000&response_timeout=30s", Fresh::new().0);
    // Others use this server, too. Nobody renews before the test does.
    let patient = Settings::default().with_operation_timeout(LIMIT / 2);
    let client = client_with(&url, patient.with_ttl(5 * LIMIT).with_waiter_ttl(5 * LIMIT)).await;
    let held = client.mutex("k").unwrap().lock().await.unwrap();
    let mut waiters = JoinSet::new();
    let refused = loop {
        let lock = client.mutex("k").unwrap();
        waiters.spawn(async move { lock.lock().await });
        let (came, mut ended) = (waiters.len(), None);
        until("its place or its refusal", async || {
            ended = waiters.try_join_next();
            ended.is_some() || client.inspect("k").await.unwrap().waiters.len() == came
        })
        .await;
        if let Some(ended) = ended {
            break fails(ended.unwrap(), ErrorKind::Refused, &["is full"]);
        }
        assert!(came < 1_000, "it is never full");
    };
    hints(&refused, "jute.maxbuffer");
    assert!(waiters.len() > 20, "{}", waiters.len());
    held.renew().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Held);
    let next = soon("the next grant", waiters.join_next()).await;
    drop(next.unwrap().unwrap().unwrap());
}

/// No grant is lost and none doubled when the leader is killed, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_takes_nothing_along() {
    const KILLS: usize = 3;
    let ensemble = Ensemble::start();
    let url = ensemble.url_of("/locks");
    let held = connect(&url).await;
    let held = held.mutex("held").unwrap().lock().await.unwrap();
    let mut tasks = JoinSet::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    for _ in 0..3 {
        let (client, stopped) = (connect(&url).await, stopped.clone());
        tasks.spawn(async move {
            let mut tokens = Vec::new();
            while !*stopped.borrow() {
                let Ok(lease) = client.mutex("k").unwrap().lock().await else {
                    continue;
                };
                tokens.push(lease.token());
                // Its outcome may not be known.
                lease.release().await.ok();
            }
            tokens
        });
    }
    for _ in 0..KILLS {
        let leader = ensemble.leader();
        ensemble.server(leader).kill();
        soon("another leader", ensemble.until_led()).await;
        let served = connect(&url).await.mutex("k").unwrap();
        drop(soon("a grant", served.lock()).await.unwrap());
        ensemble.start_again(leader);
        soon("it follows", ensemble.until_led()).await;
    }
    stop.send_replace(true);
    let mut tokens = BTreeSet::new();
    for theirs in soon("everyone's turn", tasks.join_all()).await {
        assert!(theirs.is_sorted(), "tokens rise");
        for token in theirs {
            assert!(tokens.insert(token), "no token twice");
        }
    }
    soon("a renewal", async { while held.renew().await.is_err() {} }).await;
    assert!(held.is_valid());
}

/// A path whose parents are there, with something else below.
#[tokio::test]
async fn it_lives_beside_others() {
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let raw = raw(&server.hosts()).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    raw.create(&chroot, b"theirs", &options).await.unwrap();
    let other = format!("{chroot}/other");
    raw.create(&other, b"", &options).await.unwrap();
    let client = connect(&server.url_of(&format!("{chroot}/our%20locks"))).await;
    let _held = try_lock(&client, "k").await.expect("free");
    assert_eq!(raw.get_data(&chroot).await.unwrap().0, b"theirs");
    let below = raw.list_children(&chroot).await.unwrap();
    assert_eq!(below.len(), 2, "{below:?}");
}

/// The servers tell the time late to who is far away. What was asked at a later time than it knows did
/// not begin earlier for that.
#[tokio::test]
async fn a_listing_knows_no_other_times_than_a_look() {
    let far = Far::new().await;
    let late = Duration::from_millis(300);
    far.proxy.delay(Direction::ToClient, late);
    let client = connect(&far.far_in_a_long_session()).await;
    let near = connect(&far.near).await;
    far.proxy.heal();
    let _lease = near.mutex("k").unwrap().lock().await.unwrap();
    let listed = client.list("k").await.unwrap();
    let looked = near.inspect("k").await.unwrap();
    assert_eq!(listed[0].holders[0].since, looked.holders[0].since);
}

#[tokio::test]
async fn the_user_is_who_the_provider_names() {
    let Fresh(url) = Fresh::new();
    let provider =
        CredentialsProvider::new(async || Ok::<_, Infallible>(Credentials::new("app", "secret")));
    let builder = || Client::builder().store(&url).credentials(provider.clone());
    let made = builder().initialise().await.unwrap().remove(0).made;
    assert_eq!(made.unwrap().users, "for the user app");
    let client = builder().connect().await.unwrap();
    let lease = try_lock(&client, "k").await.expect("free");
    let known = url.replace("zookeeper://", "zookeeper://app:secret@");
    assert!(try_lock(&connect(&known).await, "k").await.is_none());
    fails(leasehold::connect(&url).await, ErrorKind::Refused, &[]);
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}
