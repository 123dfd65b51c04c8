//! Tests: parsing and formatting of URLs.

use std::time::Duration;

use super::super::RedlockOptions;
use crate::options::RedisOptions;

fn refused(url: &str) -> String {
    RedlockOptions::from_url(url).unwrap_err().message
}

#[test]
fn a_url_says_everything() {
    let options = RedlockOptions::from_url(
        "redlocks://al%40ice:s%3Acret@a:1,b,bob:hunter2@[::1]:3/2?quorum=3&max_ttl=10s\
         &node_timeout=50ms&quarantine=1m&repair=no&set=blue&prefix=p:&ca=/ca.pem",
    )
    .unwrap();
    let [a, b, c] = options.servers.as_slice() else {
        panic!("three servers");
    };
    assert_eq!(a.access.user.as_deref(), Some("al@ice"));
    assert_eq!(a.access.password.as_deref(), Some("s:cret"));
    assert_eq!((&b.access.user, &b.access.password), (&None, &None));
    assert_eq!(c.access.password.as_deref(), Some("hunter2"));
    let alike = |server: &RedisOptions| server.db == 2 && server.prefix == "p:";
    assert!(options.servers.iter().all(alike));
    assert_eq!(options.size().unwrap().quorum(), 3);
    assert_eq!(options.max_ttl, Duration::from_secs(10));
    assert_eq!(options.node_timeout, Duration::from_millis(50));
    assert_eq!(options.quarantine(), Duration::from_secs(60));
    assert!(!options.repair);
    let wanted = RedlockOptions::new(options.servers.clone())
        .quorum(3)
        .max_ttl(Duration::from_secs(10))
        .node_timeout(Duration::from_millis(50))
        .with_quarantine(Duration::from_secs(60))
        .repair(false)
        .set("blue");
    assert_eq!(options, wanted);
    let shown = options.redacted_url();
    let hidden = ["cret", "hunter2"].iter().all(|it| !shown.contains(it));
    assert!(hidden, "{shown}");
    let mut again = RedlockOptions::from_url(&shown).unwrap();
    for (server, other) in again.servers.iter_mut().zip(&options.servers) {
        server.access.password.clone_from(&other.access.password);
    }
    assert_eq!(again, options);
}

#[test]
fn what_cannot_work_is_named() {
    let short = "redlock://a,b,c?max_ttl=30s&quarantine=30s";
    for (url, named) in [
        ("redlock://a,b", "2 servers"),
        ("redlock://a,b,c?quorum=1", "a quorum cannot be"),
        ("redlock://a,b,c?quorum=x", "\"x\""),
        ("redlock://a,b,a", "twice"),
        ("redlock://a,,c", "no host"),
        ("redlock://a,b,c?max_ttl=5ms", "max_ttl"),
        (short, "30s is out of bounds"),
        ("redlock://a,b,c?tokn=1", "tokn"),
        ("redlock://a,b,c?repair=perhaps", "perhaps"),
        ("redis://a,b,c", "scheme"),
    ] {
        let message = refused(url);
        assert!(message.contains(named), "{url}: {message}");
    }
    assert!(!refused("redlock://:hunter2@a:x,b,c").contains("hunter2"));
}

#[test]
fn all_who_name_the_same_servers_are_of_one_set() {
    let terms = |url| RedlockOptions::from_url(url).unwrap().terms();
    let usual = terms("redlock://a,b,c");
    let same = "redlock://:pw@c,b:6379,a/?node_timeout=1s&quorum=3";
    assert_eq!(usual, terms(same));
    for other in [
        "redlock://a,b,d",
        "redlock://a,b,c/1",
        "redlock://a,b,c?max_ttl=10s&quarantine=120s",
        "redlock://a,b,c?quarantine=3m",
        "redlock://a,b,c?set=blue",
    ] {
        assert_ne!(usual, terms(other), "{other}");
    }
    let blue = terms("redlock://a,b,c?set=blue");
    assert_eq!(blue, terms("redlock://x,y,z?set=blue"));
}

#[test]
fn a_member_is_one_server_and_answers_for_itself() {
    let refused = RedlockOptions::from_url("redlock://h1,h2,h3/?acknowledge=1");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("each member is one server"), "{refused}");
}

#[test]
fn a_classic_set_has_no_quarantine() {
    let url = "redlock://a:1,b:2,c:3/0?layout=classic";
    let options = RedlockOptions::from_url(url).unwrap();
    assert!(options.is_classic());
    assert_eq!(options.quarantine(), Duration::ZERO);
    assert_eq!(options.redacted_url(), url);
    let parameters = "audit=1000 quarantine=2m max_ttl=1m set=blue repair=yes retention=1h";
    for parameter in parameters.split(' ') {
        let refused = RedlockOptions::from_url(&format!("{url}&{parameter}")).unwrap_err();
        let name = parameter.split('=').next().unwrap();
        assert!(refused.message.contains(name), "{refused}");
    }
    let mut mixed = options;
    mixed.servers[1] = RedisOptions::tcp("b", 2).prefix("");
    assert!(mixed.check().is_err());
}

#[test]
fn all_servers_keep_an_audit_log_or_none_does() {
    let mut options = RedlockOptions::from_url("redlock://a:1,b:2,c:3/0?audit=24h").unwrap();
    let day = leasehold_store::AuditLimit::Age(Duration::from_secs(86_400));
    assert!(options.servers.iter().all(|it| it.audit == Some(day)));
    let shown = options.redacted_url();
    assert_eq!(RedlockOptions::from_url(&shown).unwrap(), options);
    // It is not what makes a set.
    let plain = RedlockOptions::from_url("redlock://a:1,b:2,c:3/0").unwrap();
    assert_eq!(plain.terms(), options.terms());
    options.servers[1].audit = None;
    assert!(options.check().is_err());
    let few = RedlockOptions::from_url("redlock://a,b,c?audit=7").unwrap_err();
    assert!(few.message.contains("audit"), "{few}");
}
