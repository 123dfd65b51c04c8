//! Metrics as Prometheus scrapes them, after real locks.

use futures_util::poll;
use leasehold::observe::Metrics;
use leasehold::{Loss, RenewalPolicy, Retry};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::steps::*;

const BRIEF: Duration = Duration::from_millis(20);

/// The metrics of this thread, which is a test's own.
struct Scraped {
    handle: PrometheusHandle,
    _recorder: metrics::LocalRecorderGuard<'static>,
}

/// A metric with its labels: `hold_active exclusive`.
type Samples = BTreeMap<String, f64>;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

impl Scraped {
    fn start() -> Self {
        let buckets = Matcher::Prefix("leasehold".to_owned());
        let recorder = PrometheusBuilder::new()
            .with_recommended_naming(true)
            .set_buckets_for_metric(buckets, &Metrics::BUCKETS)
            .unwrap()
            .build_recorder();
        let handle = recorder.handle();
        // As long as the process: the guard borrows it.
        let _recorder = metrics::set_default_local_recorder(Box::leak(Box::new(recorder)));
        Self { handle, _recorder }
    }

    /// The families, and each sample by its name and the values of its labels.
    fn read(&self) -> (BTreeMap<String, Family>, Samples) {
        let (mut families, mut samples) = (BTreeMap::<_, Family>::new(), Samples::new());
        let mut current = String::new();
        for line in self.handle.render().lines().filter(|line| !line.is_empty()) {
            if let Some(help) = line.strip_prefix("# HELP ") {
                assert!(help.contains(' '), "{line}");
                continue;
            }
            if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, kind) = typed.split_once(' ').unwrap();
                let family = but(Family::default(), |it| it.kind = kind.to_owned());
                assert!(families.insert(name.to_owned(), family).is_none(), "{line}");
                name.clone_into(&mut current);
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{line}");
            let labelled = series.strip_suffix('}');
            let labelled = labelled.and_then(|series| series.split_once('{'));
            let (name, labels) = labelled.unwrap_or((series, ""));
            let part = name.strip_prefix(&*current).unwrap();
            let family = families.get_mut(&current).unwrap();
            let parts: &[&str] = match &*family.kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(parts.contains(&part), "{line}");
            let mut key = name.strip_prefix("leasehold_").unwrap().to_owned();
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                let (label, value) = label.split_once('=').unwrap();
                let value = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
                key += &format!(" {value}");
                if label != "le" {
                    family.labels.insert(label.to_owned());
                }
            }
            assert!(samples.insert(key, value).is_none(), "{line}");
        }
        (families, samples)
    }

    fn sample(&self, of: &str) -> f64 {
        self.read().1.get(of).copied().unwrap_or_default()
    }

    async fn client() -> (Self, Client) {
        let scraped = Self::start();
        let builder = Client::builder().store("memory:").observer(Metrics::new());
        (scraped, builder.connect().await.unwrap())
    }

    /// Nobody holds, and nobody acquires.
    fn assert_at_rest(&self, after: &str) {
        let (_, samples) = self.read();
        let gauges = samples.iter().filter(|(name, _)| name.contains("_active "));
        let left: Vec<_> = gauges.filter(|(_, value)| **value != 0.0).collect();
        assert!(left.is_empty(), "{after}: {left:?}");
    }
}

/// The table of `docs/metrics.md`: name, type and labels, as Prometheus has them.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let rows = include_str!("../../../../docs/metrics.md").lines();
    let rows = rows.filter(|line| line.starts_with("| `leasehold."));
    let rows = rows.filter(|line| line.split('|').count() == 7);
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, name, kind, unit, labels, ..] = cells[..] else {
            panic!("{row}");
        };
        let plain = |text: &str| text.replace(['`', ' '], "").replace('.', "_");
        let suffix = match (kind, unit) {
            ("counter", "1") => "_total",
            ("histogram", "s") => "_seconds",
            ("gauge", "1") => "",
            _ => panic!("{row}"),
        };
        let labels = plain(labels);
        let labels = labels.split(',').filter(|label| !label.is_empty());
        let labels = labels.map(str::to_owned).collect();
        (plain(name) + suffix, (kind.to_owned(), labels))
    });
    rows.collect()
}

/// A store that tells a client which waits that it may have missed something.
async fn reconnect(scraped: &Scraped) {
    let (store, clock) = MemoryStore::with_manual_clock();
    let builder = Client::builder().with_store(Arc::new(store.client()));
    let client = builder.observer(Metrics::new()).connect().await.unwrap();
    let mutex = client.mutex("reconnects").unwrap();
    let lease = mutex.lock().await.unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap().release().await });
    while scraped.sample("reconnects_total") == 0.0 {
        clock.advance(Duration::ZERO);
        yield_now().await;
    }
    let _ = lease.release().await.unwrap();
    let _ = waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_scrape_shows_what_has_happened() {
    let (scraped, client) = Scraped::client().await;
    let mutex = client.mutex("k").unwrap();
    let lease = mutex.lock().await.unwrap();
    assert_eq!(scraped.sample("hold_active exclusive"), 1.0);
    assert!(mutex.try_lock().await.unwrap().is_none());
    fails(mutex.lock_within(BRIEF).await, ErrorKind::Timeout, &[]);
    {
        let mut waiting = Box::pin(mutex.lock());
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(scraped.sample("acquire_active exclusive"), 1.0);
    }
    assert_eq!(scraped.sample("acquire_active exclusive"), 0.0);
    lease.renew().await.unwrap();
    let _ = lease.release().await.unwrap();
    let broken = mutex.lock().await.unwrap();
    client.break_key("k").await.unwrap();
    assert_eq!(broken.lost().await, Loss::Revoked);
    let reader = client.rwlock("r").unwrap().read().await.unwrap();
    let permit = client.semaphore("s", 3).unwrap().acquire().await.unwrap();
    assert_eq!(scraped.sample("hold_active shared"), 1.0);
    assert_eq!(scraped.sample("hold_active permits"), 1.0);
    let _ = reader.release().await.unwrap();
    let _ = permit.release().await.unwrap();
    let both = client.multi(["a", "b"]).unwrap().lock().await.unwrap();
    assert_eq!(scraped.sample("hold_active exclusive"), 2.0);
    let _ = both.release().await.unwrap();

    reconnect(&scraped).await;

    let (families, samples) = scraped.read();
    let found = families.into_iter();
    let found = found.map(|(name, family)| (name, (family.kind, family.labels)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), documented());
    for (sample, value) in [
        ("acquire_duration_seconds_count exclusive granted", 6.0),
        ("acquire_duration_seconds_count exclusive busy", 1.0),
        ("acquire_duration_seconds_count exclusive timeout", 1.0),
        ("acquire_duration_seconds_count exclusive withdrawn", 1.0),
        ("acquire_duration_seconds_count shared granted", 1.0),
        ("acquire_duration_seconds_count permits granted", 1.0),
        ("hold_duration_seconds_count exclusive released", 5.0),
        ("hold_duration_seconds_count exclusive lost", 1.0),
        ("hold_losses_total exclusive revoked", 1.0),
        ("request_duration_seconds_count claim_all answered", 1.0),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample}: {samples:#?}");
    }
    assert!(samples["hold_renewals_total exclusive answered"] >= 1.0);
    // It waited at least so long, and was asked for with at least one request each.
    assert!(samples["acquire_duration_seconds_sum exclusive timeout"] >= 0.02);
    assert!(samples["request_duration_seconds_count claim answered"] >= 7.0);
    scraped.assert_at_rest("all of that");
}

#[tokio::test]
async fn a_class_of_keys_is_a_label_where_it_is_wanted() {
    let scraped = Scraped::start();
    let metrics = Metrics::by_class(|key| match key.as_str().split_once('/') {
        Some((class, _)) => class.to_owned(),
        None => "other".to_owned(),
    });
    let builder = Client::builder().store("memory:").observer(metrics);
    let client = builder.connect().await.unwrap();
    for key in ["orders/1", "orders/2", "k"] {
        use_once(&client, key).await;
    }
    let (families, samples) = scraped.read();
    for (name, family) in families {
        let has_class = family.labels.contains("leasehold_key_class");
        assert_eq!(has_class, !name.starts_with("leasehold_request_"), "{name}");
    }
    for (class, times) in [("orders", 2.0), ("other", 1.0)] {
        let granted = format!("acquire_duration_seconds_count exclusive granted {class}");
        assert_eq!(samples[&granted], times, "{class}");
    }
    scraped.assert_at_rest("locks of two classes");
}

/// Gauges return to zero in whichever way claims end.
#[tokio::test]
async fn nothing_is_left_in_the_gauges() {
    let (scraped, client) = Scraped::client().await;
    let mutex = client.mutex("k").unwrap();

    drop(mutex.lock().await.unwrap());
    scraped.assert_at_rest("a lease that was dropped");

    let mutex = client.mutex("handed-over").unwrap();
    let lease = mutex.lock().await.unwrap();
    let parts = lease.into_parts().await.unwrap();
    scraped.assert_at_rest("a lease that was handed over");
    let lease = mutex.adopt(&parts).await.unwrap();
    assert_eq!(scraped.sample("hold_active exclusive"), 1.0);
    let _ = lease.release().await.unwrap();
    scraped.assert_at_rest("a lease that was adopted");
    assert!(mutex.adopt(&parts).await.is_err());
    scraped.assert_at_rest("an adoption that came too late");

    let short = client.mutex("short").unwrap();
    let short = short.with_renewal(RenewalPolicy::Fixed);
    let short = short.with_ttl(Duration::from_millis(200));
    let lease = short.lock().await.unwrap();
    lease.lost().await;
    drop(lease);
    scraped.assert_at_rest("a lease whose time was over");

    let writer = client.rwlock("w").unwrap().write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    let _ = reader.release().await.unwrap();
    scraped.assert_at_rest("a writer that became a reader");

    let held = client.mutex("b").unwrap().lock().await.unwrap();
    let both = client.multi(["a", "b"]).unwrap();
    fails(both.lock_within(BRIEF).await, ErrorKind::Timeout, &[]);
    assert!(both.try_lock().await.unwrap().is_none());
    drop(held);

    let retrying = mutex.clone().retrying(Retry::default());
    let held = mutex.lock().await.unwrap();
    fails(retrying.lock_within(BRIEF).await, ErrorKind::Timeout, &[]);
    drop(held);
    scraped.assert_at_rest("claims that were never granted");

    let held = mutex.lock().await.unwrap();
    let mut waiting = Box::pin(mutex.lock());
    assert!(poll!(&mut waiting).is_pending());
    let (_, waited) = tokio::join!(client.shutdown(Duration::from_secs(5)), waiting);
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Closed);
    scraped.assert_at_rest("a client that was shut down");
    assert_eq!(scraped.sample("hold_losses_total exclusive shutdown"), 1.0);
    drop(held);
    scraped.assert_at_rest("what it had left");
}
