//! Findings about permissions and acknowledgements.

use leasehold_store::report::Finding;
use leasehold_store::report::Severity::{Fine, Note, Unsafe, Warning};
use leasehold_store::trial::Trial;

use super::super::facts::Facts;
use crate::errors;

/// What the server, or its access control, forbids.
pub(super) fn rights(facts: &Facts) -> Vec<Finding> {
    let rights = match &facts.rights {
        Some(Ok(rights)) => rights,
        // Whoever uses the server finds it out too, and says it.
        Some(Err(error)) if facts.trial.is_none() => {
            return vec![super::of_server("scripts", error, facts)];
        }
        _ => return Vec::new(),
    };
    let missing = rights.missing.iter().map(|missing| {
        Finding::new(Warning, missing.check, missing.found)
            .meaning(missing.cost)
            .remedied(missing.remedy(&facts.options.prefix))
    });
    missing.collect()
}

/// Whether grants are pushed where that is not forbidden.
pub(super) fn pushes(trial: &Trial) -> Option<Finding> {
    let is_told = trial.failed.is_none() && !trial.deaf;
    is_told.then(|| match trial.push {
        Some(_) => Finding::new(Fine, "pushes", "a grant was pushed to its waiter"),
        None => Finding::new(Warning, "pushes", "a grant was not pushed")
            .meaning("waiters notice their grants only when they poll, some seconds later")
            .remedied("check for a proxy between this host and the server"),
    })
}

/// Whether locks can be listed.
pub(super) fn listing(trial: &Trial) -> Option<Finding> {
    trial.unlisted.as_ref().map(|error| {
        let hint = error.hint().unwrap_or("check the server's log");
        Finding::new(Note, "listing", error.to_string())
            .meaning("locks cannot be listed (`leasehold ls`); everything else works")
            .remedied(errors::lacking(error.message()).unwrap_or_else(|| hint.to_owned()))
    })
}

/// Who may speak on our channels although the keys are not theirs.
pub(super) fn channels(facts: &Facts) -> Option<Finding> {
    let default = facts.config("acl-pubsub-default");
    // Later versions close the channels by default.
    let unknown = default.is_none() && facts.info("redis_version").starts_with("6.");
    let found = match &facts.users {
        Some(users) if !users.on_all_channels.is_empty() => format!(
            "these users may publish on all channels: {}",
            users.on_all_channels.join(", ")
        ),
        Some(users) if users.others > 0 && unknown => {
            "unknown whether new users may publish on all channels: needs +config|get".to_owned()
        }
        Some(users) if users.others > 0 && default == Some("allchannels") => {
            "new users may publish on all channels: acl-pubsub-default allchannels".to_owned()
        }
        // Whoever logs in has rights that somebody has chosen, and may not see the others'.
        None if (unknown || default == Some("allchannels"))
            && facts.user.as_deref().is_some_and(|user| user != "default") =>
        {
            "unknown who may publish on all channels: needs +acl|list".to_owned()
        }
        _ => return None,
    };
    let prefix = &facts.options.prefix;
    let finding = Finding::new(Note, "channels", found)
        .meaning("they can make clients send needless requests; they cannot fake a grant")
        .remedied(format!(
            "ACL SETUSER <name> resetchannels, with &{prefix}* for leasehold; acl-pubsub-default \
             resetchannels"
        ));
    Some(finding)
}

/// Who has acknowledged the grant of the trial, where a policy asks for it.
pub(super) fn acknowledged(trial: &Trial, facts: &Facts) -> Option<Finding> {
    let acknowledged = trial.acknowledged?;
    let finding = |severity| Finding::new(severity, "acknowledged", acknowledged.to_string());
    let online = facts.replicas().iter().filter(|one| one.online).count();
    let wanted = usize::try_from(acknowledged.wanted).unwrap_or(usize::MAX);
    Some(match wanted {
        _ if !acknowledged.is_enough() => finding(Unsafe)
            .meaning(
                "no lock can be acquired: each grant is released again, since too few \
                 acknowledged it",
            )
            .remedied("repair the replicas, or ask for fewer (`acknowledge`)"),
        0 => finding(Fine),
        _ if wanted < online => finding(Note)
            .meaning(
                "a replica that has not acknowledged a grant may be promoted, and the grant is lost",
            )
            .remedied("ask for all replicas that may be promoted (`acknowledge`)"),
        _ => finding(Note)
            .meaning("while one of these replicas is away, no lock is granted")
            .remedied(
                "run one replica more than must acknowledge, if availability matters more than \
                 safety",
            ),
    })
}
