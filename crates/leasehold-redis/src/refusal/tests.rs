//! Tests of the messages of errors.

use std::io;
use std::time::Duration;

use leasehold_store::ErrorKind;

use super::{Dialling, of_opening, refusal};

const FIRST: Dialling = Dialling {
    limit: Duration::from_secs(5),
    encrypted: false,
    worked: false,
};

#[test]
fn why_a_connection_was_not_opened_is_said() {
    let of = |error: io::Error| of_opening(error.into(), &FIRST);
    let kind = |kind: io::ErrorKind| of(kind.into());
    for (error, said) in [
        (
            of(io::Error::other(
                "failed to lookup address information: Name or service not known",
            )),
            "the name of the host cannot be resolved (Name or service not known)",
        ),
        (kind(io::ErrorKind::TimedOut), "no answer within 5s"),
        (kind(io::ErrorKind::ConnectionRefused), "connection refused"),
        (kind(io::ErrorKind::NotFound), "there is no such socket"),
    ] {
        assert_eq!(error.to_string(), said);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{said}");
        assert!(error.hint().is_some(), "{said}");
    }
    let closed = kind(io::ErrorKind::UnexpectedEof);
    assert!(
        closed.to_string().contains("closed the connection"),
        "{closed}"
    );
    let answered = |text: &str| {
        let error = redis::parse_redis_value(text.as_bytes()).unwrap();
        let redis::Value::ServerError(error) = error else {
            panic!("no error: {error:?}")
        };
        of_opening(error.into(), &FIRST)
    };
    for (text, code, kind) in [
        (
            "-WRONGPASS invalid username-password pair\r\n",
            "WRONGPASS invalid",
            ErrorKind::Refused,
        ),
        (
            "-NOAUTH HELLO must be called\r\n",
            "NOAUTH",
            ErrorKind::Refused,
        ),
        (
            "-DENIED Redis is running in protected mode because\r\n",
            "protected mode",
            ErrorKind::Refused,
        ),
        (
            "-ERR max number of clients reached\r\n",
            "maxclients",
            ErrorKind::Unavailable,
        ),
    ] {
        let error = answered(text);
        assert!(error.to_string().contains(code), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// A certificate that has expired passes, and so does whatever fails where it worked before:
/// certificates are renewed at both ends, one after the other.
#[cfg(feature = "tls")]
#[test]
fn what_tls_says_passes_if_a_renewal_mends_it() {
    use rustls::{AlertDescription, CertificateError, Error as Tls, InvalidMessage};
    let (stays, passes) = (ErrorKind::Refused, ErrorKind::Unavailable);
    let untrusted = "not trusted";
    for (failed, said, at_first) in [
        (
            Tls::InvalidCertificate(CertificateError::UnknownIssuer),
            untrusted,
            stays,
        ),
        (
            Tls::InvalidCertificate(CertificateError::NotValidForName),
            untrusted,
            stays,
        ),
        (
            Tls::InvalidCertificate(CertificateError::Expired),
            untrusted,
            passes,
        ),
        (
            Tls::AlertReceived(AlertDescription::CertificateRequired),
            "refuses the TLS",
            stays,
        ),
        (
            Tls::AlertReceived(AlertDescription::CertificateExpired),
            "refuses the TLS",
            passes,
        ),
        (
            Tls::InvalidMessage(InvalidMessage::InvalidContentType),
            "does not speak TLS",
            stays,
        ),
    ] {
        for (worked, kind) in [(false, at_first), (true, passes)] {
            let error = io::Error::new(io::ErrorKind::InvalidData, failed.clone());
            let dialling = Dialling {
                encrypted: true,
                worked,
                ..FIRST
            };
            let error = of_opening(error.into(), &dialling);
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.kind(), kind, "{error}, worked: {worked}");
        }
    }
}

/// It may be an impostor, or a proxy with much to say.
#[test]
fn what_a_server_says_is_shown_in_one_line() {
    for code in ["ODD", "NOPERM", "LHTYPE", "BUSY"] {
        let detail = format!("\u{1b}[2Jno\r\n{}", "x".repeat(10_000));
        let said = refusal(code, &detail).to_string();
        assert!(said.contains("[2Jnox") && said.len() < 500, "{said}");
        assert!(!said.chars().any(char::is_control), "{said:?}");
    }
}
