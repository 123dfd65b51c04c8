//! `zookeeper+tls://`: who is trusted, who is known by a certificate, and what is said when it fails.

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::tls::Certificates;
use leasehold_testkit::zookeeper::ZooKeeper;
use tempfile::TempDir;
use zookeeper_client::{Acls, Client as Raw};

use crate::steps::*;

/// A server's first handshakes take long on a busy machine.
const PATIENT: &str = "connect_timeout=60s&session_timeout=60s";

/// A server with certificates, and a client's files beside it.
struct Encrypted {
    files: TempDir,
    certificates: Certificates,
    server: ZooKeeper,
}

impl Encrypted {
    fn start(config: &str) -> Self {
        let files = TempDir::new().unwrap();
        let certificates = Certificates::generate(files.path());
        let server = ZooKeeper::start_encrypted_with(&certificates, config);
        Self {
            files,
            certificates,
            server,
        }
    }

    /// Of a client that trusts the server.
    fn trusting(&self) -> String {
        self.at(&self.server.secure_hosts())
    }

    fn at(&self, hosts: &str) -> String {
        let ca = self.certificates.authority.path.display();
        format!("zookeeper+tls://{hosts}/locks?{PATIENT}&ca={ca}")
    }

    /// Of a client that is known by its certificate.
    fn known(&self) -> String {
        let certificates = &self.certificates;
        format!(
            "{}&cert={}&key={}",
            self.trusting(),
            certificates.client_certificate.path.display(),
            certificates.client_key.path.display()
        )
    }

    /// Whether everybody may read and write a node.
    async fn is_open(&self, path: &str) -> bool {
        let raw = Raw::connect(&self.server.hosts()).await.unwrap();
        match raw.get_acl(path).await {
            Ok((acls, _)) => acls == Acls::anyone_all().to_vec(),
            Err(zookeeper_client::Error::NoAuth) => false,
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

async fn refused(url: &str, said: &str, hint: &str) {
    fails_to_connect(url, ErrorKind::Refused, said, hint).await;
}

async fn unavailable(url: &str, said: &str, hint: &str) {
    fails_to_connect(url, ErrorKind::Unavailable, said, hint).await;
}

async fn fails_to_connect(url: &str, kind: ErrorKind, said: &str, hint: &str) {
    hints(&fails(leasehold::connect(url).await, kind, &[said]), hint);
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_not_used() {
    let encrypted = Encrypted::start("");
    let hosts = encrypted.server.secure_hosts();
    let others = TempDir::new().unwrap();
    let others = Certificates::generate(others.path()).authority;
    let ca = encrypted.files.path().join("others.pem");
    std::fs::write(&ca, others.text).unwrap();
    let untrusted = "the certificate of the server is not trusted";
    // The system's authorities do not know it either.
    let system = format!("zookeeper+tls://{hosts}/locks?{PATIENT}");
    refused(&system, untrusted, "`ca`").await;
    refused(&format!("{system}&ca={}", ca.display()), untrusted, "`ca`").await;
    // The same machine by a name that its certificate does not have.
    let another = format!("[::ffff:127.0.0.1]:{}", encrypted.server.secure_port());
    refused(&encrypted.at(&another), untrusted, "host name").await;
    // One of several is enough, and so is the name that it has.
    let one = connect(&encrypted.at(&format!("{another},{hosts}"))).await;
    let by_name = encrypted.at(&format!("localhost:{}", encrypted.server.secure_port()));
    let other = connect(&by_name).await;
    let (held, waiter) = contended(&one, &other, "k").await;
    drop(hand_over(held, waiter).await);
    // Without an identity nobody owns a node, as without TLS.
    assert!(encrypted.is_open("/locks/keys/k").await);
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    let encrypted = Encrypted::start("ssl.clientAuth=need");
    let one = connect(&encrypted.known()).await;
    let _held = try_lock(&one, "k").await.expect("free");
    let again = connect(&encrypted.known()).await;
    assert!(try_lock(&again, "k").await.is_none(), "it is held");
    for path in ["/locks", "/locks/keys", "/locks/keys/k"] {
        assert!(!encrypted.is_open(path).await, "{path}");
    }
    let plain = encrypted.server.url_of("/locks");
    refused(&plain, "does not let this user", "user").await;
    refused(&encrypted.trusting(), "refuses the TLS handshake", "`cert`").await;
}

/// Who means to own its nodes does not get nodes that all may use.
#[tokio::test]
async fn a_certificate_that_the_server_does_not_ask_for_is_no_identity() {
    let encrypted = Encrypted::start("ssl.clientAuth=none");
    refused(&encrypted.known(), "by its certificate", "clientAuth").await;
    // With a user there is one.
    let named = encrypted.known().replace("//", "//app:sesame@");
    let client = connect(&named).await;
    let _held = try_lock(&client, "k").await.expect("free");
    assert!(!encrypted.is_open("/locks/keys/k").await);
    let other = named.replace("sesame", "other");
    refused(&other, "does not let this user", "user").await;
}

#[tokio::test]
async fn the_other_port_is_named_where_it_is_the_wrong_one() {
    let encrypted = Encrypted::start("");
    let (plain, secure) = (encrypted.server.hosts(), encrypted.server.secure_hosts());
    let url = format!("zookeeper://{secure}/locks");
    unavailable(&url, &secure, "zookeeper+tls://").await;
    let closed = format!("{plain} closed the connection before TLS was set up");
    unavailable(&encrypted.at(&plain), &closed, "zookeeper://").await;
    // Nobody is there.
    encrypted.server.kill();
    unavailable(&encrypted.trusting(), &secure, "secureClientPort").await;
}

#[tokio::test]
async fn files_and_hosts_that_cannot_be_used_are_named() {
    let files = TempDir::new().unwrap();
    let key = Certificates::generate(files.path()).client_key;
    let (key, nobody) = (key.path.display(), "127.0.0.1:1");
    for (hosts, params, said) in [
        (nobody, "ca=/none.pem".to_owned(), "/none.pem"),
        (nobody, format!("key={key}"), "needs its key"),
        (nobody, format!("cert={key}&key={key}"), "cannot be used"),
        ("-.-", String::new(), "\"-.-\""),
    ] {
        let url = format!("zookeeper+tls://{hosts}/locks?{params}");
        fails(leasehold::connect(&url).await, ErrorKind::Invalid, &[said]);
    }
}

/// A connection that is lost is made again, with certificates that were renewed meanwhile; a session that
/// has expired, too.
#[tokio::test]
async fn certificates_are_read_again() {
    let encrypted = Encrypted::start("ssl.clientAuth=need");
    let proxy = Proxy::start(encrypted.server.secure_address());
    let (far, near) = (proxy.address().to_string(), encrypted.server.secure_hosts());
    let client = connect(&encrypted.known().replace(&near, &far)).await;
    let other = connect(&encrypted.known()).await;
    let held = try_lock(&client, "k").await.expect("free");
    proxy.reset();
    soon("a renewal", async { while held.renew().await.is_err() {} }).await;
    // What is there does not do any more: it is renewed before the connection is lost.
    let authority = &encrypted.certificates.authority;
    std::fs::write(&authority.path, "").unwrap();
    proxy.reset();
    until("it is noticed", async || held.renew().await.is_err()).await;
    std::fs::write(&authority.path, &authority.text).unwrap();
    drop(soon("a lease", lock(&client, "other")).await);
    assert!(try_lock(&other, "k").await.is_none(), "it is held");
    assert!(held.is_valid());
}
