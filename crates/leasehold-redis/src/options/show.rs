//! Formats options as a URL, without the password.

use std::path::Path;

use super::params::{Shown, add_params, encode, encode_name, unusual};
use super::sentinels;
use super::{RedisAddress, RedisLayout, RedisOptions};

/// What stands for a secret.
const HIDDEN: &str = "***";

impl RedisOptions {
    /// The URL of these options, without the password: but for that it reads
    /// back the same. A user name that stands alone is hidden too: it may be the password.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        self.without_lone_users().shown()
    }

    /// The URL by which others open the same store, with passwords that they have from elsewhere.
    pub(crate) fn url_for_others(&self) -> String {
        self.clone().without_passwords().shown()
    }

    /// Names without a password are hidden.
    fn without_lone_users(&self) -> Self {
        let mut shown = self.clone();
        let hide = |user: &mut Option<String>| *user = user.take().map(|_| HIDDEN.to_owned());
        if self.password.is_none() && self.password_file.is_none() {
            hide(&mut shown.username);
        }
        if let RedisAddress::Sentinel(sentinels) = &mut shown.address
            && sentinels.password.is_none()
        {
            hide(&mut sentinels.username);
        }
        shown
    }

    fn shown(&self) -> String {
        let mut url = self.shown_address();
        add_params(&mut url, self.params());
        url
    }

    /// All but the parameters, except for the database of a socket.
    fn shown_address(&self) -> String {
        let begin = |kind: &str| {
            let tls = if self.is_encrypted() { "s" } else { "" };
            let mut url = format!("redis{tls}{kind}://");
            encode_name(self.username.as_deref().unwrap_or_default(), &mut url);
            if self.password.is_some() {
                url.push(':');
                url.push_str(HIDDEN);
            }
            if self.username.is_some() || self.password.is_some() {
                url.push('@');
            }
            url
        };
        match &self.address {
            RedisAddress::Tcp { host, port, .. } => {
                begin("") + &format!("{}/{}", sentinels::address(host, *port), self.db)
            }
            RedisAddress::Sentinel(sentinels) => {
                begin("-sentinel") + &format!("{}/{}", sentinels.show(), self.db)
            }
            RedisAddress::Unix(path) => {
                let mut url = "redis+unix://".to_owned();
                let path = path.to_string_lossy();
                match path.strip_prefix('/') {
                    // Else they would be gone through when it is read.
                    Some(rest) if path.split('/').any(|part| matches!(part, "." | "..")) => {
                        url.push('/');
                        encode_name(rest, &mut url);
                    }
                    _ => encode(&path, &mut url),
                }
                url + &format!("?db={}", self.db)
            }
        }
    }

    fn params(&self) -> Vec<Shown> {
        let classic = self.layout == RedisLayout::Classic;
        let mut usual = Self::default();
        if classic {
            usual = usual.classic();
        }
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| HIDDEN.to_owned());
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut params = match &self.address {
            RedisAddress::Tcp { .. } => Vec::new(),
            RedisAddress::Unix(_) => vec![
                ("user", self.username.clone()),
                ("pass", hidden(&self.password)),
            ],
            RedisAddress::Sentinel(at) => vec![
                ("sentinel_user", at.username.clone()),
                ("sentinel_pass", hidden(&at.password)),
            ],
        };
        // Not read back in the classic layout, which does not use it.
        let retention = unusual(self.retention, usual.retention).filter(|_| !classic);
        params.extend([
            ("layout", classic.then(|| "classic".to_owned())),
            (
                "prefix",
                Some(self.prefix.clone()).filter(|prefix| *prefix != usual.prefix),
            ),
            ("retention", retention),
            ("audit", self.audit.map(|limit| limit.to_string())),
            (
                "connect_timeout",
                unusual(self.connect_timeout, usual.connect_timeout),
            ),
            (
                "response_timeout",
                unusual(self.response_timeout, usual.response_timeout),
            ),
        ]);
        params.extend(self.acknowledge.iter().flat_map(|policy| policy.params()));
        params.extend(self.restart.params());
        params.push(("ca", self.ca_file.as_deref().map(path)));
        if let Some((certificate, key)) = &self.client_certificate {
            params.extend([("cert", Some(path(certificate))), ("key", Some(path(key)))]);
        }
        params
    }
}
