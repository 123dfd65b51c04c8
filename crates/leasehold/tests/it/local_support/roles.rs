//! What the other processes do that tests of the local store start: this program again, in a role.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use tokio::task::spawn_blocking;

use super::*;

/// The keys that are claimed in one step.
pub(crate) const ALL: [&str; 3] = ["c", "a", "b"];

/// Not a test by itself: what the other processes do.
#[tokio::test]
async fn role() {
    let Some((role, url)) = my_role() else { return };
    let url = &url;
    match role.as_str() {
        "try" => try_once(url).await,
        "hold" => hold(url).await,
        "guard" => guard(url).await,
        "add" => add(url).await,
        "churn" => churn(url, false).await,
        "churn all" => churn(url, true).await,
        other => panic!("no role {other}"),
    }
}

/// Says whether the key is free, or why the store is refused.
async fn try_once(url: &str) {
    match connect(url).await {
        Ok(client) if try_lock(&client, "k").await.is_some() => eprintln!("granted"),
        Ok(_) => eprintln!("busy"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
            eprintln!("refused: {error}; {}", error.hint().unwrap());
        }
    }
}

/// Holds the key until its input ends.
async fn hold(url: &str) {
    let (_client, lease) = held(url).await;
    eprintln!("held {}", lease.token());
    let rest = spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    rest.await.unwrap().unwrap();
    let _ = lease.release().await.unwrap();
    eprintln!("released");
}

/// Holds the key, with a child that lives for it until the input ends.
async fn guard(url: &str) {
    let store = Arc::new(open(url).await);
    for lifeline in store.child_fds() {
        rustix::io::fcntl_setfd(lifeline, rustix::io::FdFlags::empty()).unwrap();
    }
    let client = Client::builder().with_store(store).connect().await.unwrap();
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    let mut child = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
    eprintln!("held {}", lease.token());
    spawn_blocking(move || child.wait()).await.unwrap().unwrap();
}

/// Reads, adds and writes twenty times; a log line says which value it wrote.
async fn add(url: &str) {
    let directory = env::var("LEASEHOLD_TEST_COUNTER").unwrap();
    let directory = Path::new(&directory);
    let client = connect(url).await.unwrap();
    let key = client.mutex("counter").unwrap();
    for _ in 0..20 {
        let lease = key.lock().await.unwrap();
        let counter = directory.join("counter");
        let value: u64 = fs::read_to_string(&counter).unwrap().parse().unwrap();
        let temporary = directory.join(format!("new-{}", std::process::id()));
        fs::write(&temporary, (value + 1).to_string()).unwrap();
        fs::rename(&temporary, &counter).unwrap();
        let log = OpenOptions::new().append(true).open(directory.join("log"));
        let line = format!("{} {}\n", value + 1, lease.token());
        log.unwrap().write_all(line.as_bytes()).unwrap();
        let _ = lease.release().await.unwrap();
    }
    eprintln!("done");
}

/// Claims and releases for ever, through the port: one key, or all in one step.
async fn churn(url: &str, all: bool) {
    let store = open(url).await;
    let names = if all { &ALL[..] } else { &["k"] };
    for number in 0.. {
        let id = u128::from(std::process::id()) << 64 | number;
        if all {
            let has = has_all(&store, &parts(&store, names, id)).await;
            assert!(has, "nobody else wants them");
        } else {
            store.claim(&key("k"), &claim(&store, id)).await.unwrap();
        }
        for name in names {
            store.release(&key(name), &release(id)).await.unwrap();
        }
        if number == 0 {
            eprintln!("churning");
        }
    }
}
