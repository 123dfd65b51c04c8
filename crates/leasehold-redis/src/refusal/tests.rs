//! Tests of the messages of errors.

use std::io;
use std::time::Duration;

use leasehold_store::ErrorKind;

use super::{of_opening, refusal};

#[test]
fn why_a_connection_was_not_opened_is_said() {
    let limit = Duration::from_secs(5);
    let of = |error: io::Error| of_opening(error.into(), limit);
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
        of_opening(error.into(), limit)
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

#[cfg(feature = "tls")]
#[test]
fn what_tls_says_is_no_matter_of_a_server_that_is_down() {
    use rustls::{AlertDescription, CertificateError, Error as Tls, InvalidMessage};
    for (failed, said) in [
        (
            Tls::InvalidCertificate(CertificateError::UnknownIssuer),
            "not trusted",
        ),
        (
            Tls::AlertReceived(AlertDescription::CertificateRequired),
            "refuses the TLS",
        ),
        (
            Tls::InvalidMessage(InvalidMessage::InvalidContentType),
            "does not speak TLS",
        ),
    ] {
        let error = io::Error::new(io::ErrorKind::InvalidData, failed);
        let error = of_opening(error.into(), Duration::from_secs(5));
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
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
