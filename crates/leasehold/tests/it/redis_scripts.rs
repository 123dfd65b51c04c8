//! Scripts that the server has forgotten: `SCRIPT FLUSH`, or a restart.
#![cfg(feature = "redis")]

use crate::redis_support::*;
use futures_util::future::join_all;
use leasehold_testkit::proxy::Held;

/// Neither a proxy nor a user needs `SCRIPT`.
fn server() -> RedisServer {
    let rules = "on >secret ~* &* +@all -script";
    RedisServer::builder().user("alice", rules).start()
}

/// A server behind a proxy, and how its user connects through that.
fn proxied() -> (RedisServer, Proxy, RedisOptions) {
    let server = server();
    let proxy = Proxy::to(&server);
    let url = proxy.through(&server.url_as("alice", "secret"));
    (server, proxy, RedisOptions::from_url(&url).unwrap())
}

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|number| key(&number.to_string())).collect()
}

/// Those that are under way when it forgets all find out, and one of them is enough to tell it.
#[tokio::test]
async fn many_requests_tell_a_server_that_forgot_once() {
    let server = server();
    let store = connect(&server.url_as("alice", "secret")).await.unwrap();
    let (keys, claim) = (keys(200), claim(&store, 1));
    for round in 0..3 {
        server.command(&["SCRIPT", "FLUSH"]);
        let before = server.stats();
        for answer in join_all(keys.iter().map(|key| store.claim(key, &claim))).await {
            assert!(answer.unwrap().holds());
        }
        let told = server.stats().since(&before).command("eval");
        assert_eq!(told.calls, 1, "round {round}");
    }
}

/// Nobody asks for ever, or as often as there are others.
#[tokio::test]
async fn a_server_that_always_forgets_is_asked_a_few_times() {
    let (server, proxy, options) = proxied();
    let server = Arc::new(server);
    let store = RedisStore::connect(options).await.unwrap();
    let (keys, claim) = (keys(64), claim(&store, 1));
    let asked = Arc::new(AtomicU64::new(0));
    let (forgets, counted) = (Arc::clone(&server), Arc::clone(&asked));
    let _never = proxy.request(
        move |command| {
            if command.is("EVALSHA") {
                forgets.command(&["SCRIPT", "FLUSH"]);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            false
        },
        1,
    );
    let claims = join_all(keys.iter().map(|key| store.claim(key, &claim)));
    for answer in soon("all answers", claims).await {
        assert!(answer.unwrap().holds());
    }
    // They travel together, several in a call.
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < 64, "{asked} calls");
}

/// A right that is taken away later: each is told so.
#[tokio::test]
async fn a_script_that_may_not_be_sent_any_more_is_refused_to_all() {
    let server = server();
    let store = connect(&server.url_as("alice", "secret")).await.unwrap();
    let (keys, claim) = (keys(64), claim(&store, 1));
    server.command(&["ACL", "SETUSER", "alice", "-eval"]);
    let claims = join_all(keys.iter().map(|key| store.claim(key, &claim)));
    for answer in soon("all answers", claims).await {
        fails(answer, ErrorKind::Refused, &["may not"]);
    }
}

type Claims = Vec<JoinHandle<Result<bool, StoreError>>>;

/// Claims that are under way while one of them tells the server its script, which is held.
async fn while_it_is_told(options: RedisOptions, proxy: &Proxy) -> (Arc<RedisStore>, Held, Claims) {
    let store = Arc::new(RedisStore::connect(options).await.unwrap());
    let held = proxy.hold_request(|command| command.is("EVAL"), 1);
    let claims = keys(8).into_iter().map(|key| {
        let (store, claim) = (Arc::clone(&store), claim(&store, 1));
        tokio::spawn(async move { Ok(store.claim(&key, &claim).await?.holds()) })
    });
    let claims = claims.collect();
    held.wait().await;
    (store, held, claims)
}

#[tokio::test]
async fn whoever_leaves_while_it_tells_the_server_holds_up_nobody() {
    let (server, proxy, options) = proxied();
    for leave in 0..8 {
        server.command(&["FLUSHALL"]);
        server.command(&["SCRIPT", "FLUSH"]);
        let (_store, held, claims) = while_it_is_told(options.clone(), &proxy).await;
        // Whoever it is that tells it, it is among these, or it stays.
        claims[..=leave].iter().for_each(|claim| claim.abort());
        held.release();
        for (at, claim) in claims.into_iter().enumerate().skip(leave + 1) {
            let claimed = soon("an answer", claim).await;
            assert!(claimed.unwrap().unwrap(), "{at} of {leave}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_lost_while_the_server_is_told_leaves_nobody_waiting() {
    let (server, proxy, patient) = proxied();
    let limit = Duration::from_millis(300) * overload();
    let hasty = patient.clone().response_timeout(limit);
    // Its end is seen, or it is silent for longer than an answer may take.
    for (options, cut) in [(patient, true), (hasty, false)] {
        server.command(&["SCRIPT", "FLUSH"]);
        let (store, held, claims) = while_it_is_told(options, &proxy).await;
        if cut {
            proxy.cut();
        }
        for claim in claims {
            let claimed = soon("an answer", claim).await.unwrap();
            fails(claimed, ErrorKind::Unavailable, &[]);
        }
        held.release();
        let (key, claim) = (key("k"), claim(&store, 1));
        answered("an answer", async || store.claim(&key, &claim).await).await;
    }
}
