//! Certificates that are renewed while a client lives.

#![cfg(all(feature = "redis", feature = "tls-ring"))]

use std::fs;
use std::path::Path;

use leasehold_testkit::process::PATIENCE;
use leasehold_testkit::server::{ClientCertificate, RedisServerBuilder};
use leasehold_testkit::tls::Certificates;
use tempfile::TempDir;

use crate::redis_support::*;

/// A client's own copies of an authority, a certificate and its key.
struct Copies(TempDir);

impl Copies {
    fn of(certificates: &Certificates) -> Self {
        let copies = Self(TempDir::new().unwrap());
        copies.follow(certificates);
        copies
    }

    /// What cert-manager does.
    fn follow(&self, certificates: &Certificates) {
        for (name, pem) in [
            ("ca.pem", &certificates.authority),
            ("client.pem", &certificates.client_certificate),
            ("client.key", &certificates.client_key),
        ] {
            fs::write(self.0.path().join(name), &pem.text).unwrap();
        }
    }

    fn parameters(&self) -> String {
        let at = self.0.path().display();
        format!("ca={at}/ca.pem&cert={at}/client.pem&key={at}/client.key")
    }
}

fn encrypted(builder: RedisServerBuilder) -> RedisServer {
    let server = builder.tls(ClientCertificate::Required);
    server.config("loglevel", "verbose").start()
}

/// Makes all certificates anew, with another authority, for servers that then start again.
fn renew(servers: &[&RedisServer]) -> Certificates {
    let place = |server: &RedisServer| -> std::path::PathBuf {
        let authority = &server.certificates().authority.path;
        authority.parent().map(Path::to_path_buf).unwrap()
    };
    let renewed = Certificates::generate(&place(servers[0]));
    for server in servers {
        for pem in [
            &renewed.authority,
            &renewed.server_certificate,
            &renewed.server_key,
        ] {
            fs::write(place(server).join(pem.path.file_name().unwrap()), &pem.text).unwrap();
        }
        server.kill();
        server.start_again();
    }
    renewed
}

/// The servers have new certificates first, and the client's files follow.
async fn a_client_survives(url: &str, copies: &Copies, servers: &[&RedisServer]) {
    let client = Client::builder().store(url).connect().await.unwrap();
    use_once(&client, "k").await;
    let renewed = renew(servers);
    let other = client.mutex("other").unwrap();
    let waiting = tokio::spawn(async move { other.lock_within(2 * PATIENCE).await });
    let turned_away = "Error accepting a client connection";
    let turned_away = async || servers[0].log().contains(turned_away);
    until("the client does not trust the server", turned_away).await;
    copies.follow(&renewed);
    give_back(waiting.await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn they_are_read_again_for_one_server() {
    let server = encrypted(RedisServer::builder());
    let copies = Copies::of(server.certificates());
    let url = format!("rediss://{}/?{}", server.address(), copies.parameters());
    a_client_survives(&url, &copies, &[&server]).await;
}

#[tokio::test]
async fn they_are_read_again_for_a_sentinel_and_its_primary() {
    let server = encrypted(RedisServer::builder());
    let watched = format!("monitor mine 127.0.0.1 {} 1", server.port());
    let sentinel = RedisServer::builder().sentinel();
    let sentinel = encrypted(sentinel.config("sentinel", &watched));
    // Both have the same authority.
    let copies = Copies::of(&renew(&[&sentinel, &server]));
    let (at, parameters) = (sentinel.address(), copies.parameters());
    // A Sentinel and the server that it names have a tenth and a quarter of it each.
    let url = format!("rediss-sentinel://{at}/mine?{parameters}&connect_timeout=30s");
    a_client_survives(&url, &copies, &[&sentinel, &server]).await;
}

#[tokio::test]
async fn they_are_read_again_for_the_nodes_of_a_cluster() {
    let node = RedisServer::builder().cluster();
    let node = encrypted(node.config("tls-cluster", "yes"));
    let slots: Vec<_> = (0..16_384).map(|slot| slot.to_string()).collect();
    let mut all = vec!["CLUSTER", "ADDSLOTS"];
    all.extend(slots.iter().map(String::as_str));
    node.command(&all);
    let copies = Copies::of(node.certificates());
    let (at, parameters) = (node.address(), copies.parameters());
    let url = format!("rediss-cluster://{at}/?{parameters}");
    until_answered(&node, &["CLUSTER", "INFO"], "cluster_state:ok").await;
    a_client_survives(&url, &copies, &[&node]).await;
}
