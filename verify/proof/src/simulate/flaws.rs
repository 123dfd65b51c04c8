//! What the simulation must find: the code under test, or what it stands on, broken on
//! purpose.
//!
//! Scripts are changed on their way into the simulated server, so that a flaw costs no
//! build; `docs/proof/simulation.md` has what each was found by.

use clap::ValueEnum;

use super::invariants::Deployment;

/// A flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Flaw {
    /// The server ends leases after three quarters of their TTL.
    LeasesEndEarly,
    /// Whoever comes first in line is granted, whether or not there is room.
    AnyoneFits,
    /// Who fits is granted, whoever stands in line.
    NewcomersPass,
    /// A claim that is granted from the line gets the token of the one before.
    TokensStandStill,
    /// Who becomes next in line is told that it has the lease.
    PushBeforeGrant,
    /// A release is answered, and not carried out.
    ReleaseDoesNothing,
    /// Of several servers, one that forgot votes at once.
    NoQuarantine,
    /// One server that forgot who holds grants at once, where it should wait.
    OpenGate,
    /// Of several servers, each votes for any token.
    AnyTokenWins,
    /// Of several servers, each votes for whoever asks.
    VotesTwice,
    /// A register takes every token.
    StaleWritesPass,
    /// Clocks are wrong by more than the allowance.
    WildClocks,
    /// The client's clock stands still while the machine sleeps.
    ClockSleeps,
}

/// Texts of a script, and what stands in their place.
type Patches = &'static [(&'static str, &'static str)];

impl Flaw {
    /// Where it can show.
    pub(crate) fn deployment(self) -> Deployment {
        match self {
            Self::NoQuarantine | Self::AnyTokenWins | Self::VotesTwice => Deployment::Redlock,
            _ => Deployment::Redis,
        }
    }

    pub(super) fn patches(self) -> Patches {
        match self {
            Self::LeasesEndEarly => &[
                (
                    "= last_token + 1, clock + ttl\n",
                    "= last_token + 1, clock + math.floor(ttl * 0.75)\n",
                ),
                (
                    "local raised = clock + unpack_from('<d', command, 3)\n",
                    "local raised = clock + math.floor(unpack_from('<d', command, 3) * 0.75)\n",
                ),
                (
                    "earliest = now + lease_ttl\n",
                    "earliest = now + math.floor(lease_ttl * 0.75)\n",
                ),
                (
                    "math.max(now + ttl, ",
                    "math.max(now + math.floor(ttl * 0.75), ",
                ),
            ],
            Self::AnyoneFits => &[(
                "return capacity == 0 or used + weight <= units()",
                "return true",
            )],
            Self::NewcomersPass => &[("or ((ahead or waiting == 0)", "or (true")],
            Self::TokensStandStill => &[
                ("last_token = next_token()\n  used", "used"),
                ("token = token + 1\n", ""),
                (
                    "= last_token + 1, clock + ttl\n",
                    "= last_token, clock + ttl\n",
                ),
                (
                    "if token < clock then",
                    "if token < clock and last_token == 0 then",
                ),
            ],
            Self::PushBeforeGrant => &[(
                "tell('n', claim, '%.0f %.0f ', blocked, now)",
                "tell('g', claim, '%.0f %.0f ', last_token + 1, now)",
            )],
            Self::ReleaseDoesNothing => &[
                ("if marks % 4 >= 2 then", "if false then"),
                ("if marks % 4 ~= 3 or", "if true or"),
                ("    remove(claim)\n    return false", "    return false"),
            ],
            Self::NoQuarantine | Self::OpenGate => &[
                ("math.max(struct.unpack('<d', marker) - clock, 0)", "0"),
                ("  return quarantine\nend", "  return 0\nend"),
            ],
            Self::AnyTokenWins => &[("elseif token <= highest then", "elseif false then")],
            Self::VotesTwice => &[(
                "elseif granted + waiting > (claim and 1 or 0) then",
                "elseif false then",
            )],
            Self::StaleWritesPass => &[("elseif is_below(token, seen) then", "elseif false then")],
            Self::WildClocks | Self::ClockSleeps => &[],
        }
    }

    /// The script with the flaw.
    pub(crate) fn put_into(self, script: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(script).into_owned();
        let put = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
        self.patches().iter().fold(text, put).into_bytes()
    }
}
