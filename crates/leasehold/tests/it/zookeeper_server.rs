//! What clients of `zookeeper://` see when something is not as it should be.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Claim, Mode, Push};
use leasehold::{Client, Credentials, CredentialsProvider, ErrorKind, Released, Settings};
use leasehold_store::access::Access;
use leasehold_store::scheme::Scheme as _;
use leasehold_store::{PushSink, Verbs as _};
use leasehold_testkit::proxy::{Direction, Proxy};
use leasehold_testkit::zookeeper::{Ensemble, ZooKeeper};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client as Raw, CreateMode};

use super::support::{LIMIT, id, in_line, key, skipped, soon, try_lock, until, waiting};
use super::zookeeper_store::Fresh;

async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.expect("a client")
}

/// A client of ZooKeeper that knows nothing of locks.
async fn raw(hosts: &str) -> Raw {
    Raw::connect(hosts).await.expect("a session")
}

/// A server that clients reach near by, and far away through a proxy, in sessions that end soon.
struct Far {
    proxy: Proxy,
    far: String,
    near: String,
    raw: Raw,
    chroot: String,
}

impl Far {
    async fn new() -> Self {
        let server = ZooKeeper::shared();
        let chroot = server.chroot();
        let proxy = Proxy::start(server.address());
        let port = proxy.port();
        Self {
            far: format!("zookeeper://127.0.0.1:{port}{chroot}?session_timeout=400ms"),
            near: server.url_of(&chroot),
            raw: raw(&server.hosts()).await,
            proxy,
            chroot,
        }
    }
}

/// As an administrator does it.
async fn remove(raw: &Raw, path: &str) {
    for child in raw.list_children(path).await.unwrap() {
        raw.delete(&format!("{path}/{child}"), None).await.unwrap();
    }
    raw.delete(path, None).await.unwrap();
}

/// Whether both clients have their inboxes. One that was kept waiting for too long has another soon.
async fn both_listen(raw: &Raw, chroot: &str) -> bool {
    let inboxes = raw.list_children(&format!("{chroot}/inboxes")).await;
    inboxes.unwrap().len() == 2
}

/// What is committed is on the disk, and a lease goes on.
#[tokio::test]
async fn a_server_that_is_killed_has_kept_all() {
    let server = ZooKeeper::start();
    let client = connect(&server.url_of("/locks")).await;
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    let token = lease.token();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    server.kill();
    let error = client.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.start_again();
    let lease = soon("another grant", client.mutex("k").unwrap().lock()).await;
    assert!(lease.unwrap().token() > token);
    soon("a renewal", async { while held.renew().await.is_err() {} }).await;
    assert!(held.is_valid());
}

/// A session is only a way to send: leases and places in line outlive it.
#[tokio::test]
async fn a_session_that_expires_takes_nothing_along() {
    let Far {
        proxy,
        far,
        near,
        raw,
        chroot,
    } = Far::new().await;
    let (client, other) = (connect(&far).await, connect(&near).await);
    let held = client.mutex("held").unwrap().lock().await.unwrap();
    let before = other.mutex("k").unwrap().lock().await.unwrap();
    let waiter = waiting(&client, "k");
    in_line(&other, "k", 1).await;
    let both = async || both_listen(&raw, &chroot).await;
    until("both sessions", both).await;
    proxy.refuse();
    proxy.reset();
    until("a session to expire", async || !both().await).await;
    proxy.accept();
    until("another session", both).await;
    assert_eq!(before.release().await.unwrap(), Released::Held);
    let lease = soon("the grant", waiter).await.unwrap().unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    assert!(held.is_valid());
    assert_eq!(held.release().await.unwrap(), Released::Held);
}

/// Each step compares and sets: who is far away reads and sets a key that others change meanwhile.
#[tokio::test]
async fn who_is_far_away_renews_what_others_keep_changing() {
    let Far {
        proxy,
        far,
        near,
        raw,
        chroot,
    } = Far::new().await;
    let client = connect(&far.replace("400ms", "60s")).await;
    let held = client.semaphore("k", 4).unwrap().acquire().await.unwrap();
    proxy.delay(Direction::ToServer, Duration::from_millis(60));
    let mut changing: JoinSet<Result<Infallible, leasehold::Error>> = JoinSet::new();
    for _ in 0..2 {
        let near = connect(&near).await;
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
    let late = client.semaphore("k", 4).unwrap();
    let late = soon("a permit", late.acquire()).await.unwrap();
    assert!(late.is_valid() && held.is_valid());
    // Who gives up leaves nothing behind.
    let room = async || {
        raw.list_children(&format!("{chroot}/keys/k"))
            .await
            .unwrap()
            .len()
            > 1
    };
    let permits = client.semaphore("k", 4).unwrap();
    soon("room to be wanted", async {
        while !room().await {
            timeout(Duration::from_millis(250), permits.acquire())
                .await
                .ok();
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
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let client = connect(&server.url_of(&chroot)).await;
    let permits = client.semaphore("k", 2).unwrap();
    let held = permits.acquire().await.unwrap();
    let raw = raw(&server.hosts()).await.chroot(&*chroot).unwrap();
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
    struct Ignored;
    impl PushSink for Ignored {
        fn push(&self, _: Push) {}
    }
    let Far {
        proxy,
        far,
        near,
        raw,
        chroot,
    } = Far::new().await;
    let other = connect(&near).await;
    let held = other.mutex("k").unwrap().lock().await.unwrap();
    let access = Access::default();
    let opened = leasehold_zookeeper::ZooKeeper.open(&far, &access).await;
    let dying = opened.unwrap().store;
    let _listening = dying.listen(Arc::new(Ignored)).await.unwrap();
    let long = 10 * LIMIT;
    let claim = Claim {
        inbox: Some(dying.inbox().clone()),
        waiter_ttl: long,
        ..Claim::new(id(1), Mode::EXCLUSIVE, long)
    };
    let _waits = dying.claim(&key("k"), &claim).await.unwrap();
    let alive = waiting(&other, "k");
    in_line(&other, "k", 2).await;
    let both = async || both_listen(&raw, &chroot).await;
    until("both sessions", both).await;
    proxy.refuse();
    proxy.reset();
    until("a session to expire", async || !both().await).await;
    assert_eq!(held.release().await.unwrap(), Released::Held);
    drop(soon("the grant", alive).await.unwrap().unwrap());
}

/// The server forgets what a client watched when its connection ends, also where the session goes on.
#[tokio::test]
async fn who_is_connected_again_is_rung() {
    struct Pushes(UnboundedSender<Push>);
    impl PushSink for Pushes {
        fn push(&self, push: Push) {
            self.0.send(push).ok();
        }
    }
    let Far {
        proxy, far, near, ..
    } = Far::new().await;
    let far = far.replace("400ms", "60s");
    let other = connect(&near).await;
    let held = other.mutex("k").unwrap().lock().await.unwrap();
    let access = Access::default();
    let opened = leasehold_zookeeper::ZooKeeper.open(&far, &access).await;
    let (sink, mut pushes) = unbounded_channel();
    let waiter = opened.unwrap().store;
    let _listening = waiter.listen(Arc::new(Pushes(sink))).await.unwrap();
    // It asks for nothing by itself meanwhile.
    let long = 10 * LIMIT;
    let claim = Claim {
        inbox: Some(waiter.inbox().clone()),
        waiter_ttl: long,
        ..Claim::new(id(1), Mode::EXCLUSIVE, long)
    };
    let _waits = waiter.claim(&key("k"), &claim).await.unwrap();
    proxy.reset();
    until("the connection", async || {
        waiter.inspect(&key("k")).await.is_ok()
    })
    .await;
    assert_eq!(held.release().await.unwrap(), Released::Held);
    let granted = async { while !matches!(pushes.recv().await, Some(Push::Granted { .. })) {} };
    soon("the grant", granted).await;
}

/// What cannot be read is left as it is, and other keys go on.
#[tokio::test]
async fn a_node_that_is_not_ours_is_refused_for_its_key_only() {
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let client = connect(&server.url_of(&chroot)).await;
    for key in ["format", "torn", "theirs", "maimed", "fine"] {
        let lease = try_lock(&client, key).await.expect("free");
        assert_eq!(lease.release().await.unwrap(), Released::Held);
    }
    let raw = raw(&server.hosts()).await.chroot(&*chroot).unwrap();
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
    let children = raw.list_children("/keys/maimed").await.unwrap();
    for child in children {
        raw.delete(&format!("/keys/maimed/{child}"), None)
            .await
            .unwrap();
    }
    let other = connect(&server.url_of(&chroot)).await;
    for (key, kind) in [
        ("format", ErrorKind::Unsupported),
        ("torn", ErrorKind::Corrupt),
        ("theirs", ErrorKind::Corrupt),
        ("maimed", ErrorKind::Corrupt),
    ] {
        let error = other.mutex(key).unwrap().try_lock().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{key}: {error}");
    }
    assert_eq!(read("format").await, other_format);
    assert_eq!(read("torn").await, torn);
    assert_eq!(read("theirs").await, b"somebody's");
    let _held = try_lock(&other, "fine").await.expect("free");
    assert_eq!(other.list("*").await.unwrap().len(), 1);
    assert_eq!(skipped(&other).await, ["format", "theirs", "torn"]);
}

/// A node that was removed and made again counts its changes anew. Who knew the former one does not take
/// the one for the other.
#[tokio::test]
async fn a_node_that_was_made_again_is_another() {
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let (one, other) = (
        connect(&server.url_of(&chroot)).await,
        connect(&server.url_of(&chroot)).await,
    );
    let lease = try_lock(&one, "k").await.expect("free");
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    let raw = raw(&server.hosts()).await.chroot(&*chroot).unwrap();
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
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let client = connect(&server.url_of(&chroot)).await;
    let lease = try_lock(&client, "k").await.expect("free");
    let token = lease.token();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
    let raw = raw(&server.hosts()).await.chroot(&*chroot).unwrap();
    remove(&raw, "/keys/k").await;
    remove(&raw, "/keys").await;
    let lease = try_lock(&client, "k").await.expect("free");
    assert!(lease.token() > token);
}

/// With a user, nobody else can use what it has made, and no message repeats the password.
#[tokio::test]
async fn a_user_has_nodes_of_its_own() {
    let server = ZooKeeper::shared();
    let chroot = server.chroot();
    let with = |identity: &str| {
        server
            .url_of(&chroot)
            .replace("//", &format!("//{identity}@"))
    };
    let ours = connect(&with("app:sesame%2F1")).await;
    let _held = try_lock(&ours, "k").await.expect("free");
    let again = connect(&with("app:sesame%2F1")).await;
    assert!(try_lock(&again, "k").await.is_none());
    for url in [with("app:other"), server.url_of(&chroot)] {
        let error = leasehold::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(
            error.to_string().contains("does not let this user"),
            "{error}"
        );
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
}

/// A claim that would leave no room is refused before it is sent, and those in the queue renew.
#[tokio::test]
async fn a_queue_that_is_full_takes_no_more() {
    let server = ZooKeeper::shared();
    let url = server.url_of(&server.chroot());
    let url = format!("{url}?maxbuffer=20000&response_timeout=30s");
    // Others use this server, too. Nobody renews before the test does.
    let patient = Settings::default().with_operation_timeout(LIMIT / 2);
    let patient = patient.with_ttl(5 * LIMIT).with_waiter_ttl(5 * LIMIT);
    let client = Client::builder().store(url).settings(patient);
    let client = client.connect().await.expect("a client");
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
            break ended.unwrap().unwrap_err();
        }
        assert!(came < 1_000, "it is never full");
    };
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("is full"), "{refused}");
    assert!(refused.hint().unwrap().contains("jute.maxbuffer"));
    assert!(waiters.len() > 20, "{}", waiters.len());
    held.renew().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Held);
    let next = soon("the next grant", waiters.join_next()).await;
    drop(next.unwrap().unwrap().unwrap());
}

/// Clients in each other's way, one of which comes and goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_let_one_in_at_a_time() {
    let fresh = Fresh::new();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = fresh.connect().await;
        for _ in 0..3 {
            let lock = client.mutex("k").unwrap();
            tasks.spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..10 {
                    let lease = lock.lock().await.unwrap();
                    tokens.push(lease.token());
                    assert_eq!(lease.release().await.unwrap(), Released::Held);
                }
                tokens
            });
        }
    }
    let mut tokens = Vec::new();
    while let Some(done) = soon("everyone's turn", tasks.join_next()).await {
        tokens.extend(done.unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 4 * 3 * 10, "no token twice");
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
        let served = connect(&url).await;
        drop(
            soon("a grant", served.mutex("k").unwrap().lock())
                .await
                .unwrap(),
        );
        ensemble.start_again(leader);
        soon("it follows", ensemble.until_led()).await;
    }
    stop.send_replace(true);
    let mut tokens = Vec::new();
    while let Some(done) = soon("everyone's turn", tasks.join_next()).await {
        let theirs = done.unwrap();
        assert!(theirs.is_sorted(), "tokens rise");
        tokens.extend(theirs);
    }
    let count = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), count, "no token twice");
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
    raw.create(&format!("{chroot}/other"), b"", &options)
        .await
        .unwrap();
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
    let Far {
        proxy, far, near, ..
    } = Far::new().await;
    proxy.delay(Direction::ToClient, Duration::from_millis(300));
    let far = far.replace("session_timeout=400ms", "session_timeout=10s");
    let (far, near) = (connect(&far).await, connect(&near).await);
    proxy.heal();
    let _lease = near.mutex("k").unwrap().lock().await.unwrap();
    let listed = far.list("k").await.unwrap();
    let looked = near.inspect("k").await.unwrap();
    assert_eq!(listed[0].holders[0].since, looked.holders[0].since);
}

#[tokio::test]
async fn the_user_is_who_the_provider_names() {
    let server = ZooKeeper::shared();
    let url = server.url_of(&server.chroot());
    let provider =
        CredentialsProvider::new(async || Ok::<_, Infallible>(Credentials::new("app", "secret")));
    let builder = Client::builder().store(&url).credentials(provider);
    let client = builder.connect().await.unwrap();
    let lease = try_lock(&client, "k").await.expect("free");
    let known = url.replace("zookeeper://", "zookeeper://app:secret@");
    assert!(try_lock(&connect(&known).await, "k").await.is_none());
    let unknown = leasehold::connect(&url).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Refused, "{unknown}");
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}
