//! What the simulation must find: the code under test, or what it stands on, broken on
//! purpose.
//!
//! Scripts are changed on their way into the simulated server, so that a flaw costs no
//! build; `docs/proof/simulation.md` has what each was found by.

use clap::ValueEnum;

use super::invariants::Deployment;
use crate::value_name::value_name;

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

/// What each flaw changes in scripts.
const PATCHES: &str = include_str!("flaws.txt");

impl Flaw {
    /// Where it can show.
    pub(crate) fn deployment(self) -> Deployment {
        match self {
            Self::NoQuarantine | Self::AnyTokenWins | Self::VotesTwice => Deployment::Redlock,
            _ => Deployment::Redis,
        }
    }

    /// Texts of scripts, and what stands in their place.
    pub(super) fn patches(self) -> Vec<(String, String)> {
        let name = value_name(&self);
        let mut entries = PATCHES.split("\n* ");
        let own = entries.find_map(|entry| entry.strip_prefix(&*name)?.strip_prefix('\n'));
        let lines = own.into_iter().flat_map(str::lines);
        let patches = lines.map(|line| {
            let patch = line.strip_prefix("  ");
            let patch = patch.and_then(|line| line.split_once(" =>"));
            patch.unwrap_or_else(|| unreachable!("{line:?} is no change of a script"))
        });
        let text = |text: &str| text.replace("\\n", "\n");
        let patch =
            |(from, to): (&str, &str)| (text(from), text(to.strip_prefix(' ').unwrap_or(to)));
        patches.map(patch).collect()
    }

    /// The script with the flaw.
    pub(crate) fn put_into(self, script: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(script).into_owned();
        let put = |text: String, (from, to): (String, String)| text.replace(&from, &to);
        self.patches().into_iter().fold(text, put).into_bytes()
    }
}
