//! Findings for servers with a quarantine after a restart (`restart=quarantine`).

use std::time::Duration;

use leasehold_store::report::Finding;
use leasehold_store::report::Severity::{Fine, Note, Unsafe, Warning};

use super::facts::{Facts, Vote};
use crate::options::RedisAddress;
use crate::options::restart::Quarantine;

/// A primary counts its replicas once a second, in whole seconds.
const COUNTING: Duration = Duration::from_secs(2);

/// What is promised on such a server.
pub(super) const PROMISE: &str = "Exclusion while a lease is valid, also when the server restarts \
     without its data or is flushed, and after a fail-over if the former primary no longer grants; \
     as long as the server's clock is not stepped forward. Fencing: tokens keep rising in all \
     these cases, as long as its clock does not go back further than the quarantine.";

/// Whether it grants.
pub(super) fn grants(vote: Vote) -> Finding {
    let finding = |found: &str| Finding::new(Warning, "quarantine", found);
    match vote {
        Vote::Now => Finding::new(Fine, "quarantine", "it grants"),
        Vote::After(left) => finding(&format!("it grants again after {} s", left.as_secs() + 1))
            .meaning("until then holders keep their locks, and everybody else waits")
            .remedied("nothing: the quarantine ends by itself"),
        Vote::Restarted => finding("it was restarted, and has received no claim since")
            .meaning("its quarantine starts with the first claim; after that it grants again")
            .remedied("nothing: the quarantine ends by itself"),
        Vote::Unmarked => finding("it has no mark: it is new, or has lost its data")
            .meaning("its quarantine starts with the first claim; after that it grants")
            .remedied("if it is new, run leasehold init -S URL"),
        Vote::Foreign => {
            let found = "it belongs to clients with other settings";
            Finding::new(Unsafe, "quarantine", found)
                .meaning("it refuses clients with these settings")
                .remedied(
                    "use the same max_ttl and quarantine in all clients; leasehold init -S URL \
                     changes the server's",
                )
        }
    }
}

/// Whether a primary that was replaced stops granting before the quarantine of the
/// one in its place is over.
pub(super) fn isolation(facts: &Facts, quarantine: &Quarantine) -> Option<Finding> {
    let sought = matches!(facts.options.address, RedisAddress::Sentinel(_));
    if !sought && facts.replicas().is_empty() {
        return None;
    }
    let (Some(needed), Some(lag)) = (
        facts.config("min-replicas-to-write"),
        facts.config("min-replicas-max-lag"),
    ) else {
        return Some(isolation_is_unknown());
    };
    if needed == "0" {
        return Some(
            Finding::new(Warning, "isolation", "min-replicas-to-write 0")
                .meaning(
                    "a primary that is cut off keeps granting after a fail-over: no quarantine is \
                     long enough",
                )
                .remedied("set min-replicas-to-write to the number of replicas"),
        );
    }
    let lag: u64 = lag.parse().ok()?;
    let grants_for = Duration::from_secs(lag).saturating_add(COUNTING);
    let spare = quarantine.lasts().saturating_sub(quarantine.max_ttl);
    (grants_for > spare).then(|| {
        let found = format!("min-replicas-max-lag {lag}");
        let enough = quarantine.max_ttl.saturating_add(grants_for).as_secs();
        let enough = enough.saturating_add(1);
        Finding::new(Warning, "isolation", found)
            .meaning(
                "a primary that is cut off grants for that time; its leases may outlast the new \
                 one's quarantine",
            )
            .remedied(format!(
                "choose a quarantine of {enough} s or more, or a shorter lag"
            ))
    })
}

/// What a primary does that is cut off is a matter of settings that cannot be read.
pub(super) fn isolation_is_unknown() -> Finding {
    let found = "min-replicas-to-write and its lag are unknown: needs +config|get";
    Finding::new(Note, "isolation", found)
        .meaning(
            "unless they are set, a primary that is cut off keeps granting after a replica was \
             promoted",
        )
        .remedied("make sure that min-replicas-to-write is the number of replicas")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::RedisOptions;

    fn facts(settings: &[(&str, &str)]) -> Facts {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Facts {
            options: RedisOptions::from_url("redis-sentinel://h/main").unwrap(),
            config: settings.iter().map(pair).collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn a_primary_that_was_replaced_has_to_stop_in_time() {
        let usual = Quarantine::default();
        let short = Quarantine::new(Duration::from_secs(10));
        let settings = |needed, lag| {
            facts(&[
                ("min-replicas-to-write", needed),
                ("min-replicas-max-lag", lag),
            ])
        };
        let severity =
            |facts: &Facts, quarantine| isolation(facts, quarantine).map(|it| it.severity);
        assert_eq!(severity(&settings("1", "10"), &usual), None);
        assert_eq!(severity(&settings("1", "8"), &short), None);
        let warning = Some(Warning);
        assert_eq!(severity(&settings("1", "9"), &short), warning);
        assert_eq!(severity(&settings("0", "1"), &usual), warning);
        let found = isolation(&settings("1", "10"), &short).unwrap();
        assert!(found.remedy.unwrap().contains("23 s or more"));
        // A server can say anything.
        let longest = settings("1", "18446744073709551615");
        assert_eq!(severity(&longest, &usual), warning);
        // Nobody can take the place of a server without replicas or Sentinels.
        let mut alone = settings("0", "10");
        alone.options = RedisOptions::default();
        assert_eq!(severity(&alone, &usual), None);
    }
}
