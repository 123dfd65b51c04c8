//! Asks a server at its port for TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::tls::{Certificates, Pem};

/// A client with a certificate.
#[derive(Debug)]
pub(super) struct Known(Arc<ClientConfig>);

impl Known {
    pub(super) fn of(certificates: &Certificates) -> Self {
        let certificate = |pem: &Pem| {
            let certificate = CertificateDer::from_pem_slice(pem.text.as_bytes());
            certificate.expect("it is a certificate")
        };
        let mut roots = RootCertStore::empty();
        let added = roots.add(certificate(&certificates.authority));
        added.expect("an authority can be trusted");
        let key = PrivateKeyDer::from_pem_slice(certificates.client_key.text.as_bytes());
        let chain = vec![certificate(&certificates.client_certificate)];
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key.expect("it is a key"));
        Self(Arc::new(
            config.expect("the key is that of the certificate"),
        ))
    }

    /// Sends a four-letter word, and returns the answer.
    pub(super) fn ask(&self, at: SocketAddr, word: &str, limit: Duration) -> io::Result<String> {
        let connection = ClientConnection::new(self.0.clone(), at.ip().into());
        let mut connection = connection.map_err(io::Error::other)?;
        let mut socket = TcpStream::connect_timeout(&at, limit)?;
        socket.set_read_timeout(Some(limit))?;
        let mut stream = Stream::new(&mut connection, &mut socket);
        stream.write_all(word.as_bytes())?;
        let mut answer = Vec::new();
        // The server closes without a word.
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
        String::from_utf8(answer).map_err(io::Error::other)
    }
}
