//! What a schedule may not break, whatever happens in it.
//!
//! From `SAFETY.md` and the stores' pages. A finding against something that is not
//! promised is counted too, for readers to see what the assumptions are for.

use serde::{Deserialize, Serialize};

use super::check::Property;
use super::client::Algorithm;
use super::plan::{Data, Deployment, Fault, Plan, Which};

/// What is promised in a schedule. That a resource which compares tokens loses nothing
/// goes with the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Valid leases fit the capacity.
    pub exclusion: bool,
    /// Tokens rise.
    pub tokens: bool,
    /// First come, first served.
    pub order: bool,
    /// Everybody is served when the faults have ended.
    pub service: bool,
    /// The audit log has all that happened.
    pub audit: bool,
}

impl Promise {
    /// What is promised in a schedule. `fail_overs` is how many there were, planned or not.
    pub fn of(plan: &Plan, fail_overs: usize) -> Self {
        if plan.algorithm != Algorithm::Leasehold {
            // What their users rely on, so that the faults of others are found.
            return Self {
                exclusion: true,
                tokens: true,
                order: false,
                service: false,
                audit: false,
            };
        }
        let deployment = plan.deployment;
        let any = |ends: fn(Deployment, Fault) -> bool| {
            plan.faults().any(|fault| ends(deployment, fault))
        };
        let unplanned = fail_overs > agreed(plan);
        // The pooler forgets nothing.
        let ends = |it, fault| match fault {
            Fault::Kill(at, _) => at == Which::At(0) || it == Deployment::PostgresStandby,
            Fault::KillPrimary | Fault::StopPrimary => true,
            _ => false,
        };
        let loses = any(loses_data) || plan.is_unsynced() && any(ends);
        let forgets = loses && !plan.quarantine;
        let replaced = match deployment {
            // All that can be promoted have acknowledged.
            Deployment::Acknowledged => plan.acknowledge != Some(2) && fail_overs > 0,
            _ => unplanned,
        };
        let promoted = deployment == Deployment::PostgresStandby
            && any(|_, fault| matches!(fault, Fault::KillPrimary | Fault::StopPrimary));
        let evicted = any(|_, fault| matches!(fault, Fault::Evict(..) | Fault::DeleteRecords));
        let forward = any(|_, fault| matches!(fault, Fault::StepClock(_, by) if by > 0));
        // Whoever leads next brings another time.
        let differ = any(|it, fault| {
            it == Deployment::ZookeeperEnsemble && matches!(fault, Fault::StepClock(..))
        });
        let back = plan.faults().map(steps_back).sum::<u64>();
        // A quarantine is twice as long as a lease.
        let too_far_back = loses && u128::from(back) >= 2 * plan.ttl.as_millis();
        let skewed =
            any(|it, fault| it.is_redlock() && matches!(fault, Fault::StepClientClock(..)));
        let exclusion = !(forgets || replaced || evicted || forward || differ);
        Self {
            exclusion,
            // Where nobody waits until what is forgotten is over, only clocks keep tokens rising.
            tokens: !((back > 0 || skewed || differ) && (forgets || evicted))
                && (deployment.is_redlock() || !too_far_back),
            // What the promoted server had not received are also places in line; and a promoted
            // PostgreSQL knows of nobody yet that listens.
            order: exclusion && !deployment.is_redlock() && !unplanned && !loses && !promoted,
            service: true,
            audit: deployment.keeps_audit() && !(any(spoils_audit) || evicted || unplanned),
        }
    }

    /// Whether a finding against that property breaks a promise.
    pub fn covers(self, property: Property) -> bool {
        match property {
            Property::Exclusion => self.exclusion,
            Property::Tokens | Property::FencedWrites => self.tokens,
            Property::Order | Property::Queue => self.order,
            Property::Service => self.service,
            Property::Audit => self.audit,
        }
    }
}

/// How many fail-overs the primary agrees to.
fn agreed(plan: &Plan) -> usize {
    let agrees = |fault: &Fault| matches!(fault, Fault::TakeOver { agreed: true });
    plan.faults().filter(agrees).count()
}

/// By how many milliseconds a server's clock steps back.
fn steps_back(fault: Fault) -> u64 {
    match fault {
        Fault::StepClock(_, by) if by < 0 => by.unsigned_abs(),
        _ => 0,
    }
}

/// Whether the audit log may lack what has happened.
pub(super) fn spoils_audit(deployment: Deployment, fault: Fault) -> bool {
    // Servers whose votes end too early note the end of a lease that its client still has, and votes
    // that stood together do not seem to, where clocks differ by more than a lease.
    let steps = matches!(fault, Fault::StepClock(..));
    loses_data(deployment, fault) || (deployment.is_redlock() && steps)
}

/// Whether a server forgets what it had granted.
fn loses_data(deployment: Deployment, fault: Fault) -> bool {
    match fault {
        Fault::Flush(_) | Fault::Restart(_, Data::Lost) => true,
        // Those that answer before they have written it down.
        Fault::Kill(..) | Fault::KillAll(_) => {
            deployment.is_redis() && deployment != Deployment::ServerAof
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::plan::{Choice, Timed};
    use super::*;

    fn within(deployment: Deployment, seed: u64) -> Plan {
        Plan::draw(Choice::ours(deployment, Some(false)), seed)
    }

    fn plan(deployment: Deployment, faults: &[Fault]) -> Plan {
        let timed = |fault: &Fault| Timed::new(0, "", *fault);
        Plan {
            servers: faults.iter().map(timed).collect(),
            people: Vec::new(),
            ..within(deployment, 1)
        }
    }

    fn promised(deployment: Deployment, faults: &[Fault]) -> (bool, bool) {
        let it = Promise::of(&plan(deployment, faults), 0);
        (it.exclusion, it.tokens)
    }

    #[test]
    fn what_is_drawn_within_the_assumptions_keeps_all_promises() {
        for deployment in Deployment::value_variants() {
            for plan in (0..200).map(|seed| within(*deployment, seed)) {
                let promise = Promise::of(&plan, 0);
                assert!(promise.exclusion && promise.tokens, "{plan}");
            }
        }
    }

    #[test]
    fn data_that_is_lost_ends_exclusion_where_nobody_waits_for_it_to_be_over() {
        let at = Which::At(0);
        let killed = [Fault::Kill(at, 0)];
        assert_eq!(promised(Deployment::Server, &killed), (false, true));
        assert_eq!(promised(Deployment::ServerAof, &killed), (true, true));
        assert_eq!(promised(Deployment::Postgres, &killed), (true, true));
        let mut unsynced = plan(Deployment::Postgres, &killed);
        unsynced.beyond = true;
        assert!(!Promise::of(&unsynced, 0).exclusion);
        for keepers in [Deployment::Zookeeper, Deployment::ZookeeperEnsemble] {
            assert_eq!(promised(keepers, &killed), (true, true));
            let lost = [Fault::Restart(at, Data::Lost)];
            assert_eq!(promised(keepers, &lost), (false, true));
        }
        assert_eq!(promised(Deployment::Redlock5, &killed), (true, true));
        let waits = Deployment::ServerQuarantine;
        assert_eq!(promised(waits, &killed), (true, true));
        let back_by = |by: i64| promised(waits, &[Fault::Kill(at, 0), Fault::StepClock(at, -by)]).1;
        // The quarantine makes up for it.
        assert!(back_by(100) && !back_by(3_000));
        let unguarded = |faults: &[Fault]| {
            let mut plan = plan(Deployment::Redlock5, faults);
            plan.quarantine = false;
            Promise::of(&plan, 0).tokens
        };
        assert!(unguarded(&killed));
        assert!(!unguarded(&[
            Fault::Kill(at, 0),
            Fault::StepClientClock(0, 1)
        ]));
        let twice = [Fault::Kill(at, 0), Fault::StepClock(at, -1)];
        assert_eq!(promised(Deployment::Server, &twice), (false, false));
        let stepped = promised(Deployment::ServerAof, &[Fault::StepClock(at, 1)]);
        assert_eq!(stepped, (false, true));
    }

    #[test]
    fn a_clock_that_steps_back_is_made_up_for_by_the_queue_unless_another_takes_its_place() {
        let back = [Fault::StepClock(Which::At(0), -1)];
        assert_eq!(promised(Deployment::Zookeeper, &back), (true, true));
        let three = Deployment::ZookeeperEnsemble;
        assert_eq!(promised(three, &back), (false, true));
        let both = promised(three, &[back[0], Fault::DeleteRecords]);
        assert_eq!(both, (false, false));
    }

    #[test]
    fn a_fail_over_ends_exclusion_unless_all_have_acknowledged() {
        let after_one = |deployment, faults: &[Fault]| Promise::of(&plan(deployment, faults), 1);
        assert!(!after_one(Deployment::Sentinel, &[]).exclusion);
        assert!(after_one(Deployment::Acknowledged, &[]).exclusion);
        assert!(!after_one(Deployment::Acknowledged, &[]).order);
        assert!(!after_one(Deployment::Cluster, &[]).exclusion);
        let agreed = [Fault::TakeOver { agreed: true }];
        assert!(after_one(Deployment::Cluster, &agreed).exclusion);
    }
}
