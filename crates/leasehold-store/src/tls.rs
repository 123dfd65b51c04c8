//! The settings of TLS to a server, from PEM files.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::access::read_file;
use crate::error::{ErrorKind, StoreError};

/// Whom a client believes that it is the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Whoever has a certificate of these authorities for its name; those of the system if no file
    /// is named.
    Authorities(Option<&'a Path>),
    /// Anybody: what is sent is encrypted, and may be read by who stands between.
    Anybody,
}

/// Makes the settings: with the provider of the process where it has one, and nothing of ours is
/// made the provider of others. The `certificate` is the client's own, and its key.
///
/// # Errors
/// `Invalid` for a file that cannot be used.
pub fn client_config(
    trust: Trust<'_>,
    certificate: Option<(&Path, &Path)>,
) -> Result<ClientConfig, StoreError> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let config = match trust {
        Trust::Authorities(file) => config.with_root_certificates(roots(file)?),
        Trust::Anybody => config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
    };
    let Some((certificate, key)) = certificate else {
        return Ok(config.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| unusable(&error))?;
    let config = config.with_client_auth_cert(certificates(certificate)?, key);
    config.map_err(|error| unusable(&error))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| unusable(&error))?;
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    read_file(path).map_err(|error| {
        let why = format!("cannot read the file {}: {error}", path.display());
        StoreError::new(ErrorKind::Invalid, why).with_source(error)
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let pem = read(path)?;
    let all = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    all.map_err(|error| unusable(&error))
}

fn unusable(error: &dyn Display) -> StoreError {
    let why = format!("the certificates (ca, cert, key) cannot be used: {error}");
    StoreError::new(ErrorKind::Invalid, why)
}

/// Looks at no name and no authority.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
