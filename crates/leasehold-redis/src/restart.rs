//! What is thought of a server that has restarted: that it remembers, or that it
//! may have forgotten who holds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{Invalid, Marked, SetTerms};
use leasehold_store::{ErrorKind, StoreError};
use redis::{Cmd, Value};

use super::connect::Target;
use super::options::{RedisOptions, parse_duration};
use super::record::Bytes;
use super::script::{self, SCRIPTS, micros};
use super::step::{Way, run};
use super::wire::Wire;
use super::{RedisStore, refusal};

const EXAMPLE: &str = "write restart=quarantine or restart=trust";

/// What is thought of a server that has restarted, was flushed, or has taken
/// another's place.
///
/// ```
/// use std::time::Duration;
/// use leasehold::store::redis::{Quarantine, RedisOptions, Restart};
/// let options = RedisOptions::from_url("redis://localhost/?restart=quarantine&max_ttl=10s")?;
/// let chosen = Quarantine::new(Duration::from_secs(10));
/// assert_eq!(options.restart, Restart::Quarantine(chosen));
/// assert_eq!(chosen.lasts(), Duration::from_secs(20));
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Restart {
    /// That it has all its data. If it has not, two clients can hold at once.
    #[default]
    Trust,
    /// That it may have forgotten who holds: it grants nothing until all that it
    /// may have forgotten has lapsed.
    Quarantine(Quarantine),
}

/// For how long a server that may have forgotten who holds grants nothing. All
/// clients of a server (with one prefix) must say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quarantine {
    /// The longest TTL that a claim may have: 100 ms to 24 h.
    pub max_ttl: Duration,
    /// How long the quarantine lasts; `None` for twice `max_ttl`, and never less.
    pub lasts: Option<Duration>,
}

impl Default for Quarantine {
    /// TTLs of up to 60 s, and a quarantine of 120 s.
    fn default() -> Self {
        Self::new(Duration::from_secs(60))
    }
}

impl Quarantine {
    /// With TTLs of up to `max_ttl`, and twice that time.
    #[must_use]
    pub const fn new(max_ttl: Duration) -> Self {
        Self {
            max_ttl,
            lasts: None,
        }
    }

    /// Sets how long it lasts: at least twice `max_ttl`.
    #[must_use]
    pub const fn lasting(self, lasts: Duration) -> Self {
        Self {
            lasts: Some(lasts),
            ..self
        }
    }

    /// How long it lasts.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.lasts.unwrap_or_else(|| self.max_ttl.saturating_mul(2))
    }

    /// What all clients of the server must agree on.
    pub(crate) fn terms(&self) -> SetTerms {
        SetTerms {
            set: format!("one server {}ms", self.max_ttl.as_millis()),
            quarantine: self.lasts(),
        }
    }

    /// Refuses a TTL that would outlive the quarantine.
    pub(super) fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        if ttl <= self.max_ttl {
            return Ok(());
        }
        let max = self.max_ttl;
        Err(StoreError::new(
            ErrorKind::Invalid,
            format!("a TTL of {ttl:?} is longer than this server allows: {max:?}"),
        )
        .with_hint("choose a shorter one, or set max_ttl for all clients of the server"))
    }
}

impl Restart {
    pub(super) fn quarantine(&self) -> Option<&Quarantine> {
        match self {
            Self::Trust => None,
            Self::Quarantine(quarantine) => Some(quarantine),
        }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let Some(quarantine) = self.quarantine() else {
            return Ok(());
        };
        let Quarantine { max_ttl, .. } = *quarantine;
        check_times(max_ttl, quarantine.lasts())
    }

    /// The parameters of a URL.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let Some(Quarantine { max_ttl, lasts }) = self.quarantine().copied() else {
            return Vec::new();
        };
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let mut parameters = vec![("restart", "quarantine".to_owned())];
        if max_ttl != Quarantine::default().max_ttl {
            parameters.push(("max_ttl", millis(max_ttl)));
        }
        parameters.extend(lasts.map(|lasts| ("quarantine", millis(lasts))));
        parameters
    }
}

/// Refuses times that exclude nobody.
pub(super) fn check_times(max_ttl: Duration, quarantine: Duration) -> Result<(), Invalid> {
    let bounds = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
    if !bounds.contains(&max_ttl) {
        return Err(Invalid::new(
            format!("a max_ttl of {max_ttl:?} is out of bounds"),
            format!("choose between {:?} and {:?}", bounds.start(), bounds.end()),
        ));
    }
    if quarantine < 2 * max_ttl || quarantine > Duration::from_secs(366 * 24 * 3600) {
        return Err(Invalid::new(
            format!("a quarantine of {quarantine:?} is out of bounds"),
            "choose twice max_ttl or more: claims outlive it otherwise, or tokens fall where \
             clocks differ",
        ));
    }
    Ok(())
}

/// What the parameters of a URL say so far.
#[derive(Debug, Default)]
pub(super) struct Said {
    quarantine: Option<bool>,
    max_ttl: Option<Duration>,
    lasts: Option<Duration>,
}

impl Said {
    /// Reads one parameter; `false` if it is another's.
    pub(super) fn read(&mut self, name: &str, value: &str) -> Result<bool, Invalid> {
        match name {
            "restart" => {
                self.quarantine = Some(match value {
                    "quarantine" => true,
                    "trust" => false,
                    _ => {
                        return Err(Invalid::new(
                            format!("restart = {value:?} cannot be read"),
                            EXAMPLE,
                        ));
                    }
                });
            }
            "max_ttl" => self.max_ttl = Some(parse_duration(name, value)?),
            "quarantine" => self.lasts = Some(parse_duration(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn choice(self) -> Result<Restart, Invalid> {
        if self.quarantine == Some(true) {
            let usual = Quarantine::default();
            return Ok(Restart::Quarantine(Quarantine {
                max_ttl: self.max_ttl.unwrap_or(usual.max_ttl),
                lasts: self.lasts,
            }));
        }
        if self.max_ttl.is_some() || self.lasts.is_some() {
            return Err(Invalid::new(
                "max_ttl and quarantine mean nothing on a server that is trusted after a restart",
                "add restart=quarantine to the URL, or leave them out",
            ));
        }
        Ok(Restart::Trust)
    }
}

/// What gated scripts are told: see `lua/gate.lua`.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) marker: String,
    pub(super) terms: Vec<u8>,
}

impl Gate {
    /// For a server that runs as `run`.
    pub(super) fn new(prefix: &str, run: &str, terms: &SetTerms) -> Self {
        #[allow(
            clippy::cast_precision_loss,
            reason = "no number on the wire is above 2^53"
        )]
        let mut packed = (micros(terms.quarantine) as f64).to_le_bytes().to_vec();
        script::push_short(&mut packed, run);
        script::push_short(&mut packed, &terms.set);
        Self {
            marker: marker_key(prefix),
            terms: packed,
        }
    }

    /// Asks whether the server belongs to clients with these settings. `starts`: where
    /// it may have forgotten something, its quarantine starts now, and not only with
    /// the next request.
    pub(super) async fn touch(&self, wire: &Arc<Wire>, starts: bool) -> Result<(), StoreError> {
        let terms = |call: &mut Cmd| {
            call.arg(&self.terms).arg(u8::from(starts));
        };
        match run(wire, Way::Plain, &SCRIPTS.touch, &[&self.marker], terms).await? {
            Value::ServerError(error) if matches!(error.code(), "LHFOREIGN" | "NOPERM") => {
                Err(refusal::of_server(&error))
            }
            // What keeps it from writing now may be over when somebody asks.
            Value::ServerError(error) => {
                tracing::debug!(error = error.code(), "cannot mark the server");
                Ok(())
            }
            value => read_left(&value).map(|(left, _)| {
                if starts && !left.is_zero() {
                    tracing::warn!(
                        ?left,
                        "this server may have forgotten who holds, and grants nothing for a while"
                    );
                }
            }),
        }
    }
}

/// Where a server remembers what it knows of itself.
pub(super) fn marker_key(prefix: &str) -> String {
    format!("{prefix}boot")
}

/// Says that a server is new.
pub(super) async fn mark(
    wire: &Arc<Wire>,
    marker: &str,
    run_id: &str,
    terms: &SetTerms,
) -> Result<Marked, StoreError> {
    let value = run(wire, Way::Plain, &SCRIPTS.init, &[marker], |call| {
        call.arg(run_id)
            .arg(&terms.set)
            .arg(micros(terms.quarantine));
    })
    .await?;
    let (left, became) = read_left(&value)?;
    Ok(match became {
        1 => Marked::New,
        2 => Marked::Moved { left },
        _ if left.is_zero() => Marked::Already,
        _ => Marked::NotNew { left },
    })
}

/// What is left of a quarantine; and, where a server was to be marked, what it was
/// before: see `lua/init.lua`.
pub(super) fn read_left(value: &Value) -> Result<(Duration, u64), StoreError> {
    let left = |bytes: &[u8]| {
        let mut bytes = Bytes(bytes);
        let (kind, _, left) = (bytes.u8()?, bytes.time()?, bytes.number()?);
        (kind == 7).then(|| (Duration::from_micros(left), bytes.number().unwrap_or(0)))
    };
    match value {
        Value::BulkString(bytes) => left(bytes).ok_or_else(|| script::unreadable(value)),
        Value::ServerError(error) => Err(refusal::of_server(error)),
        other => Err(script::unreadable(other)),
    }
}

impl RedisStore {
    /// Marks a server as new that has never granted anything, so that it grants at
    /// once where it would wait for the end of a quarantine. For options with
    /// [`Restart::Quarantine`].
    ///
    /// A server that is marked already is not believed to be new: its quarantine
    /// takes as long as it takes. One that belonged to clients with another
    /// `max_ttl` or `quarantine` belongs to these from now on, after the longer of
    /// both quarantines.
    ///
    /// **Only for servers that have no data because they never had any**: one that
    /// has lost its data would grant while leases that it has forgotten are valid.
    ///
    /// # Cancel safety
    /// The server may be marked although the future was dropped.
    ///
    /// # Errors
    /// `Invalid` for options without a quarantine, or that cannot work; else as
    /// [`RedisStore::connect`].
    pub async fn initialise(options: RedisOptions) -> Result<Marked, StoreError> {
        let Some(quarantine) = options.restart.quarantine().copied() else {
            return Err(StoreError::new(
                ErrorKind::Invalid,
                "without restart=quarantine a server is trusted after a restart, and nothing is marked",
            )
            .with_hint("add it to the URL if the clients of the server say so"));
        };
        let target = Target::new(&options)?;
        let opened = target.connect(|_| Ok::<(), ()>(())).await?;
        let run_id = opened.server.run_id.clone();
        let wire = Arc::new(Wire::new(opened, Arc::default(), Weak::new()));
        let marker = marker_key(&options.prefix);
        mark(&wire, &marker, &run_id, &quarantine.terms()).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::RedisOptions;
    use super::super::{RedisClusterOptions, RedlockOptions};
    use super::*;

    #[test]
    fn a_url_says_what_a_restart_means() {
        let seconds = Duration::from_secs;
        for (said, wanted) in [
            ("restart=trust", Restart::Trust),
            (
                "restart=quarantine",
                Restart::Quarantine(Quarantine::default()),
            ),
            (
                "max_ttl=10s&restart=quarantine",
                Restart::Quarantine(Quarantine::new(seconds(10))),
            ),
            (
                "restart=quarantine&quarantine=5m",
                Restart::Quarantine(Quarantine::default().lasting(seconds(300))),
            ),
        ] {
            for begin in ["redis://h/", "redis+unix:///s", "redis-sentinel://h/main"] {
                let options = RedisOptions::from_url(&format!("{begin}?{said}")).unwrap();
                assert_eq!(options.restart, wanted, "{said}");
                let again = RedisOptions::from_url(&options.redacted_url());
                assert_eq!(again, Ok(options), "{said}");
            }
        }
        for (said, named) in [
            ("restart=perhaps", "\"perhaps\""),
            ("max_ttl=10s", "trusted"),
            ("quarantine=10s", "trusted"),
            ("restart=trust&max_ttl=10s", "trusted"),
            ("restart=quarantine&max_ttl=10ms", "a max_ttl of 10ms"),
            ("restart=quarantine&max_ttl=2d", "a max_ttl of"),
            (
                "restart=quarantine&quarantine=119s",
                "119s is out of bounds",
            ),
            ("restart=quarantine&quarantine=0s", "0ns is out of bounds"),
            ("restart=quarantine&max_ttl=soon", "\"soon\""),
        ] {
            let invalid = RedisOptions::from_url(&format!("redis://h/?{said}")).unwrap_err();
            assert!(invalid.message.contains(named), "{said}: {invalid}");
        }
    }

    #[test]
    fn several_servers_have_no_quarantine_of_one() {
        let cluster = RedisClusterOptions::from_url("redis-cluster://h/?restart=quarantine");
        let refused = cluster.unwrap_err();
        assert!(refused.message.contains("quarantine"), "{refused}");
        let several = RedlockOptions::from_url("redlock://a,b,c/?restart=quarantine");
        let refused = several.unwrap_err();
        assert!(refused.message.contains("quarantine anyway"), "{refused}");
    }

    #[test]
    fn the_terms_name_all_that_clients_must_agree_on() {
        let usual = Quarantine::default().terms();
        assert_ne!(usual, Quarantine::new(Duration::from_secs(59)).terms());
        let longer = Quarantine::default().lasting(Duration::from_secs(121));
        assert_ne!(usual, longer.terms());
        let same = Quarantine::default().lasting(Duration::from_secs(120));
        assert_eq!(usual, same.terms());
    }
}
