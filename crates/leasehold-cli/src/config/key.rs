//! The settings that can be configured, by their keys.

use crate::env;

/// A key of `leasehold.toml`, and of its profiles.
#[allow(clippy::enum_variant_names, reason = "`tls-key` names a key of TLS")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Store,
    User,
    PasswordFile,
    TlsCa,
    TlsCert,
    TlsKey,
    Ttl,
    Wait,
    RetryFor,
    Grace,
    Label,
}

impl Key {
    /// In the order in which they are shown.
    pub(crate) const ALL: [Self; 11] = [
        Self::Store,
        Self::User,
        Self::PasswordFile,
        Self::TlsCa,
        Self::TlsCert,
        Self::TlsKey,
        Self::Ttl,
        Self::Wait,
        Self::RetryFor,
        Self::Grace,
        Self::Label,
    ];

    /// The key itself. The option is the same behind two dashes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::User => "user",
            Self::PasswordFile => "password-file",
            Self::TlsCa => "tls-ca",
            Self::TlsCert => "tls-cert",
            Self::TlsKey => "tls-key",
            Self::Ttl => "ttl",
            Self::Wait => "wait",
            Self::RetryFor => "retry-for",
            Self::Grace => "grace",
            Self::Label => "label",
        }
    }

    /// The environment variable that sets the same.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Store => env::STORE,
            Self::User => env::USER,
            Self::PasswordFile => env::PASSWORD_FILE,
            Self::TlsCa => env::TLS_CA,
            Self::TlsCert => env::TLS_CERT,
            Self::TlsKey => env::TLS_KEY,
            Self::Ttl => env::TTL,
            Self::Wait => env::WAIT,
            Self::RetryFor => env::RETRY_FOR,
            Self::Grace => env::GRACE,
            Self::Label => env::LABEL,
        }
    }

    /// A value, for hints.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Store => "redis://host/",
            Self::User => "app",
            Self::PasswordFile => "password",
            Self::TlsCa => "ca.pem",
            Self::TlsCert => "client.pem",
            Self::TlsKey => "client.key",
            Self::Ttl => "30s",
            Self::Wait => "5m",
            Self::RetryFor => "10m",
            Self::Grace => "5s",
            Self::Label => "billing",
        }
    }

    /// The key of that name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }
}

/// What was meant by a name that is none of these, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// As clap has it for options.
    const NEAR: f64 = 0.7;
    let name = name.to_lowercase();
    let near = known.into_iter();
    let near = near.map(|it| (strsim::jaro(&name, &it.to_lowercase()), it));
    let near = near.filter(|(nearness, _)| *nearness > NEAR);
    near.max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_one_is_near() {
        let names = || Key::ALL.map(Key::name);
        for (typed, meant) in [
            ("stroe", Some("store")),
            ("password_file", Some("password-file")),
            ("tls-cret", Some("tls-cert")),
            ("TTL", Some("ttl")),
            ("", None),
            ("colour", None),
        ] {
            assert_eq!(nearest(typed, names()), meant, "{typed}");
        }
    }
}
