//! Who may ask: names of hosts, sites and tokens; and the headers of every answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold::Invalid;
use tokio::time::timeout;

use super::api::Problem;
use super::{HEALTH, REQUEST_LIMIT, Shared};

/// A shorter token can be guessed.
pub const MIN_TOKEN_LENGTH: usize = 16;

/// On every answer: the page runs its own files only, and no other site shows or reads it.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    // A proxy that gathers what it passes on would keep back the events until there are many.
    ("x-accel-buffering", "no"),
];

/// Who may ask for what.
#[derive(Debug)]
pub struct Auth {
    /// What those must send who read locks or metrics.
    pub token: Option<String>,
    /// Whether those with the token may break locks.
    pub may_break: bool,
    /// The names that the page is opened by, beside addresses and localhost.
    pub hosts: Vec<String>,
}

impl Auth {
    /// Refuses what would let others in.
    pub fn check(&self, listen: SocketAddr) -> Result<(), Invalid> {
        // Whether only this machine reaches it.
        let is_public = !listen.ip().to_canonical().is_loopback();
        let needed = match (&self.token, is_public, self.may_break) {
            (None, true, _) => format!("other machines can reach {listen}: a token is required"),
            (None, _, true) => "--allow-break requires a token".to_owned(),
            _ => return Ok(()),
        };
        Err(Invalid::new(needed, TOKEN_HINT))
    }

    /// Refuses other sites: a name that leads here can be anybody's.
    fn check_site(&self, request: &Request) -> Result<(), Problem> {
        let host = header(request.headers(), &HOST)?;
        let named = request.uri().authority().map(|named| named.as_str());
        if named.is_some() && named != host {
            let message = "the URL and the Host header name different hosts";
            return Err(Problem::new(StatusCode::BAD_REQUEST, message));
        }
        let Some(known) = host.filter(|host| self.is_known(host)) else {
            let host = host.unwrap_or_default();
            let message = format!("unknown host name {host:?}");
            let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, message);
            return Err(problem.hint("start leasehold serve with --host NAME"));
        };
        let from_here = |origin: &str| {
            let site = origin.split_once("://");
            site.is_some_and(|(_, name)| name == known)
        };
        let site = HeaderName::from_static("sec-fetch-site");
        let site = header(request.headers(), &site)?;
        let same_site = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
        let same_origin = header(request.headers(), &ORIGIN)?.is_none_or(from_here);
        // A site that cannot read the answer could still keep us busy with it.
        let matters = request.method() != Method::GET || has_data(request);
        if matters && !(same_site && same_origin) {
            let message = "requests from other sites are refused";
            return Err(Problem::new(StatusCode::FORBIDDEN, message));
        }
        Ok(())
    }

    fn is_known(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        let name = authority.host();
        // Behind the name is a port, if anything; names of users before it are for no browser to send.
        let is_plain = host.strip_prefix(name).is_some_and(|rest| {
            rest.is_empty() || (rest.starts_with(':') && authority.port_u16().is_some())
        });
        let bare = name.trim_matches(['[', ']']);
        let is_address = bare.parse::<IpAddr>().is_ok();
        let is_it = |known: &str| [name, host].iter().any(|it| known.eq_ignore_ascii_case(it));
        let mut known = self.hosts.iter().map(|known| &**known).chain(["localhost"]);
        is_plain && (is_address || known.any(is_it))
    }

    fn check_token(&self, request: &Request) -> Result<(), Problem> {
        let Some(token) = self.token.as_ref().filter(|_| has_data(request)) else {
            return Ok(());
        };
        let given = header(request.headers(), &AUTHORIZATION)?;
        let given = given.and_then(|given| given.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
        let message = match given {
            Some((_, given)) if same(given.trim(), token) => return Ok(()),
            Some(_) => "wrong token",
            None => "a token is required",
        };
        Err(Problem::new(StatusCode::UNAUTHORIZED, message)
            .hint("send it as Authorization: Bearer TOKEN"))
    }
}

/// What to do where a token is missing.
pub const TOKEN_HINT: &str =
    "name a file with --token-file, such as one made by (umask 077; openssl rand -hex 32 > token)";

/// All but the page's own files.
fn has_data(request: &Request) -> bool {
    let path = request.uri().path();
    path == "/metrics" || path.starts_with("/api/")
}

/// Compares in a time that does not tell where they differ.
fn same(given: &str, token: &str) -> bool {
    let pairs = given.bytes().zip(token.bytes());
    let differ = pairs.fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differ) == 0
}

/// The value of a header. With two of them, or one that is no text, this server and a proxy before it
/// could take the request for different ones.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut all = headers.get_all(name).iter().map(HeaderValue::to_str);
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        (_, second) => {
            let which = second.map_or("a header that is no text", |_| "more than one header");
            let message = format!("{which}: {name}");
            Err(Problem::new(StatusCode::BAD_REQUEST, message))
        }
    }
}

/// Every request comes through here.
pub(super) async fn admit(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let auth = &shared.options.auth;
    let answered = async {
        if request.uri().path() != HEALTH {
            auth.check_site(&request)?;
            auth.check_token(&request)?;
        }
        let answer = timeout(REQUEST_LIMIT, next.run(request)).await;
        answer.map_err(|_| {
            let message = format!("no answer within {} s", REQUEST_LIMIT.as_secs());
            Problem::new(StatusCode::GATEWAY_TIMEOUT, message)
        })
    };
    let mut answer = answered.await.into_response();
    if answer.status() == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    for (name, value) in HEADERS {
        let headers = answer.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let auth = Auth {
            token: None,
            may_break: false,
            hosts: vec!["locks.example".into(), "at.example:8443".into()],
        };
        for known in [
            "127.0.0.1:7480",
            "127.0.0.1",
            "[::1]:7480",
            "[::1]",
            "localhost:7480",
            "LocalHost",
            "Locks.Example:7480",
            "At.Example:8443",
        ] {
            assert!(auth.is_known(known), "{known}");
        }
        for unknown in [
            "",
            ":",
            ":7480",
            "evil.example",
            "localhost.evil.example",
            "evil.example:7480",
            // Another port than the one that was named.
            "at.example",
            "at.example:7480",
            // Ports that are none.
            "localhost:65536",
            "localhost:",
            "localhost:x",
            "localhost:-1",
            "127.0.0.1:65536",
            "[::1]:65536",
            "locks.example:7480:1",
            // Names of users.
            "@",
            "@localhost",
            "localhost@",
            "user@localhost",
            "localhost@localhost",
            "localhost@localhost:7480",
            "user:password@localhost:7480",
            "localhost:7480@evil.example",
            "localhost@evil.example",
            // Brackets are around an address of IPv6 only.
            "[",
            "]",
            "[]",
            "[localhost]",
            "[locks.example]:7480",
            "[[::1]]",
            "[::1",
            "::1",
            "::1]",
            "[::1]localhost",
            "[::1].evil.example",
            "localhost, evil.example",
            "localhost/",
            "localhost?",
            "localhost#",
            " localhost",
        ] {
            assert!(!auth.is_known(unknown), "{unknown}");
        }
    }

    #[test]
    fn tokens() {
        assert!(same("0123456789abcdef", "0123456789abcdef"));
        for other in [
            "",
            "0123456789abcdeF",
            "0123456789abcde",
            "0123456789abcdef0",
        ] {
            assert!(!same(other, "0123456789abcdef"), "{other}");
        }
    }
}
