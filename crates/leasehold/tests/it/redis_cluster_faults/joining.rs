//! Connecting to a cluster: permissions, URL schemes, and nodes that are down.

use super::*;
use leasehold::store::Verbs as _;

const RULE: &str = "resetchannels ~leasehold:* &leasehold:* -@all +eval +evalsha +time +mget +exists \
    +type +set +setrange +del +hset +hget +hmget +hgetall +hdel +pexpire +publish +subscribe \
    +unsubscribe +scan +info +ping +cluster|slots +asking";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_rights_are_enough() {
    let node = RedisServer::builder()
        .user("alice", &format!("on >secret {RULE}"))
        .user(
            "bob",
            &format!("on >secret {}", RULE.replace("+cluster|slots", "")),
        )
        .user("default", "off");
    let cluster = Cluster::builder().replicas(0).server(node).start();
    let connect = async |user| {
        let mut options = options(&cluster);
        options.node = options.node.credentials(Some(user), "secret");
        RedisStore::connect_cluster(options).await
    };
    let alice = connect("alice").await.unwrap();
    let (heard, mut pushes) = sink();
    let _ear = alice.listen(heard).await.unwrap();
    let key = key(KEY);
    let slot = slot_of(&cluster, KEY);
    alice.claim(&key, &claim(&alice, 1)).await.unwrap();
    let moving = cluster
        .begin_move(slot, another_primary(&cluster, slot))
        .await;
    assert!(moving.migrate_key(&format!("leasehold:lock:{KEY}")));
    // By way of ASKING.
    alice.claim(&key, &claim(&alice, 2)).await.unwrap();
    moving.finish().await;
    alice.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));
    assert_eq!(alice.list("*").await.unwrap().len(), 1);

    let refused = connect("bob").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(format!("{refused:?}").contains("+cluster|slots"));
    assert!(!format!("{refused:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_scheme_says_which_is_right() {
    let cluster = Cluster::builder().replicas(0).start();
    let node = &cluster[0];
    let client = Client::builder().store(node.url()).connect().await.unwrap();
    let elsewhere = (0..100).map(|n| format!("k{n}"));
    let mut elsewhere =
        elsewhere.filter(|name| cluster.owner_of(slot_of(&cluster, name)).port() != node.port());
    let lock = client.mutex(elsewhere.next().unwrap()).unwrap();
    let refused = lock.lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.hint().unwrap().contains("redis-cluster://"));

    let alone = RedisServer::start();
    let url = alone.url().replace("redis://", "redis-cluster://");
    let refused = Client::builder().store(url).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.hint().unwrap().contains("redis://"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_answers_is_enough() {
    let cluster = Cluster::builder().replicas(0).start();
    let dead = RedisServer::start();
    dead.kill();
    let silent = RedisServer::start();
    silent.stop();
    let seed = |server: &RedisServer| ("127.0.0.1", server.port());
    let seeds = [seed(&dead), seed(&silent), seed(&cluster[1])];
    let begun = Instant::now();
    let store = RedisStore::connect_cluster(RedisClusterOptions::new(seeds)).await;
    let store = store.unwrap();
    for name in ["a", "b{c}d", "}{", "{}", "é{", "a b"] {
        store.claim(&key(name), &claim(&store, 1)).await.unwrap();
    }
    assert!(begun.elapsed() < ms(4_000), "{:?}", begun.elapsed());
    assert_eq!(store.list("*").await.unwrap().len(), 6);

    let nowhere = RedisClusterOptions::new([seed(&dead)]);
    let refused = RedisStore::connect_cluster(nowhere).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        refused.to_string().contains(&dead.port().to_string()),
        "{refused}"
    );
}
