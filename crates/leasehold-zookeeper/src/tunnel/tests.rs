//! What goes through, and what does not.

use std::path::Path;

use leasehold_testkit::tls::Certificates;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

fn framed(content: &[u8]) -> Vec<u8> {
    [&length_of(content), content].concat()
}

/// A server with the certificate of these.
fn server_of(certificates: &Certificates) -> TlsAcceptor {
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let chain = CertificateDer::from_pem_slice(&bytes(&certificates.server_certificate.path));
    let key = PrivateKeyDer::from_pem_slice(&bytes(&certificates.server_key.path));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth();
    let config = config.with_single_cert(vec![chain.unwrap()], key.unwrap());
    Arc::new(config.unwrap()).into()
}

/// A server, and a tunnel to it.
async fn opened(parameters: &str) -> (TcpListener, Route) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = server.local_addr().unwrap();
    let url = format!("zookeeper+tls://user:password@{address}{parameters}");
    let options = ZooKeeperOptions::from_url(&url).unwrap();
    let endpoints = options.endpoints().await;
    let tunnel = open(&options, endpoints, false).await.unwrap();
    (server, tunnel)
}

/// Others on the machine reach the port, and must not use the client's login or certificate.
#[tokio::test]
async fn who_does_not_know_the_secret_gets_no_connection() {
    let (server, tunnel) = opened("").await;
    let (scheme, secret) = tunnel.login.as_ref().unwrap();
    let hello = framed(&[0; 44]);
    let login = |scheme, auth| login([0, 0, 0, 7], scheme, auth);
    let mut other = secret.to_vec();
    other[15] ^= 1;
    for first in [
        login(scheme, &other),
        login(scheme, &secret[..15]),
        login("digest", secret),
        login("digest", b"user:password"),
        hello.clone(),
        vec![0xff; 8],
    ] {
        let mut stranger = TcpStream::connect(&tunnel.hosts).await.unwrap();
        let sent = [&*hello, &first].concat();
        stranger.write_all(&sent).await.unwrap();
        // Some of it may not have been read.
        let end = stranger.read(&mut [0]).await;
        assert_eq!(end.unwrap_or_default(), 0, "{first:?}");
    }
    let mut ours = TcpStream::connect(&tunnel.hosts).await.unwrap();
    let known = login(scheme, secret);
    ours.write_all(&[&*hello, &known].concat()).await.unwrap();
    let (mut first, _) = server.accept().await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), 22, "a handshake begins");
    let second = timeout(Duration::ZERO, server.accept()).await;
    assert!(second.is_err(), "there was one connection to the server");
}

/// Else a server may answer it before the hello.
#[tokio::test]
async fn the_login_waits_for_the_answer_to_the_hello() {
    let directory = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(directory.path());
    let ca = certificates.authority.path.display();
    let (server, tunnel) = opened(&format!("?ca={ca}")).await;
    let (scheme, secret) = tunnel.login.as_ref().unwrap();
    let (number, hello, later) = ([0, 0, 0, 7], framed(b"hello"), framed(b"later"));
    let mut ours = TcpStream::connect(&tunnel.hosts).await.unwrap();
    let sent = [&*hello, &login(number, scheme, secret), &later].concat();
    ours.write_all(&sent).await.unwrap();
    let (stream, _) = server.accept().await.unwrap();
    let mut theirs = server_of(&certificates).accept(stream).await.unwrap();
    let mut read = vec![0; LONGEST];
    let size = theirs.read(&mut read).await.unwrap();
    assert_eq!(read[..size], hello);
    let answer = framed(b"answer");
    theirs.write_all(&answer).await.unwrap();
    theirs.flush().await.unwrap();
    assert_eq!(message(&mut ours).await.unwrap(), answer);
    let real = login(number, "digest", b"user:password");
    assert_eq!(message(&mut theirs).await.unwrap(), real);
    assert_eq!(message(&mut theirs).await.unwrap(), later);
}
