//! What an application brings: options, credentials for each connection, certificates.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::StoreOptions;
use leasehold::store::redis::{RedisClusterOptions, RedisOptions};
use leasehold::{Client, Credentials, CredentialsProvider, Error, ErrorKind, Released};
use leasehold_testkit::process::PATIENCE;
use leasehold_testkit::server::RedisServer;
use tokio::time::timeout;

/// A vault, and how often it was asked.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    fn keep(&self, password: &str) {
        *self.password.lock().unwrap() = password.to_owned();
    }

    fn provider(&self) -> CredentialsProvider {
        let vault = self.clone();
        CredentialsProvider::new(move || {
            vault.asked.fetch_add(1, Ordering::Relaxed);
            let password = vault.password.lock().unwrap().clone();
            async move {
                match &*password {
                    "" => Err(io::Error::other("the vault is sealed")),
                    "late" => std::future::pending().await,
                    "wrong" => panic!("a provider that is wrong"),
                    _ => Ok(Credentials::new("app", password)),
                }
            }
        })
    }
}

fn server() -> RedisServer {
    RedisServer::builder()
        .user("app", "on >one ~* &* +@all")
        .start()
}

async fn open(server: &RedisServer, vault: &Vault) -> Result<Client, Error> {
    let url = format!("redis://{}/?connect_timeout=500ms", server.address());
    let builder = Client::builder().store(url).credentials(vault.provider());
    builder.connect().await
}

#[tokio::test]
async fn credentials_are_asked_for_at_each_connection() {
    let (server, vault) = (server(), Vault::default());
    vault.keep("one");
    let client = open(&server, &vault).await.unwrap();
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(vault.asked.load(Ordering::Relaxed), 1);
    assert!(!format!("{:?}", vault.provider()).contains("one"));
    // The server knows another password, and the connection ends.
    server.command(&["ACL", "SETUSER", "app", "resetpass", ">two"]);
    vault.keep("two");
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let renewed = async { while lease.renew().await.is_err() {} };
    timeout(PATIENCE, renewed).await.unwrap();
    assert!(vault.asked.load(Ordering::Relaxed) > 1);
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}

/// Whatever a provider does is a connection that could not be opened.
#[tokio::test]
async fn a_provider_that_fails_is_an_outage() {
    let (server, vault) = (server(), Vault::default());
    for (kept, said) in [
        ("", "the vault is sealed"),
        ("late", "it has not answered in time"),
        ("wrong", "it has panicked"),
    ] {
        vault.keep(kept);
        let error = open(&server, &vault).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let message = error.to_string();
        assert!(
            message.contains("the credentials provider has failed"),
            "{message}"
        );
        assert!(message.contains(said), "{message}");
    }
    // Who has connected before waits until it provides again.
    vault.keep("one");
    let client = open(&server, &vault).await.unwrap();
    vault.keep("");
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let lock = client.mutex("k").unwrap();
    let error = lock
        .lock_within(Duration::from_millis(300))
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
        "{error}"
    );
    vault.keep("one");
    let lease = timeout(PATIENCE, lock.lock()).await.unwrap().unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Held);
}

async fn connect_by(options: impl StoreOptions + 'static) -> Result<Client, Error> {
    Client::builder().with_options(options).connect().await
}

#[tokio::test]
async fn options_take_the_place_of_a_url() {
    let server = RedisServer::builder().password("hunter2").start();
    let existing = redis::Client::open(server.url()).unwrap();
    let options = RedisOptions::try_from(&existing).unwrap().prefix("mine:");
    let builder = Client::builder()
        .store("local:/nowhere")
        .with_options(options);
    let client = builder.clone().connect().await.unwrap();
    assert!(
        client.store_url().ends_with("prefix=mine%3A"),
        "{}",
        client.store_url()
    );
    assert!(!client.store_url().contains("hunter2"));
    let lease = client.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(server.query::<usize>(&["EXISTS", "mine:lock:k"]), 1);
    let _ = lease.release().await.unwrap();
    // What is given beside them comes first.
    let refused = builder
        .clone()
        .password("wrong")
        .connect()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    #[cfg(feature = "local")]
    {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("local:{}", directory.path().display());
        let here = leasehold::store::local::LocalOptions::from_url(&url).unwrap();
        assert_eq!(connect_by(here).await.unwrap().store_url(), url);
    }
    // A file that is not there is found when the store is opened.
    let mut cluster = RedisClusterOptions::new([("127.0.0.1", 1)]);
    cluster.node.access.password_file = Some("/none/password".into());
    let refused = connect_by(cluster).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    // There is no URL of what is to be made ready.
    for error in [
        builder.initialisation().unwrap_err(),
        builder.initialise().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[cfg(feature = "tls-ring")]
mod tls {
    use std::path::Path;

    use leasehold::{Pem, TlsConfig, TlsOptions};
    use leasehold_testkit::server::ClientCertificate;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};

    use super::*;

    #[tokio::test]
    async fn certificates_are_in_memory() {
        let server = RedisServer::builder()
            .tls(ClientCertificate::Required)
            .start();
        let its = server.certificates();
        let pem = |pem: &leasehold_testkit::tls::Pem| Pem::text(pem.text.as_str());
        let given = TlsOptions::trusting(pem(&its.authority))
            .with_certificate(pem(&its.client_certificate), pem(&its.client_key));
        assert!(!format!("{given:?}").contains("BEGIN"), "{given:?}");
        let mut roots = RootCertStore::empty();
        let certificate = |pem: &leasehold_testkit::tls::Pem| {
            CertificateDer::from_pem_slice(pem.text.as_bytes()).unwrap()
        };
        roots.add(certificate(&its.authority)).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate(&its.client_certificate)],
                PrivateKeyDer::from_pem_slice(its.client_key.text.as_bytes()).unwrap(),
            )
            .unwrap();
        let mut own = TlsOptions::default().with_config(TlsConfig::from(config));
        let url = format!("rediss://{}/", server.address());
        for tls in [given, own.clone()] {
            let builder = Client::builder().store(&url).tls(tls);
            let client = builder.connect().await.unwrap();
            let lease = client.mutex("k").unwrap().lock().await.unwrap();
            assert_eq!(lease.release().await.unwrap(), Released::Held);
        }
        // One of both is ignored, and nobody says which.
        own.ca = Some(Path::new("/ca.pem").into());
        let both = Client::builder().store(&url).tls(own).connect().await;
        let both = both.unwrap_err();
        assert_eq!(both.kind(), ErrorKind::Invalid, "{both}");
        let not = TlsOptions::trusting(Pem::text("no certificate"));
        let not = Client::builder().store(&url).tls(not).connect().await;
        assert_eq!(not.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
