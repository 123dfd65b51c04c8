//! The listing of a set: what has come is not lost, and what has not is asked for again.
#![cfg(feature = "redis")]

use crate::redlock_support::{RedisServer, Set, claim, key, token};
use crate::steps::*;
use leasehold::store::Listing;
use leasehold::store::redis::RedlockStore;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A set on which these keys are held.
async fn held(parameters: &str) -> (Set, RedlockStore) {
    let set = Set::start(3, parameters).await;
    let store = set.store().await;
    for (number, name) in (1..).zip(NAMES) {
        let claim = claim(&store, number, Duration::from_secs(600));
        token(store.claim(&key(name), &claim).await.unwrap().reply);
    }
    (set, store)
}

/// The names on all pages that are left, sorted.
async fn rest(mut listing: Box<dyn Listing + '_>) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(page) = listing.next_page().await.unwrap() {
        names.extend(page.found.into_iter().map(|(key, _)| key.to_string()));
    }
    names.sort();
    names
}

#[tokio::test]
async fn a_listing_that_too_few_servers_answered_goes_on_when_they_do() {
    let (set, store) = held("max_ttl=10min").await;
    let mut listing = store.listing("*");
    set.servers[..2].iter().for_each(RedisServer::stop);
    for _ in 0..3 {
        fails(listing.next_page().await, ErrorKind::Unavailable, &[]);
    }
    set.servers[..2].iter().for_each(RedisServer::cont);
    assert_eq!(rest(listing).await, NAMES);
}

#[tokio::test]
async fn what_has_come_of_a_page_that_is_given_up_is_not_lost() {
    let (set, store) = held("max_ttl=10min&node_timeout=10s").await;
    // Each key lies on the others only, which answer first.
    for name in NAMES {
        set.servers[2].command(&["DEL", &format!("leasehold:lock:{name}")]);
    }
    let mut listing = store.listing("*");
    set.servers[2].stop();
    let given_up = timeout(Duration::from_secs(1), listing.next_page()).await;
    assert!(given_up.is_err());
    set.servers[2].cont();
    assert_eq!(rest(listing).await, NAMES);
}
