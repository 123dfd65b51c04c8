use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::thread;

use futures_util::FutureExt;

use super::*;

/// The next id of a scheme that does not wait.
fn draw(ids: &ClaimIds) -> ClaimId {
    ids.next().now_or_never().unwrap().unwrap()
}

#[test]
fn ids_of_many_threads_are_unique() {
    const THREADS: usize = 4;
    const EACH: usize = 5_000;
    let numbers = AtomicU16::new(0);
    let own = Arc::new(move || ClaimId::new(numbers.fetch_add(1, Ordering::Relaxed).to_string()));
    let snowflake = ClaimIds::snowflake(SnowflakeConfig::new(1, 2)).unwrap();
    for ids in [
        ClaimIds::random(),
        ClaimIds::host_process_time(),
        snowflake,
        ClaimIds::custom(own),
    ] {
        let all: Vec<ClaimId> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let ids = ids.clone();
                    scope.spawn(move || {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_time()
                            .build()
                            .unwrap();
                        runtime.block_on(async {
                            let mut drawn = Vec::with_capacity(EACH);
                            for _ in 0..EACH {
                                drawn.push(ids.next().await.unwrap());
                            }
                            drawn
                        })
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        let different: HashSet<&ClaimId> = all.iter().collect();
        assert_eq!(different.len(), THREADS * EACH, "{ids:?}");
    }
}

#[test]
fn the_default_is_random() {
    let id = draw(&ClaimIds::default());
    assert_eq!(id.expose().len(), 32);
    assert!(id.expose().bytes().all(|b| b.is_ascii_hexdigit()));
}

#[test]
fn an_audit_can_read_host_process_and_time() {
    let ids = ClaimIds::host_process_time();
    let before = clock::wall().as_micros();
    let (first, second) = (draw(&ids), draw(&ids.clone()));
    let after = clock::wall().as_micros();
    for (id, sequence) in [(first, "0000"), (second, "0001")] {
        let fields: Vec<&str> = id.expose().split('-').collect();
        let [kind, host, pid, time, number, secret] = fields[..] else {
            panic!("{}", id.expose())
        };
        assert!(matches!((kind, host.len()), ("mac", 12) | ("host", 10)));
        assert_eq!(pid, std::process::id().to_string());
        assert!((before..=after).contains(&time.parse().unwrap()));
        assert_eq!((number, secret.len()), (sequence, 13));
    }
}

#[test]
fn the_longest_id_fits() {
    // The last microsecond of sixteen digits is in the year 2286.
    let now = Duration::from_micros(9_999_999_999_999_999);
    for host in ["mac-ffffffffffff", "host-ffffffffff"] {
        let scheme = HostProcessTime {
            host: host.to_owned(),
            sequence: AtomicU16::new(u16::MAX),
        };
        let id = scheme.next(now).unwrap();
        let pid = std::process::id().to_string().len();
        let longest = u32::MAX.to_string().len();
        assert!(id.expose().len() + longest - pid <= ClaimId::MAX_BYTES);
        assert!(id.expose().contains("-ffff-"));
        assert!(scheme.next(now).unwrap().expose().contains("-0000-"));
    }
    assert_eq!(base_36(0), "0000000000000");
    assert_eq!(base_36(35), "000000000000z");
    assert_eq!(base_36(u64::MAX), "3w5e11264sgsf");
}

/// A clock that shows what it is told, then stands still.
fn clock_of(shows: &[u64]) -> impl Fn() -> Duration + use<> {
    let shows = Mutex::new(shows.iter().copied().collect::<VecDeque<_>>());
    move || {
        let mut shows = shows.lock().unwrap();
        let now = if shows.len() > 1 {
            shows.pop_front()
        } else {
            shows.front().copied()
        };
        Duration::from_millis(now.unwrap())
    }
}

fn places(on_step_back: StepBack) -> Places {
    let config = SnowflakeConfig {
        epoch: UNIX_EPOCH,
        on_step_back,
        ..SnowflakeConfig::new(0, 0)
    };
    let machine = Snowflake::new(&config, Duration::from_millis(1000)).unwrap();
    Places {
        config,
        machine: Mutex::new(machine),
    }
}

fn number(id: Result<ClaimId, StoreError>) -> u64 {
    id.unwrap().expose().parse().unwrap()
}

#[tokio::test]
async fn a_clock_that_is_a_little_behind_is_waited_for() {
    let at_most = Duration::from_millis(10);
    let places = places(StepBack::Wait { at_most });
    // It steps back twice: by 4 ms, and by 5 ms while that is waited for.
    let wall = clock_of(&[1000, 996, 995, 1000]);
    assert_eq!(number(places.next(&wall).await), 1000 << 22);
    assert_eq!(number(places.next(&wall).await), 1000 << 22 | 1);
    // All the waiting for one id counts: 4 ms and 7 ms are too much.
    let error = places.next(clock_of(&[996, 993])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.retry_after(), Some(Duration::from_millis(7)));
    assert!(error.source().is_none());
}

#[tokio::test]
async fn a_clock_that_is_behind_is_refused_on_request() {
    let places = places(StepBack::Refuse);
    assert_eq!(number(places.next(clock_of(&[1000])).await), 1000 << 22);
    let error = places.next(clock_of(&[999])).now_or_never().unwrap();
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(
        error.to_string(),
        "the clock is 1ms behind the last claim id"
    );
    let next = places.next(clock_of(&[1000])).await;
    assert_eq!(number(next), 1000 << 22 | 1);
}

#[tokio::test]
async fn a_full_millisecond_is_waited_out_even_without_patience() {
    let places = places(StepBack::Refuse);
    let stands = clock_of(&[1000]);
    for sequence in 0..snowflake::PER_MILLISECOND {
        let id = places.next(&stands).now_or_never().unwrap();
        assert_eq!(number(id), 1000 << 22 | sequence);
    }
    assert!(places.next(&stands).now_or_never().is_none());
    let next = places.next(clock_of(&[1000, 1001])).await;
    assert_eq!(number(next), 1001 << 22);
}

#[tokio::test]
async fn after_69_years_it_is_over() {
    let places = places(StepBack::Refuse);
    let error = places.next(clock_of(&[snowflake::LIFE])).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn what_makes_no_sense_is_invalid() {
    let error = ClaimIds::snowflake(SnowflakeConfig::new(32, 0)).unwrap_err();
    assert!(error.message.contains("data centre 32"), "{error}");
    let own = ClaimIds::custom(Arc::new(|| ClaimId::new("with a space")));
    let error = own.next().now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn debug_shows_the_scheme_and_no_secret() {
    let shown = |ids: ClaimIds| format!("{ids:?}");
    assert_eq!(shown(ClaimIds::random()), "ClaimIds(random)");
    let host = host::mark();
    assert_eq!(
        shown(ClaimIds::host_process_time()),
        format!("ClaimIds(host, process, time: {host})")
    );
    let snowflake = ClaimIds::snowflake(SnowflakeConfig::new(3, 7)).unwrap();
    assert_eq!(shown(snowflake), "ClaimIds(snowflake: 3/7)");
    let own = ClaimIds::custom(Arc::new(|| ClaimId::new("secret")));
    assert_eq!(shown(own), "ClaimIds(custom)");
}
