//! Connecting to a cluster: permissions, URL schemes, and nodes that are down.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_rights_are_enough() {
    let bob = format!("on >secret {LEAST_RIGHTS} +asking");
    let node = RedisServer::builder()
        .user("alice", &format!("{bob} +cluster|slots"))
        .user("bob", &bob)
        .user("default", "off");
    let cluster = Cluster::builder().replicas(0).server(node).start();
    let connect = async |user| {
        let mut options = options(&cluster);
        options.node = options.node.credentials(Some(user), "secret");
        RedisStore::connect_cluster(options).await
    };
    let alice = connect("alice").await.unwrap();
    let (_ear, mut pushes) = listen(&alice).await;
    let key = key(KEY);
    let slot = slot_of(&cluster, KEY);
    alice.claim(&key, &claim(&alice, 1)).await.unwrap();
    let moving = begin_move(&cluster, slot).await;
    migrate(&moving, KEY);
    // By way of ASKING.
    alice.claim(&key, &claim(&alice, 2)).await.unwrap();
    moving.finish().await;
    alice.release(&key, &release(1)).await.unwrap();
    assert!(matches!(next(&mut pushes).await, Push::Granted { .. }));
    assert_eq!(alice.list("*").await.unwrap().len(), 1);

    let refused = fails(connect("bob").await, ErrorKind::Refused, &[]);
    assert!(format!("{refused:?}").contains("+cluster|slots"));
    assert!(!format!("{refused:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_scheme_says_which_is_right() {
    let cluster = Cluster::builder().replicas(0).start();
    let node = &cluster[0];
    let client = leasehold::connect(node.url()).await.unwrap();
    let is_here = |name: &String| cluster.owner_of(slot_of(&cluster, name)).port() == node.port();
    let mut names = (0..100).map(|n| format!("k{n}"));
    let elsewhere = names.find(|name| !is_here(name)).unwrap();
    let locked = client.mutex(elsewhere).unwrap().lock().await;
    hints(&fails(locked, ErrorKind::Refused, &[]), "redis-cluster://");

    let alone = RedisServer::start();
    let url = alone.url().replace("redis://", "redis-cluster://");
    let refused = fails(leasehold::connect(url).await, ErrorKind::Refused, &[]);
    hints(&refused, "redis://");
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

    let refused = RedisStore::connect_cluster(RedisClusterOptions::new([seed(&dead)])).await;
    fails(refused, ErrorKind::Unavailable, &[&dead.port().to_string()]);
}
