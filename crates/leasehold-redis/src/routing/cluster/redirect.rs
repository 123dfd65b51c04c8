//! Redirections: what a node answers if it does not serve the key (`MOVED`, `ASK`, `TRYAGAIN`).

use redis::ServerError;

use super::topology::address_said;
use crate::connection::address::Address;
use crate::errors;

/// An answer that says that nothing was carried out, and what to do instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot lies elsewhere, from now on.
    Moved(u16, Address),
    /// The slot is moving, and this key is not here any more, or not yet.
    Ask(Address),
    /// Some of the keys have moved and some have not.
    Torn,
    /// This node cannot serve now, or it is not the primary any more: another may be.
    Elsewhere,
}

impl Redirect {
    /// Reads an error that the node at `asked` answered; `None` if it is of
    /// another sort.
    pub(super) fn of(error: &ServerError, asked: &Address) -> Option<Self> {
        let detail = error.details().unwrap_or_default();
        match errors::code(error) {
            "MOVED" => target(detail, asked).map(|(slot, to)| Self::Moved(slot, to)),
            "ASK" => target(detail, asked).map(|(_, to)| Self::Ask(to)),
            "TRYAGAIN" => Some(Self::Torn),
            "CLUSTERDOWN" => Some(Self::Elsewhere),
            _ => errors::is_elsewhere(error).then_some(Self::Elsewhere),
        }
    }
}

/// Reads `<slot> <host>:<port>`; without a host, it is the one that was asked.
fn target(detail: &str, asked: &Address) -> Option<(u16, Address)> {
    let mut words = detail.split_ascii_whitespace();
    let slot = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    Some((slot, address_said(host, port.parse().ok()?, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::{RedisResult, Value};

    fn read(answer: &str) -> Option<Redirect> {
        let value: RedisResult<Value> = redis::parse_redis_value(answer.as_bytes());
        let Ok(Value::ServerError(error)) = value else {
            panic!("{answer:?} is {value:?}");
        };
        Redirect::of(&error, &Address::new("asked", 7_000))
    }

    #[test]
    fn answers_are_read() {
        for (answer, wanted) in [
            (
                "-MOVED 3999 127.0.0.1:6381\r\n",
                Some(Redirect::Moved(3999, Address::new("127.0.0.1", 6381))),
            ),
            (
                "-MOVED 3999 :6381\r\n",
                Some(Redirect::Moved(3999, Address::new("asked", 6381))),
            ),
            (
                "-MOVED 16383 2001:db8::1:6381\r\n",
                Some(Redirect::Moved(16_383, Address::new("2001:db8::1", 6381))),
            ),
            (
                "-ASK 0 node-1.example.org:6379\r\n",
                Some(Redirect::Ask(Address::new("node-1.example.org", 6379))),
            ),
            (
                "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
                Some(Redirect::Torn),
            ),
            (
                "-CLUSTERDOWN The cluster is down\r\n",
                Some(Redirect::Elsewhere),
            ),
            (
                "-CLUSTERDOWN Hash slot not served\r\n",
                Some(Redirect::Elsewhere),
            ),
            (
                "-LOADING Redis is loading the dataset in memory\r\n",
                Some(Redirect::Elsewhere),
            ),
            // As Redis 6.2 says it within a script.
            (
                "-ERR Error running script (call to f_0): @user_script:1: @user_script: 1: \
                 -READONLY You can't write against a read only replica.\r\n",
                Some(Redirect::Elsewhere),
            ),
            // It is shown where it cannot be reached.
            (
                "-ASK 0 \u{1b}[2Jh:6379\r\n",
                Some(Redirect::Ask(Address::new("[2Jh", 6379))),
            ),
            ("-MOVED nonsense\r\n", None),
            ("-MOVED 1 here\r\n", None),
            ("-LHTYPE list\r\n", None),
            ("-NOSCRIPT No matching script.\r\n", None),
        ] {
            assert_eq!(read(answer), wanted, "{answer}");
        }
    }
}
