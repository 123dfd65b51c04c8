//! `postgres://` with `acknowledge=`: a grant counts when standbys have it.

use leasehold::doctor::{Severity, examine};

use super::postgres_store::*;

/// A server with a standby that has each commit.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    fresh: Fresh,
}

impl Pair {
    async fn start() -> Self {
        let primary = Postgres::start();
        let standby = Postgres::replica_of(&primary);
        let fresh = Fresh::at(&primary.url(), "");
        fresh.url().await;
        let pair = Self {
            primary,
            standby,
            fresh,
        };
        pair.wait_for("*").await;
        pair
    }

    /// Sets which standbys have to have a commit.
    async fn wait_for(&self, names: &str) {
        self.set(names).await;
        let synchronous = "select count(*) from pg_stat_replication where sync_state <> 'async'";
        let count = u8::from(!names.is_empty()).to_string();
        let has_role = async || self.primary.sql(synchronous) == count;
        until("the standby has its role", has_role).await;
    }

    async fn set(&self, names: &str) {
        let alter = format!("alter system set synchronous_standby_names = '{names}'");
        self.primary.sql(&alter);
        self.primary.sql("select pg_reload_conf()");
        let setting = "show synchronous_standby_names";
        let is_read = async || self.primary.sql(setting) == names;
        until("the setting is read", is_read).await;
    }

    /// A client for which nothing is over before the test says so, however slow the machine is.
    async fn connect(&self, acknowledge: &str) -> Result<Client, Error> {
        let url = self.fresh.url().await.replace("&pool=2", "&pool=8");
        let url = format!("{url}&response_timeout=5m&connect_timeout=5m&acknowledge={acknowledge}");
        let long = Duration::from_secs(300);
        let settings = Settings::default().with_operation_timeout(Duration::from_secs(30));
        let settings = settings.with_ttl(long).with_waiter_ttl(long);
        let builder = Client::builder().store(url).settings(settings);
        builder.connect().await
    }

    /// Ends the waits of steps, which stand at the primary then, and says whether there were any: of
    /// claims, renewals and releases, whether they ring somebody or not.
    fn cancel_steps(&self) -> bool {
        let cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity \
             where wait_event = 'SyncRep' and query like '%append%' and pid <> pg_backend_pid()";
        self.primary.sql(cancel) != "0"
    }

    /// Ends the wait of the next step.
    async fn cancel_a_step(&self) {
        until("a step waits for the standby", async || self.cancel_steps()).await;
    }
}

#[tokio::test]
async fn a_server_that_waits_for_too_few_is_refused() {
    let pair = Pair::start().await;
    let refused = pair.connect("2").await;
    let said = ["acknowledge=2 is wanted", "waits for 1 standby"];
    hints(&fails(refused, ErrorKind::Refused, &said), "'ANY 2 (*)'");
    pair.wait_for("ANY 1 (*)").await;
    let client = pair.connect("1").await.unwrap();
    use_once(&client, "k").await;
    // Each step looks, whatever was so when it connected.
    pair.wait_for("").await;
    let refused = client.mutex("k").unwrap().lock().await;
    fails(refused, ErrorKind::Refused, &[]);
    let held = pair.connect("none").await.unwrap().inspect("k").await;
    assert!(held.unwrap().holders.is_empty());
}

#[tokio::test]
async fn how_many_a_server_waits_for_is_read_as_it_reads_it() {
    let pair = Pair::start().await;
    for (names, waits) in [
        ("", 0),
        ("a", 1),
        ("a, b", 1),
        ("\"any 2\"", 1),
        ("2 (a, b, c)", 2),
        ("FIRST 2 (a, b)", 2),
        ("Any 3(*)", 3),
    ] {
        pair.set(names).await;
        let error = pair.connect("9").await.unwrap_err().to_string();
        let said = format!("waits for {waits} standbys");
        assert!(error.contains(&said), "{names}: {error}");
        if waits > 0 {
            pair.connect(&waits.to_string()).await.unwrap();
        }
    }
}

/// Who is gone is named, also while others do.
#[tokio::test]
async fn a_standby_that_is_missing_is_named() {
    let pair = Pair::start().await;
    pair.set("ANY 1 (walreceiver, \"s 2\")").await;
    let report = examine(pair.fresh.url().await, &Access::default()).await;
    let findings = report.unwrap().findings;
    let said = "standbys are not connected: s 2";
    let named = findings.iter().find(|finding| finding.found == said);
    let severity = named.map(|finding| finding.severity);
    assert_eq!(severity, Some(Severity::Note), "{findings:?}");
}

/// PostgreSQL says only in a warning that it has not waited.
#[tokio::test]
async fn a_grant_that_no_standby_has_does_not_count() {
    let pair = Pair::start().await;
    // Nor in that where a role wants to hear of errors only; and the other is of old servers.
    for setting in [
        "client_min_messages = error",
        "standard_conforming_strings = off",
    ] {
        let alter = format!("alter database postgres set {setting}");
        pair.primary.sql(&alter);
    }
    let client = pair.connect("1").await.unwrap();
    let observer = pair.connect("none").await.unwrap();
    use_once(&client, "k").await;
    pair.standby.pause();
    let waits = waiting(&client, "k");
    pair.cancel_a_step().await;
    let stands = async || !observer.inspect("k").await.unwrap().holders.is_empty();
    until("it stands at the primary", stands).await;
    // It is asked again, and that waits, too.
    pair.cancel_a_step().await;
    assert!(!waits.is_finished());
    pair.standby.resume();
    drop(granted(waits).await);
}

#[tokio::test]
async fn a_hand_off_that_no_standby_has_does_not_count() {
    let pair = Pair::start().await;
    let client = pair.connect("1").await.unwrap();
    let other = pair.connect("none").await.unwrap();
    // From the first time on, the client that waits is rung.
    let (lease, waits) = contended(&other, &client, "k").await;
    give_back(hand_over(lease, waits).await).await;
    let (lease, waits) = contended(&other, &client, "k").await;
    pair.standby.pause();
    let released = tokio::spawn(lease.release());
    // What waits besides is asked again.
    until("the release", async || {
        pair.cancel_steps();
        released.is_finished()
    })
    .await;
    assert_eq!(released.await.unwrap().unwrap(), Released::Held);
    // Its client has been rung, and renews before it hands out the grant.
    pair.cancel_a_step().await;
    assert!(!waits.is_finished());
    pair.standby.resume();
    drop(granted(waits).await);
}
