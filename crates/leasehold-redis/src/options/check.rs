//! What options may be together.

use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_store::params::check_bounds;

use super::params::only_native;
use super::restart::{Restart, check_times};
use super::sentinels::Sentinels;
use super::url::no_host;
use super::{RedisAddress, RedisLayout, RedisOptions, SHORTEST_RETENTION};

impl RedisOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Invalid`] with the option and its bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        let day = Duration::from_secs(24 * 3600);
        let choose = "choose between 1 min and 366 d; 24 h is a good default";
        let bounds = SHORTEST_RETENTION..=366 * day;
        check_bounds("a retention", self.retention, bounds, choose)?;
        let prefix = &self.prefix;
        let classic = self.is_classic();
        // The native scripts find the name of a lock behind the first `lock:`.
        let misleading = !classic && prefix.contains("lock:");
        if prefix.len() > 128 || misleading || prefix.chars().any(char::is_control) {
            let why = format!("the prefix {prefix:?} is not allowed");
            let hint = "use at most 128 bytes, without control characters and without `lock:`";
            return Err(Invalid::new(why, hint));
        }
        if classic && self.acknowledge.is_some() {
            let why = "in the classic layout, grants do not wait for acknowledgements";
            let hint = "leave out acknowledge: locks of other libraries would not be acknowledged, \
                        and a fail-over could lose them";
            return Err(Invalid::new(why, hint));
        }
        if classic && self.audit.is_some() {
            return Err(only_native("audit", "no record of holders"));
        }
        if classic && self.restart != Restart::Trust {
            let why = "the classic layout has no quarantine after a restart";
            let hint = "leave out restart: other libraries would ignore the quarantine";
            return Err(Invalid::new(why, hint));
        }
        let bounds = || Duration::from_millis(10)..=Duration::from_secs(300);
        let how = "choose between 10 ms and 5 min";
        check_bounds("a connect_timeout", self.connect_timeout, bounds(), how)?;
        check_bounds("a response_timeout", self.response_timeout, bounds(), how)?;
        match &self.address {
            RedisAddress::Tcp { host, .. } if host.is_empty() => return Err(no_host()),
            RedisAddress::Sentinel(sentinels) => sentinels.check()?,
            RedisAddress::Tcp { .. } | RedisAddress::Unix(_) => {}
        }
        if let Some(policy) = &self.acknowledge {
            policy.check()?;
        }
        if let Some(quarantine) = self.restart.quarantine() {
            check_times(quarantine.max_ttl, quarantine.lasts())?;
        }
        self.access.tls.certificate()?;
        if !self.is_encrypted() && !self.access.tls.is_default() {
            let why = "certificates are given, but the connection is not encrypted";
            return Err(Invalid::new(why, "use rediss://"));
        }
        Ok(())
    }

    /// Refuses options for locks of another layout than a store keeps.
    pub(crate) fn check_layout(&self, kept: RedisLayout) -> Result<(), Invalid> {
        let (message, hint) = match kept {
            kept if self.layout == kept => return Ok(()),
            RedisLayout::Native => (
                "these options are for the classic layout",
                "open them with ClassicStore",
            ),
            RedisLayout::Classic => (
                "the options are not for the classic layout",
                "call RedisOptions::classic, or add layout=classic to the URL",
            ),
        };
        Err(Invalid::new(message, hint))
    }

    pub(crate) fn is_classic(&self) -> bool {
        self.layout == RedisLayout::Classic
    }

    /// Whether the connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(
            self.address,
            RedisAddress::Tcp { tls: true, .. }
                | RedisAddress::Sentinel(Sentinels { tls: true, .. })
        )
    }

    /// Forgets the passwords.
    pub(crate) fn without_passwords(mut self) -> Self {
        self.access.set_login(self.access.user.clone(), None);
        if let RedisAddress::Sentinel(sentinels) = &mut self.address {
            sentinels.password = None;
        }
        self
    }
}
