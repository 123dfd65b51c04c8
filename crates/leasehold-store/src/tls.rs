//! The settings of TLS to a server.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::sync::Arc;

use leasehold_core::Invalid;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::access::{Pem, TlsOptions, read_file};
use crate::error::{ErrorKind, StoreError};

/// Whom a client believes that it is the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Whoever has a certificate of an authority for its name.
    Authorities,
    /// Anybody: what is sent is encrypted, and may be read by who stands between.
    Anybody,
}

/// Makes the settings: with the provider of the process where it has one, and nothing of ours is
/// made the provider of others. Files are read each time, so that they can be renewed.
///
/// # Errors
/// `Invalid` for what cannot be used; `Unsupported` without a provider.
pub fn client_config(options: &TlsOptions, trust: Trust) -> Result<Arc<ClientConfig>, StoreError> {
    let certificate = options.certificate()?;
    if let Some(config) = &options.config {
        if options.ca.is_some() || certificate.is_some() {
            let why = "there are certificates beside settings of TLS that have their own";
            return Err(Invalid::new(why, "leave out ca, cert and key, or the settings").into());
        }
        return Ok(Arc::clone(&config.0.0));
    }
    let provider = provider()?;
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let config = match trust {
        Trust::Authorities => config.with_root_certificates(roots(options.ca.as_ref())?),
        Trust::Anybody => config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
    };
    let Some((certificate, key)) = certificate else {
        return Ok(Arc::new(config.with_no_client_auth()));
    };
    let none = |_| unusable(&"there is no unencrypted private key in the PEM text");
    let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(none)?;
    let config = config.with_client_auth_cert(certificates(certificate)?, key);
    config.map(Arc::new).map_err(|error| unusable(&error))
}

fn provider() -> Result<Arc<CryptoProvider>, StoreError> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Ok(Arc::clone(provider));
    }
    // Of two the one that is on by default: a feature of some other crate changes nothing here.
    #[cfg(feature = "ring")]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(all(feature = "aws-lc", not(feature = "ring")))]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc")))]
    Err(crate::error::unsupported(
        "this build has no cryptography for TLS",
        "install a CryptoProvider of rustls when your program starts, give a ClientConfig of your \
         own, or build with the feature `tls-ring` or `tls-aws-lc`",
    ))
}

fn roots(authorities: Option<&Pem>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for authority in certificates(pem)? {
                roots.add(authority).map_err(|error| unusable(&error))?;
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    Ok(roots)
}

fn read(pem: &Pem) -> Result<Cow<'_, [u8]>, StoreError> {
    let path = match pem {
        Pem::Text(text) => return Ok(text.into()),
        Pem::File(path) => path,
    };
    read_file(path).map(Cow::Owned).map_err(|error| {
        let why = format!("cannot read the file {}: {error}", path.display());
        StoreError::new(ErrorKind::Invalid, why).with_source(error)
    })
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let pem = read(pem)?;
    let all = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(none) if none.is_empty() => Err(unusable(&"there is no certificate in the PEM text")),
        all => all.map_err(|error| unusable(&error)),
    }
}

fn unusable(error: &dyn Display) -> StoreError {
    let why = format!("the certificates (ca, cert, key) cannot be used: {error}");
    StoreError::new(ErrorKind::Invalid, why)
}

/// How much of what the other side says is passed on: it goes to logs and terminals.
const LONGEST: usize = 300;

/// What TLS says, if the failure is one of TLS. A certificate that has expired, or settings that have
/// `worked` before, are renewed sooner or later; waiting cures nothing else. `plain`: what to do if the
/// server does not speak TLS.
pub fn failure(error: &io::Error, worked: bool, plain: &str) -> Option<StoreError> {
    let failed: &Error = error.get_ref()?.downcast_ref()?;
    let text = failed.to_string();
    let text = text.chars().filter(|c| !c.is_control()).take(LONGEST);
    let text: String = text.collect();
    let kind = match failed {
        _ if worked => ErrorKind::Unavailable,
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )
        | Error::AlertReceived(AlertDescription::CertificateExpired) => ErrorKind::Unavailable,
        Error::InvalidCertificate(_) | Error::AlertReceived(_) | Error::InvalidMessage(_) => {
            ErrorKind::Refused
        }
        _ => ErrorKind::Unavailable,
    };
    let (message, hint) = match failed {
        Error::InvalidCertificate(_) => (
            format!("the certificate of the server is not trusted ({text})"),
            "set `ca` to its authority; use a host name of the certificate; renew one that has expired",
        ),
        Error::AlertReceived(_) => (
            format!("the server refuses the TLS handshake ({text})"),
            "it may ask for a certificate of the client, or for another one: `cert` and `key` in \
             the URL",
        ),
        Error::InvalidMessage(_) => (
            format!("the server does not speak TLS on this port ({text})"),
            plain,
        ),
        _ => (
            format!("the TLS handshake failed ({text})"),
            "check the server's log",
        ),
    };
    Some(StoreError::new(kind, message).with_hint(hint))
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

#[cfg(test)]
#[cfg(any(feature = "ring", feature = "aws-lc"))]
mod tests {
    use super::*;

    /// The parser passes over both, and says that it has found nothing.
    #[test]
    fn a_key_that_is_encrypted_or_a_certificate_is_no_key() {
        let pem = |it| Pem::text(format!("-----BEGIN {it}-----\nAA==\n-----END {it}-----\n"));
        for it in ["ENCRYPTED PRIVATE KEY", "CERTIFICATE"] {
            let options = TlsOptions::default().with_certificate(pem("CERTIFICATE"), pem(it));
            let error = client_config(&options, Trust::Anybody).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(
                error.message().contains("unencrypted private key"),
                "{error}"
            );
        }
    }
}
