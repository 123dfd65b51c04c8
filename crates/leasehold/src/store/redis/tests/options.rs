//! URLs, read and shown.

use std::time::Duration;

use leasehold_core::Invalid;

use super::super::RedisOptions;

fn refused(url: &str) -> Invalid {
    RedisOptions::from_url(url).unwrap_err()
}

#[test]
fn a_url_says_everything() {
    let options = RedisOptions::from_url(
        "rediss://al%40ice:s%3Acret@[::1]:7000/3?prefix=a%20b:&retention=7d\
         &connect_timeout=2s&response_timeout=250ms&ca=/ca.pem&cert=/c.pem&key=/k.pem",
    )
    .unwrap();
    let wanted = RedisOptions::tls("::1", 7000)
        .credentials(Some("al@ice"), "s:cret")
        .db(3)
        .prefix("a b:")
        .retention(Duration::from_secs(7 * 24 * 3600))
        .connect_timeout(Duration::from_secs(2))
        .response_timeout(Duration::from_millis(250))
        .ca_file("/ca.pem")
        .client_certificate("/c.pem", "/k.pem");
    assert_eq!(options, wanted);
    let again = RedisOptions::from_url(&options.redacted_url()).unwrap();
    assert_eq!(again.password.as_deref(), Some("***"));
    assert_eq!(
        RedisOptions {
            password: wanted.password.clone(),
            ..again
        },
        wanted
    );
    for shown in [format!("{options:?}"), options.redacted_url()] {
        assert!(!shown.contains("cret"), "{shown}");
    }
}

#[test]
fn what_is_left_out_has_a_default() {
    let plain = RedisOptions::from_url("valkey://").unwrap();
    assert_eq!(plain, RedisOptions::default());
    assert_eq!(plain.redacted_url(), "redis://127.0.0.1:6379/0");
    assert_eq!(RedisOptions::from_url(&plain.redacted_url()), Ok(plain));
    let socket = RedisOptions::from_url("redis+unix:///run/my%20redis.sock?db=2&pass=x").unwrap();
    let wanted = RedisOptions::unix("/run/my redis.sock")
        .db(2)
        .credentials(None, "x");
    assert_eq!(socket, wanted);
    let again = RedisOptions::from_url(&socket.redacted_url()).unwrap();
    assert_eq!(again, wanted.credentials(None, "***"));
}

#[test]
fn what_cannot_work_is_named() {
    for (url, named) in [
        ("redis://h:99999/", "port"),
        ("redis://h/x", "\"x\""),
        ("redis://h/-1", "\"-1\""),
        ("http://h/", "http"),
        ("redis://h/?tokn=1", "tokn"),
        ("redis://h/?retention=5", "retention"),
        ("redis://h/?retention=1s", "retention"),
        ("redis://h/?response_timeout=1ms", "response_timeout"),
        ("redis://h/?prefix=lock:", "prefix"),
        ("redis://h/?ca=/x", "encrypted"),
        ("rediss://h/?cert=/x", "key"),
        ("redis+unix://", "socket"),
        ("redis://u:%ZZ@h/", "password"),
    ] {
        let invalid = refused(url);
        assert!(invalid.message.contains(named), "{url}: {invalid}");
    }
    assert!(
        refused("redis://h/?tokn=1")
            .hint
            .unwrap()
            .contains("prefix, retention")
    );
    assert!(
        !refused("redis://u:hunter2@h:x/")
            .message
            .contains("hunter2")
    );
}

#[test]
fn the_classic_layout_has_no_prefix_and_reads_back() {
    let classic = RedisOptions::from_url("redis://:s%3Acret@h/2?layout=classic").unwrap();
    let wanted = RedisOptions::tcp("h", 6379)
        .db(2)
        .credentials(None, "s:cret")
        .classic();
    assert_eq!(classic, wanted);
    assert_eq!(classic.prefix, "");
    assert_eq!(
        classic.redacted_url(),
        "redis://:***@h:6379/2?layout=classic"
    );
    let url = "redis://h:1/0?layout=classic&prefix=lock%3A";
    let prefixed = RedisOptions::from_url(url).unwrap();
    assert_eq!(prefixed.prefix, "lock:");
    assert_eq!(prefixed.redacted_url(), url);
    // In whatever order.
    assert_eq!(
        RedisOptions::from_url("redis://h:1/0?prefix=lock:&layout=classic"),
        Ok(prefixed)
    );
    let native = RedisOptions::from_url("redis://h?layout=native").unwrap();
    assert_eq!(native, RedisOptions::tcp("h", 6379));
}

#[test]
fn what_means_nothing_in_the_classic_layout_is_refused() {
    for (parameters, named) in [
        ("layout=classical", "layout"),
        ("layout=classic&retention=1h", "retention"),
        ("layout=classic&acknowledge=1", "acknowledgements"),
    ] {
        let refused = refused(&format!("redis://h/?{parameters}"));
        assert!(refused.message.contains(named), "{refused}");
        assert!(refused.hint.is_some(), "{refused}");
    }
}
