use std::collections::HashSet;
use std::thread;

use super::*;

#[test]
fn ids_of_many_threads_are_unique() {
    const THREADS: usize = 4;
    const EACH: usize = 5_000;
    for ids in [
        ClaimIds::random(),
        ClaimIds::host_process_time(),
        ClaimIds::snowflake(SnowflakeConfig::new(1, 2)).unwrap(),
        ClaimIds::custom(Arc::new(|| "always-the-same".to_owned())),
    ] {
        let draw = || (0..EACH).map(|_| ids.next().unwrap()).collect::<Vec<_>>();
        let all: Vec<ClaimId> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(draw)).collect();
            let drawn = threads.into_iter().map(|thread| thread.join().unwrap());
            drawn.flatten().collect()
        });
        let different: HashSet<&ClaimId> = all.iter().collect();
        assert_eq!(different.len(), THREADS * EACH, "{}", all[0].expose());
    }
}

#[test]
fn the_default_is_random() {
    let id = ClaimIds::default().next().unwrap();
    assert_eq!(id.expose().len(), 32);
    assert!(id.expose().bytes().all(|b| b.is_ascii_hexdigit()));
}

#[test]
fn an_audit_can_read_host_process_and_time() {
    let ids = ClaimIds::host_process_time();
    let copy = ids.clone();
    let before = clock::wall().as_micros();
    let (first, second) = (ids.next().unwrap(), copy.next().unwrap());
    let after = clock::wall().as_micros();
    for (id, sequence) in [(first, "0000"), (second, "0001")] {
        let fields: Vec<&str> = id.expose().split('-').collect();
        let [kind, host, pid, time, number, secret] = fields[..] else {
            panic!("{}", id.expose())
        };
        assert!(matches!((kind, host.len()), ("mac", 12) | ("host", 10)));
        assert_eq!(pid, std::process::id().to_string());
        assert!((before..=after).contains(&time.parse().unwrap()));
        assert_eq!((number, secret.len()), (sequence, RANDOM_DIGITS));
    }
}

/// Else the task of all leases of a client would end at the next rotation.
#[test]
fn a_function_that_panics_makes_no_id() {
    let ids = ClaimIds::custom(Arc::new(|| -> String { panic!("of its caller") }));
    let error = ids.next().unwrap_err();
    assert_eq!(error.message, "the function for claim ids has panicked");
}

#[test]
fn the_longest_readable_part_fits() {
    // The last microsecond of sixteen digits is in the year 2286.
    let longest = format!("host-ffffffffff-{}-9999999999999999-ffff", u32::MAX);
    assert!(longest.len() <= ClaimIds::MAX_READABLE_BYTES);
    let custom = |readable: &str| {
        let readable = readable.to_owned();
        ClaimIds::custom(Arc::new(move || readable.clone())).next()
    };
    let longest = "x".repeat(ClaimIds::MAX_READABLE_BYTES);
    for fits in ["x", "a-b", &longest] {
        let id = custom(fits).unwrap();
        let (readable, secret) = id.expose().rsplit_once('-').unwrap();
        assert_eq!((readable, secret.len()), (fits, RANDOM_DIGITS));
    }
    for refused in ["", "with a space", "ü", "line\n", &format!("{longest}x")] {
        let error = custom(refused).unwrap_err();
        let expected = "the readable part of a claim id must be 1 to 50 printable ASCII characters \
                        without spaces";
        assert_eq!(error.message, expected, "{refused:?}");
    }
    assert_eq!(base_36(0), "0000000000000");
    assert_eq!(base_36(35), "000000000000z");
    assert_eq!(base_36(u64::MAX), "3w5e11264sgsf");
}

#[test]
fn snowflake_numbers_are_decimal_and_rise() {
    let ids = ClaimIds::snowflake(SnowflakeConfig::new(3, 7)).unwrap();
    let number = || {
        let id = ids.next().unwrap();
        let (number, _) = id.expose().split_once('-').unwrap();
        number.parse::<u64>().unwrap()
    };
    let (first, second) = (number(), number());
    assert!(first < second && first >> 12 & 1023 == 3 << 5 | 7);
    let most = SnowflakeConfig::MAX_PLACE;
    assert!(ClaimIds::snowflake(SnowflakeConfig::new(most, most)).is_ok());
    assert!(ClaimIds::snowflake(SnowflakeConfig::new(most + 1, 0)).is_err());
}

#[test]
fn debug_shows_the_scheme_and_no_secret() {
    let shown = |ids: ClaimIds| format!("{ids:?}");
    assert_eq!(shown(ClaimIds::random()), "ClaimIds(random)");
    let readable = format!("ClaimIds(host, process, time: {})", host::mark());
    assert_eq!(shown(ClaimIds::host_process_time()), readable);
    let snowflake = ClaimIds::snowflake(SnowflakeConfig::new(3, 7)).unwrap();
    assert_eq!(shown(snowflake), "ClaimIds(snowflake: 3/7)");
    let custom = ClaimIds::custom(Arc::new(|| "secret".to_owned()));
    assert_eq!(shown(custom), "ClaimIds(custom)");
}
