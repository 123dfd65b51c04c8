//! URLs, what they say again, and what cannot be.

use std::convert::Infallible;
use std::future::ready;
use std::path::Path;

use leasehold_store::access::{Credentials, CredentialsProvider};

use super::*;

#[test]
fn a_url_reads_back_the_same() {
    // What is written; behind it what is shown, where that is something else.
    let urls = "\
        zookeeper://h
        zookeeper://h:2181/leasehold/ | zookeeper://h
        zookeeper://h,i:2182,[::1]:3/a/b
        zookeeper://u@h/a%20b
        zookeeper://u:secret@h | zookeeper://u:***@h
        zookeeper://u%2F:se%40cret@h | zookeeper://u%2F:***@h
        zookeeper+tls://h:2281,i:2181 | zookeeper+tls://h,i:2181
        zookeeper+tls://u@h/a?ca=/c.pem&cert=/d.pem&key=/e.pem
        zookeeper://h?maxbuffer=4194304&session_timeout=10s&retention=24h \
            | zookeeper://h?session_timeout=10s&maxbuffer=4194304";
    for row in urls.lines().map(str::trim) {
        let (url, shown) = row.split_once(" | ").unwrap_or((row, row));
        let options = ZooKeeperOptions::from_url(url).unwrap();
        assert_eq!(options.redacted_url(), shown, "{url}");
        let again = ZooKeeperOptions::from_url(shown).unwrap();
        assert_eq!(again.redacted_url(), shown);
        assert!(!format!("{options:?}").contains("secret"));
    }
}

#[test]
fn what_cannot_be_is_refused_and_not_repeated() {
    let urls = "\
        zookeeper:// | names no host
        zookeeper://h, | names no host
        zookeeper://::1 | names no host
        zookeeper://h:0 | for a port
        zookeeper://h:port | for a port
        zookeeper://h//a | no path of a node
        zookeeper://h/../a | no path of a node
        zookeeper://h/zookeeper/config | no path of a node
        zookeeper://u:secret/1@h | has an @ after
        zookeeper://u:secret@h?colour=red | unknown parameter \"colour\"
        zookeeper://:secret@h | for a user
        zookeeper://h?maxbuffer=1 | no number of bytes
        zookeeper://u:secret@h?ca=/c | is not encrypted
        zookeeper+ssl://h | cannot be read
        zookeeper://h?session_timeout=1h | session_timeout of 1h is out of bounds
        zookeeper://h?retention=1s | retention of 1s is out of bounds";
    for row in urls.lines().map(str::trim) {
        let (url, said) = row.split_once(" | ").unwrap();
        let refused = ZooKeeperOptions::from_url(url).unwrap_err();
        assert!(refused.message.contains(said), "{url}: {refused}");
        assert!(!refused.message.contains("secret"), "{refused}");
        assert!(refused.hint.is_some(), "{refused}");
    }
}

#[test]
fn certificates_come_with_their_keys_and_with_tls() {
    let files = |cert: Option<&str>, key: Option<&str>| {
        let mut access = Access::default();
        access.tls.cert = cert.map(|path| Path::new(path).into());
        access.tls.key = key.map(|path| Path::new(path).into());
        access
    };
    for (url, cert, key, said) in [
        ("zookeeper://h", Some("/c"), Some("/k"), "is not encrypted"),
        ("zookeeper+tls://h", Some("/c"), None, "needs its key"),
        ("zookeeper+tls://h?key=/k", None, None, "needs its key"),
    ] {
        let options = ZooKeeperOptions::from_url(url).unwrap();
        let refused = options.with_access(&files(cert, key)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains(said), "{url}: {refused}");
        assert!(refused.hint().is_some(), "{refused}");
    }
    // What is given besides the URL goes before it.
    let options = ZooKeeperOptions::from_url("zookeeper+tls://h?cert=/a&key=/k").unwrap();
    let options = options.with_access(&files(Some("/c"), None)).unwrap();
    assert_eq!(options.url_for_others(), "zookeeper+tls://h?cert=/c&key=/k");
}

/// The user `a:b` with the password `c` would be the user `a` with the password `b:c`.
#[tokio::test]
async fn a_provider_names_a_user_without_a_colon() {
    let identity = async |user: Option<&str>| {
        let mut login = Credentials::password("se:cret");
        login.user = user.map(str::to_owned);
        let provider = CredentialsProvider::new(move || ready(Ok::<_, Infallible>(login.clone())));
        let access = Access::default().credentials(provider);
        let options = ZooKeeperOptions::from_url("zookeeper://h").unwrap();
        options.access(access).identity().await
    };
    let known = identity(Some("app")).await.unwrap();
    assert_eq!(known.as_deref(), Some("app:se:cret"));
    for user in [None, Some(""), Some("a:b")] {
        let refused = identity(user).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{user:?}");
        assert!(refused.hint().is_some(), "{refused}");
    }
}

/// As an embedder sets them, they are in the URL that is shown, and are checked when it is opened.
#[test]
fn options_without_a_url() {
    let minute = Duration::from_secs(60);
    let options = ZooKeeperOptions::new([("h", 2181), ("::1", 3)])
        .chroot("/a")
        .session_timeout(minute / 2)
        .maxbuffer(4_194_304)
        .retention(60 * minute)
        .connect_timeout(minute)
        .response_timeout(2 * minute);
    let shown = "zookeeper://h,[::1]:3/a?session_timeout=30s&maxbuffer=4194304&retention=1h\
        &connect_timeout=1m&response_timeout=2m";
    assert_eq!(options.redacted_url(), shown);
    assert!(options.clone().with_access(&Access::default()).is_ok());
    let of_no_host = ZooKeeperOptions::new([] as [(&str, u16); 0]);
    for (options, said) in [
        (options.clone().chroot("a"), "no path of a node"),
        (options.maxbuffer(1), "no number of bytes"),
        (ZooKeeperOptions::new([("", 1)]), "names no host"),
        (ZooKeeperOptions::new([("h", 0)]), "for a port"),
        (of_no_host, "names no host"),
    ] {
        let refused = options.with_access(&Access::default()).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
}

/// One may be of a server that does not answer, which takes its time each time.
#[test]
fn each_address_of_a_name_is_tried_once() {
    let tried = |found: &[u8]| {
        let found = found.iter();
        let found = found.map(|last| SocketAddr::from(([127, 0, 0, *last], 2)));
        let all = endpoints_of("name:2", found).into_iter();
        all.map(|(_, address)| address).collect::<Vec<_>>()
    };
    assert_eq!(tried(&[1, 2]), ["127.0.0.1:2", "127.0.0.2:2"]);
    for one in [&[][..], &[1], &[1, 1]] {
        assert_eq!(tried(one), ["name:2"]);
    }
}
