//! What an application brings: options, credentials for each connection, certificates.

use std::io;

use leasehold::store::StoreOptions;
use leasehold::store::redis::RedisClusterOptions;
use leasehold::{Credentials, CredentialsProvider, Error};

use crate::redis_support::*;

/// A vault, which may have another password or none at the next connection.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
}

impl Vault {
    fn keep(&self, password: &str) {
        *self.password.lock().unwrap() = password.to_owned();
    }

    fn provider(&self) -> CredentialsProvider {
        let vault = self.clone();
        CredentialsProvider::new(move || {
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
    let builder = RedisServer::builder().user("app", "on >one ~* &* +@all");
    builder.start()
}

async fn open(server: &RedisServer, vault: &Vault) -> Result<Client, Error> {
    let url = format!("redis://{}/?connect_timeout=500ms", server.address());
    let builder = Client::builder().store(url).credentials(vault.provider());
    builder.connect().await
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
        let said = ["the credentials provider has failed", said];
        fails(open(&server, &vault).await, ErrorKind::Unavailable, &said);
    }
    // It is asked at each connection: who has connected before waits until it provides again.
    vault.keep("one");
    assert!(!format!("{:?}", vault.provider()).contains("one"));
    let client = open(&server, &vault).await.unwrap();
    vault.keep("");
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mutex = client.mutex("k").unwrap();
    let late = mutex.lock_within(Duration::from_millis(300)).await;
    let error = late.unwrap_err();
    let is_late = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout);
    assert!(is_late, "{error}");
    vault.keep("one");
    soon("a lease", use_once(&client, "k")).await;
}

#[tokio::test]
async fn a_password_file_that_is_missing_is_invalid_for_who_marks_servers_too() {
    let builder = Client::builder().store("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
    let builder = builder.password_file("/none/password");
    let connected = builder.clone().connect().await.unwrap_err();
    for error in [connected, builder.initialise().await.unwrap_err()] {
        is_error(&error, ErrorKind::Invalid, &["/none/password"]);
    }
}

async fn connect_by(options: impl StoreOptions + 'static) -> Result<Client, Error> {
    Client::builder().with_options(options).connect().await
}

#[tokio::test]
async fn options_take_the_place_of_a_url() {
    let server = RedisServer::builder().password("hunter2").start();
    let existing = redis::Client::open(server.url()).unwrap();
    let options = RedisOptions::try_from(&existing).unwrap().prefix("mine:");
    let builder = Client::builder().store("local:/nowhere");
    let builder = builder.with_options(options);
    let client = builder.clone().connect().await.unwrap();
    let url = client.store_url();
    assert!(url.ends_with("prefix=mine%3A"), "{url}");
    assert!(!url.contains("hunter2"));
    let lease = lock(&client, "k").await;
    assert_eq!(server.query::<usize>(&["EXISTS", "mine:lock:k"]), 1);
    let _ = lease.release().await.unwrap();
    // What is given beside them comes first.
    let refused = builder.clone().password("wrong").connect().await;
    fails(refused, ErrorKind::Refused, &[]);
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
    fails(connect_by(cluster).await, ErrorKind::Invalid, &[]);
    // There is no URL of what is to be made ready.
    fails(builder.initialisation(), ErrorKind::Invalid, &[]);
    fails(builder.initialise().await, ErrorKind::Invalid, &[]);
}

#[cfg(feature = "tls-ring")]
mod tls {
    use std::path::Path;

    use leasehold::{Pem, TlsConfig, TlsOptions};
    use leasehold_testkit::server::ClientCertificate;

    use super::*;

    #[tokio::test]
    async fn certificates_are_in_memory() {
        let server = RedisServer::builder().tls(ClientCertificate::Required);
        let server = server.start();
        let its = server.certificates();
        let pem = |pem: &leasehold_testkit::tls::Pem| Pem::text(pem.text.as_str());
        let given = TlsOptions::trusting(pem(&its.authority))
            .with_certificate(pem(&its.client_certificate), pem(&its.client_key));
        assert!(!format!("{given:?}").contains("BEGIN"), "{given:?}");
        let mut own = TlsOptions::default().with_config(TlsConfig::from(its.client_config()));
        let url = format!("rediss://{}/", server.address());
        for tls in [given, own.clone()] {
            let builder = Client::builder().store(&url).tls(tls);
            use_once(&builder.connect().await.unwrap(), "k").await;
        }
        // One of both is ignored, and nobody says which.
        own.ca = Some(Path::new("/ca.pem").into());
        let not = TlsOptions::trusting(Pem::text("no certificate"));
        for (what, invalid) in [("both given", own), ("no certificate", not)] {
            let refused = Client::builder().store(&url).tls(invalid).connect();
            let error = refused.await.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
        }
    }
}
