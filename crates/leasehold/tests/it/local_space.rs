//! The local store on a full disk: leases are still renewed and released.
#![cfg(all(target_os = "linux", feature = "local"))]

use crate::local_support::*;

const TTL: Duration = Duration::from_secs(3);

/// What there is no more of.
#[derive(Debug, Clone, Copy)]
enum Out {
    OfBytes,
    OfInodes,
}

impl Out {
    fn fill(self, disk: &Mounted) {
        let directory = disk.path();
        match self {
            Self::OfBytes => {
                fs::write(directory.join("filler"), vec![0; 1 << 20]).expect_err("a full disk");
            }
            Self::OfInodes => {
                let full = (0..10_000)
                    .map(|number| fs::write(directory.join(format!("filler{number}")), ""))
                    .find_map(Result::err);
                full.expect("a disk without inodes");
            }
        }
    }
}

fn renew(id: u128) -> Renew {
    Renew::new(ClaimId::from_random(id), LIMIT)
}

async fn renewed(store: &LocalStore, key: &Key, id: u128) {
    let answer = store.renew(key, &renew(id)).await.unwrap();
    assert!(answer.holds(), "{answer:?}");
}

/// Nothing new can begin, which is said, and leaves nothing.
async fn nothing_new(store: &LocalStore, disk: &Mounted) {
    let refused = store.claim(&key("new"), &claim(store, 9)).await;
    fails(refused, ErrorKind::Refused, &["the disk is full"]);
    assert!(!disk.path().join("records/new.rec").exists());
}

async fn what_is_held_goes_on(out: Out) {
    let Some(disk) = Mounted::new() else { return };
    let store = open(&disk.url()).await;
    let [one, two, three] = ["one", "two", "three"].map(key);
    assert!(claimed(&store, &one, 1).await.token.is_some());
    assert!(has_all(&store, &parts(&store, &["two", "three"], 2)).await);
    out.fill(&disk);
    nothing_new(&store, &disk).await;
    // As many as take hours.
    for _ in 0..300 {
        renewed(&store, &one, 1).await;
        renewed(&store, &two, 2).await;
        renewed(&store, &three, 2).await;
    }
    nothing_new(&store, &disk).await;
    released(&store, &one, 1).await;
    released(&store, &two, 2).await;
    released(&store, &three, 2).await;
    assert!(store.inspect(&one).await.unwrap().holders.is_empty());
}

tests! {
    #[tokio::test]
    fn what_is_held_goes_on_without_a_free_byte() { what_is_held_goes_on(Out::OfBytes) }
    fn what_is_held_goes_on_without_a_free_inode() { what_is_held_goes_on(Out::OfInodes) }
}

/// The record of many who wait takes several blocks, and shrinks and grows.
#[tokio::test]
async fn a_long_queue_is_served_without_a_free_byte() {
    let Some(disk) = Mounted::of("1m") else {
        return;
    };
    let (store, key, number) = (open(&disk.url()).await, key("k"), 100);
    for id in 1..=number {
        claimed(&store, &key, id).await;
    }
    let record = fs::metadata(disk.path().join("records/k.rec")).unwrap();
    assert!(record.len() > 8 * 1024, "{record:?}");
    Out::OfBytes.fill(&disk);
    for id in 1..=number {
        for waiting in id + 1..=number.min(id + 3) {
            store.renew(&key, &renew(waiting)).await.unwrap();
        }
        renewed(&store, &key, id).await;
        released(&store, &key, id).await;
    }
}

/// A key that was released before the disk was full, and whose record is small.
#[tokio::test]
async fn a_key_that_was_idle_is_kept_without_a_free_byte() {
    let Some(disk) = Mounted::new() else { return };
    let (store, key, mode) = (open(&disk.url()).await, key("k"), Mode::permits(40, 1));
    for id in 1..=2 {
        claimed(&store, &key, id).await;
        released(&store, &key, id).await;
    }
    for id in 11..=30 {
        let permit = but(claim(&store, id), |it| it.mode = mode);
        let answer = store.claim(&key, &permit).await.unwrap();
        assert!(answer.holds(), "{answer:?}");
    }
    Out::OfBytes.fill(&disk);
    for id in (11..=30).chain(11..=30) {
        renewed(&store, &key, id).await;
    }
    for id in 11..=30 {
        released(&store, &key, id).await;
    }
}

#[tokio::test]
async fn a_lease_lives_on_beyond_its_ttl_without_a_free_byte() {
    let Some(disk) = Mounted::new() else { return };
    let client = client_with(&disk.url(), Settings::default().with_ttl(TTL)).await;
    let lease = lock(&client, "k").await;
    Out::OfBytes.fill(&disk);
    let lost = timeout(TTL * 2 + TTL / 2, lease.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(lease.release().await.is_ok());
}
