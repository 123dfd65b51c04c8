//! Tests: parsing and formatting of URLs.

use std::path::Path;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::ErrorKind;
use leasehold_store::access::{Access, TlsOptions};
use leasehold_store::scheme::Scheme;

use crate::options::RedisOptions;
use crate::quorum::RedlockOptions;
use crate::routing::cluster::RedisClusterOptions;
use crate::scheme::{ManyNodes, OneServer, Votes};

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
    let tls = TlsOptions::trusting(Path::new("/ca.pem"))
        .with_certificate(Path::new("/c.pem"), Path::new("/k.pem"));
    let certificates = Access::default().tls(tls);
    let wanted = RedisOptions::tls("::1", 7000)
        .credentials(Some("al@ice"), "s:cret")
        .db(3)
        .prefix("a b:")
        .retention(Duration::from_secs(7 * 24 * 3600))
        .connect_timeout(Duration::from_secs(2))
        .response_timeout(Duration::from_millis(250))
        .with_access(&certificates);
    assert_eq!(options, wanted);
    let mut again = RedisOptions::from_url(&options.redacted_url()).unwrap();
    assert_eq!(again.access.password.as_deref(), Some("***"));
    again.access.password.clone_from(&wanted.access.password);
    assert_eq!(again, wanted);
    for shown in [format!("{options:?}"), options.redacted_url()] {
        assert!(!shown.contains("cret"), "{shown}");
    }
}

#[test]
fn what_is_left_out_has_a_default() {
    let plain = RedisOptions::from_url("valkey://127.0.0.1").unwrap();
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

/// Each with what is named.
#[test]
fn what_cannot_work_is_named() {
    let urls = r#"redis://h:99999/ port
        redis:// names no host
        redis:///2 names no host
        rediss://?prefix=a names no host
        valkey:/// names no host
        redis://h/x "x"
        redis://h/-1 "-1" is not a number from 0
        redis://h/3?db=4 the databases 3 and 4
        http://h/ http
        redis://h/?tokn=1 tokn
        redis://h/?retention=5 retention
        redis://h/?retention=1s retention
        redis://h/?response_timeout=1ms response_timeout
        redis://h/?prefix=lock: prefix
        redis://h/?prefix=%FF prefix is not UTF-8
        redis-sentinel://h/m?sentinel_pass=hush%FF sentinel_pass is not UTF-8
        redis://h/?ca=/x encrypted
        rediss://h/?cert=/x key
        rediss://h/?cert=/x&key= key
        rediss://h/?ca= ca
        redis+unix:// socket
        redis://h/0#1 #
        redis://h/?prefix=a#b #
        redis+unix:run/redis.sock socket
        redis://u:%ZZ@h/ password
        redis-sentinel://h1,h2 the name of the primary
        redis-sentinel:///m Sentinel
        redis-sentinel://h1,,h3/m Sentinel 2
        redis-sentinel://h1,h2:x/m Sentinel 2
        redis-sentinel://u:hush/x@h/m @
        redis-sentinel://u:1/hush@h,g/m @
        redis-sentinel://h1/m/x "x"
        redis://h1,h2/0 one server
        redis://h/?sentinel_pass=hush sentinel_pass
        redis-sentinel://h/m?ca=/x encrypted
        redis://h/?acknowledge=0 no replica
        redis://h/?acknowledge=many "many"
        redis://h/?acknowledge=disk:x disk:x
        redis://h/?acknowledge=5000 too many
        redis://h/?acknowledge_timeout=1s and no `acknowledge`
        redis://h/?acknowledge=1&acknowledge_timeout=2h acknowledge_timeout
        redis://h/?acknowledge=1&acknowledge_renewals=maybe maybe
        redis://h/?restart=perhaps "perhaps"
        redis://h/?max_ttl=10s no effect
        redis://h/?quarantine=10s no effect
        redis://h/?restart=trust&max_ttl=10s no effect
        redis://h/?restart=quarantine&max_ttl=10ms a max_ttl of 10ms
        redis://h/?restart=quarantine&max_ttl=2d a max_ttl of
        redis://h/?restart=quarantine&quarantine=119s 1m59s is out of bounds
        redis://h/?restart=quarantine&quarantine=0s 0s is out of bounds
        redis://h/?restart=quarantine&max_ttl=soon "soon""#;
    for row in urls.lines().map(str::trim) {
        let (url, named) = row.split_once(' ').unwrap();
        let invalid = refused(url);
        assert!(invalid.message.contains(named), "{url}: {invalid}");
        assert!(!format!("{invalid:?}").contains("hush"), "{url}");
    }
    let nameless = [RedisOptions::tcp("", 6379), RedisOptions::tls("", 6379)];
    assert!(nameless.iter().all(|it| it.check().is_err()));
    let hint = refused("redis://").hint.unwrap();
    assert!(hint.contains("127.0.0.1"), "{hint}");
    let hint = refused("redis://h/?tokn=1").hint.unwrap();
    assert!(hint.contains("prefix, retention"), "{hint}");
    let hint = refused("redis+unix://u:hush@/s").hint.unwrap();
    assert!(hint.contains("redis+unix:///path?user="), "{hint}");
    let message = refused("redis://u:hunter2@h:x/").message;
    assert!(!message.contains("hunter2"), "{message}");
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
    let shown = "redis://:***@h:6379/2?layout=classic";
    assert_eq!(classic.redacted_url(), shown);
    let url = "redis://h:1/0?layout=classic&prefix=lock%3A";
    let prefixed = RedisOptions::from_url(url).unwrap();
    assert_eq!(prefixed.prefix, "lock:");
    assert_eq!(prefixed.redacted_url(), url);
    // In whatever order.
    let turned = "redis://h:1/0?prefix=lock:&layout=classic";
    assert_eq!(RedisOptions::from_url(turned), Ok(prefixed));
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

/// What is shown is read again: by the guarded program, for one.
#[test]
fn odd_names_read_back_the_same() {
    let read = |url: &str| RedisOptions::from_url(url).unwrap();
    let urls = "\
        redis://a%2Fb:x@h/ | redis://a%2Fb:***@h:6379/0
        redis+unix:///a%2F..%2Fb%25 | redis+unix:///a%2F..%2Fb%25?db=0
        redis-sentinel://a%2Fb:x@h/m%2F1 | redis-sentinel://a%2Fb:***@h:26379/m%2F1/0
        redis://m\u{fc}nchen/ | redis://m\u{fc}nchen:6379/0";
    for row in urls.lines().map(str::trim) {
        let (url, shown) = row.split_once(" | ").unwrap();
        let options = read(url);
        assert_eq!(options.redacted_url(), shown, "{url}");
        let mut again = read(shown);
        assert_eq!(again.redacted_url(), shown, "{url}");
        again.access.password.clone_from(&options.access.password);
        assert_eq!(again, options, "{url}");
    }
    let cluster = RedisClusterOptions::from_url("redis-cluster://a%2Fb:***@h1,h2/").unwrap();
    let shown = cluster.redacted_url();
    assert_eq!(RedisClusterOptions::from_url(&shown), Ok(cluster));
    let set = RedlockOptions::from_url("redlock://a%2Fb:***@h1,h2,h3/").unwrap();
    assert_eq!(RedlockOptions::from_url(&set.redacted_url()), Ok(set));
}

#[test]
fn no_host_has_a_name_that_ends_in_a_url() {
    for host in [
        "a%2Fb", "a%2Cb", "a%40b", "a%3Ab", "a%0Ab", "a%20b", "a%00", "%25",
    ] {
        for url in [
            format!("redis://{host}/"),
            format!("redis-sentinel://g,{host}/m"),
        ] {
            let invalid = refused(&url);
            let named = invalid.message.contains("not a valid host name");
            assert!(named, "{url}: {invalid}");
        }
    }
    assert!(refused("redis+unix:///a%00b").message.contains("zero byte"));
}

/// The last server would have had another database than the others.
#[test]
fn a_set_has_no_server_that_is_cut_short() {
    let cut = RedlockOptions::from_url("redlock://a,b,c:#/1?quorum=3").unwrap_err();
    assert!(cut.message.contains('#'), "{cut}");
}

/// A password that is not encoded ends up anywhere in a URL; it is not repeated.
#[test]
fn what_may_be_a_password_is_not_repeated() {
    let schemes = "redis redis-sentinel redis-cluster redlock redis+unix";
    for rest in [
        "u:1/hush@h/0",
        "u:1?hush@h/0",
        "u:1?db=hush@h",
        "u:1?prefix=lock:hush@h",
        "u:1/hush@h,g,f/m?max_ttl=1s",
        "u:1/0?quorum=hush@h",
        "u:1/0?max_ttl=hush@h",
        "u:1/hush@h",
    ] {
        for scheme in schemes.split(' ') {
            let url = format!("{scheme}://{rest}");
            for invalid in [
                RedisOptions::from_url(&url).err(),
                RedisClusterOptions::from_url(&url).err(),
                RedlockOptions::from_url(&url).err(),
            ] {
                let said = format!("{invalid:?}");
                assert!(!said.contains("hush"), "{url}: {said}");
            }
        }
    }
    for url in ["redis:://u:hush@h/", "redis-cluster:://u:hush@h/"] {
        assert!(!format!("{:?}", refused(url)).contains("hush"), "{url}");
    }
    let hint = refused("redis:u:hush@h").hint.unwrap();
    assert!(hint.contains("percent-encode"), "{hint}");
}

/// `redis://s3cret@host` names a user; what was meant is a password.
#[tokio::test]
async fn a_password_that_is_written_as_a_user_name_is_not_shown() {
    let opened = |url: &'static str| async move {
        let scheme: &dyn Scheme = match url.split_once("://").unwrap().0 {
            "redlock" => &Votes,
            "redis-cluster" => &ManyNodes,
            _ => &OneServer,
        };
        let opened = scheme.open(url, &Access::default()).await.err().unwrap();
        let report = scheme.examine(url, &Access::default()).await;
        (opened, format!("{report:?}"))
    };
    for url in [
        "redis://s3cret@127.0.0.1:1/",
        "rediss://s3cret@127.0.0.1:1/",
        "redis+unix:///none?user=s3cret",
        "redis-sentinel://s3cret@127.0.0.1:1/m",
        "redis-sentinel://127.0.0.1:1/m?sentinel_user=s3cret",
        "redis-cluster://s3cret@127.0.0.1:1/",
        "redlock://s3cret@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/",
    ] {
        let (error, report) = opened(url).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        let named = error.to_string().contains("a user name without a password");
        assert!(named, "{url}: {error}");
        for way in ["redis://:password@host", " pass=", "sentinel_pass="] {
            assert!(error.hint().unwrap().contains(way), "{url}: {error:?}");
        }
        for shown in [format!("{error:?}"), report] {
            assert!(!shown.contains("s3cret"), "{url}: {shown}");
        }
    }
    // With a password from elsewhere it is one.
    let options = RedisOptions::from_url("redis://bob@h/").unwrap();
    assert_eq!(options.redacted_url(), "redis://***@h:6379/0");
    assert_eq!(options.url_for_others(), "redis://bob@h:6379/0");
    let mut options = options;
    options.access.password_file = Some("/run/password".into());
    assert_eq!(options.redacted_url(), "redis://bob@h:6379/0");
}
