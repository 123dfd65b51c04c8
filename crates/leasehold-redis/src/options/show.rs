//! The URL of options, without the password.

use super::acknowledge::Acknowledge;
use super::sentinels::{self, Sentinels};
use super::{RedisAddress, RedisLayout, RedisOptions};

impl RedisOptions {
    /// The URL of these options, without the password: but for that it reads
    /// back the same.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let secret = self.password.as_ref().map(|_| "***");
        let begin = |kind: &str| {
            let mut url = format!(
                "redis{}{kind}://",
                if self.is_encrypted() { "s" } else { "" }
            );
            encode_name(self.username.as_deref().unwrap_or_default(), &mut url);
            if let Some(secret) = secret {
                url.push(':');
                url.push_str(secret);
            }
            if self.username.is_some() || secret.is_some() {
                url.push('@');
            }
            url
        };
        let mut url = match &self.address {
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
        };
        let usual = Self::default();
        let mut add = |name: &str, value: &str| {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(name);
            url.push('=');
            encode(value, &mut url);
        };
        if matches!(self.address, RedisAddress::Unix(_)) {
            for (name, value) in [("user", self.username.as_deref()), ("pass", secret)] {
                if let Some(value) = value {
                    add(name, value);
                }
            }
        }
        if let RedisAddress::Sentinel(Sentinels {
            username, password, ..
        }) = &self.address
        {
            let hidden = password.as_ref().map(|_| "***");
            for (name, value) in [
                ("sentinel_user", username.as_deref()),
                ("sentinel_pass", hidden),
            ] {
                if let Some(value) = value {
                    add(name, value);
                }
            }
        }
        let prefix = match self.layout {
            RedisLayout::Native => usual.prefix,
            RedisLayout::Classic => {
                add("layout", "classic");
                String::new()
            }
        };
        if self.prefix != prefix {
            add("prefix", &self.prefix);
        }
        let retention = match self.layout {
            RedisLayout::Native => self.retention,
            RedisLayout::Classic => usual.retention,
        };
        for (name, duration, usual) in [
            // Not read back in the classic layout, which does not use it.
            ("retention", retention, usual.retention),
            (
                "connect_timeout",
                self.connect_timeout,
                usual.connect_timeout,
            ),
            (
                "response_timeout",
                self.response_timeout,
                usual.response_timeout,
            ),
        ] {
            if duration != usual {
                add(name, &format!("{}ms", duration.as_millis()));
            }
        }
        let acknowledge = self.acknowledge.iter().flat_map(Acknowledge::parameters);
        for (name, value) in acknowledge.chain(self.restart.parameters()) {
            add(name, &value);
        }
        if let Some(ca) = &self.ca_file {
            add("ca", &ca.to_string_lossy());
        }
        if let Some((certificate, key)) = &self.client_certificate {
            add("cert", &certificate.to_string_lossy());
            add("key", &key.to_string_lossy());
        }
        url
    }
}

/// Writes a query parameter so that it reads back the same.
pub(crate) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' | b'/' => {
                out.push(byte.into());
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The same for what a slash would end: a user, the name of a primary.
pub(crate) fn encode_name(text: &str, out: &mut String) {
    for (at, part) in text.split('/').enumerate() {
        if at > 0 {
            out.push_str("%2F");
        }
        encode(part, out);
    }
}
