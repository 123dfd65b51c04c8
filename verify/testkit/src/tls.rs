//! Certificates for one test: an authority of its own, a server and a client that it vouches for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A chain of trust in a directory: PEM files, and their text.
///
/// The server's certificate is good for `127.0.0.1` and `localhost`. Keys are ECDSA on P-256, and
/// are made anew each time.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The certificate of the authority: what both ends have to trust.
    pub authority: Pem,
    /// The server's certificate.
    pub server_certificate: Pem,
    /// The server's private key.
    pub server_key: Pem,
    /// A client's certificate, for servers that ask for one.
    pub client_certificate: Pem,
    /// The client's private key.
    pub client_key: Pem,
}

/// A PEM file and its text.
#[derive(Clone, Debug)]
pub struct Pem {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

impl Certificates {
    /// Makes new keys and certificates and writes them into `directory`.
    ///
    /// # Panics
    ///
    /// When the files cannot be written.
    pub fn generate(directory: &Path) -> Self {
        let (authority, issuer) = authority();
        let (server, client) = ("leasehold test server", "leasehold test client");
        let of = |usage, name| vouched_for(&issuer, usage, name);
        let (server_certificate, server_key) = of(ExtendedKeyUsagePurpose::ServerAuth, server);
        let (client_certificate, client_key) = of(ExtendedKeyUsagePurpose::ClientAuth, client);

        let pem = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, &text)
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
            Pem { path, text }
        };
        Self {
            authority: pem("authority.pem", authority),
            server_certificate: pem("server.pem", server_certificate),
            server_key: pem("server.key", server_key),
            client_certificate: pem("client.pem", client_certificate),
            client_key: pem("client.key", client_key),
        }
    }

    /// What a client uses that trusts the authority and has the client's certificate.
    ///
    /// # Panics
    ///
    /// When the text of a file is not what it was.
    pub fn client_config(&self) -> ClientConfig {
        let certificate = |pem: &Pem| {
            let certificate = CertificateDer::from_pem_slice(pem.text.as_bytes());
            certificate.expect("it is a certificate")
        };
        let mut roots = RootCertStore::empty();
        let added = roots.add(certificate(&self.authority));
        added.expect("an authority can be trusted");
        let key = PrivateKeyDer::from_pem_slice(self.client_key.text.as_bytes());
        let chain = vec![certificate(&self.client_certificate)];
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key.expect("it is a key"))
            .expect("the key is that of the certificate")
    }
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "leasehold test authority");
    let certificate = params.self_signed(&key).expect("the parameters are sound");
    (certificate.pem(), Issuer::new(params, key))
}

fn vouched_for(
    issuer: &Issuer<'_, KeyPair>,
    purpose: ExtendedKeyUsagePurpose,
    name: &str,
) -> (String, String) {
    let key = KeyPair::generate().expect("a key can be made");
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names).expect("the names are sound");
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    let certificate = params.signed_by(&key, issuer);
    let certificate = certificate.expect("the parameters are sound");
    (certificate.pem(), key.serialize_pem())
}
