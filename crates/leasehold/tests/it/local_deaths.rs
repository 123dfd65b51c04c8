//! Crashes of clients of the local store: each test kills real processes, which run this binary
//! in a special role.
#![cfg(all(unix, feature = "local"))]

use crate::local_support::roles::ALL;
use crate::local_support::*;

#[tokio::test]
async fn killed_in_the_middle_of_several_keys_leaves_none_taken() {
    let place = Place::new();
    let store = place.open().await;
    for id in 0..30_u128 {
        let mut churning = place.start("churn all");
        churning.says("churning").await;
        moment(5_000).await;
        churning.kill().await;
        let granted = has_all(&store, &parts(&store, &ALL, id)).await;
        assert!(granted, "the dead are buried in the same step");
        for name in ALL {
            store.release(&key(name), &release(id)).await.unwrap();
        }
    }
}
