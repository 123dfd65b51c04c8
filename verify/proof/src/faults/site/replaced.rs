//! Primaries that are replaced.

use leasehold_testkit::deployment::{Cluster, Sentinels, Takeover};
use leasehold_testkit::server::RedisServer;

use super::{Servers, Site, pause};
use crate::faults::plan::{Fault, Which};

impl Site {
    /// How often a primary was replaced, by what the servers have logged.
    pub fn fail_overs(&self) -> usize {
        let logged = |servers: &[RedisServer], what: &str| {
            let logs = servers.iter().map(|server| server.log());
            logs.map(|log| log.matches(what).count())
                .collect::<Vec<_>>()
        };
        match &self.servers {
            // Each Sentinel that hears of it says so.
            Servers::Sentinels(all) => {
                let heard = logged(all.sentinels(), "+switch-master");
                heard.into_iter().max().unwrap_or(0)
            }
            Servers::Cluster(all) => {
                let elected = logged(all.nodes(), "Failover election won");
                let taken = logged(all.nodes(), "Taking over the master");
                elected.iter().chain(&taken).sum()
            }
            _ => 0,
        }
    }

    pub(super) async fn replace_in_cluster(&self, all: &Cluster, fault: Fault) {
        // Nobody agrees to what it has not understood yet, or votes for it.
        all.wait_until_ok().await;
        let slot = self.slot(all);
        let primary = self.server(Which::Primary);
        match fault {
            Fault::TakeOver { agreed } => {
                let replica = self.server(Which::Replica(0));
                let how = if agreed {
                    Takeover::Agreed
                } else {
                    Takeover::Unasked
                };
                all.fail_over(replica, how).await;
            }
            Fault::MoveSlot => {
                let port = primary.port();
                if let Some(other) = all.primaries().into_iter().find(|it| it.port() != port) {
                    all.move_slot(slot, other).await;
                }
                return;
            }
            Fault::KillPrimary => {
                primary.kill();
                all.wait_for_another_owner(slot, primary).await;
                primary.start_again();
            }
            Fault::PromoteStale => {
                let replica = self.server(Which::Replica(0));
                all.separate(primary, replica);
                pause(700).await;
                primary.stop();
                replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
                pause(300).await;
                primary.cont();
                all.rejoin(replica);
            }
            _ => return,
        }
        all.wait_until_ok().await;
    }
}

/// Answers whether it is a fault of this kind.
pub(super) async fn replace_under_sentinels(all: &Sentinels, fault: Fault) -> bool {
    let primary = all.wait_for_primary().await;
    match fault {
        Fault::StopSentinel(at, time) => {
            let sentinel = &all.sentinels()[at];
            sentinel.stop();
            pause(time).await;
            sentinel.cont();
            return true;
        }
        Fault::FailOver => drop(all.fail_over().await),
        Fault::KillPrimary => {
            primary.kill();
            all.wait_for_another_primary(primary).await;
            // Not before: one that came back empty would empty its replicas.
            primary.start_again();
        }
        Fault::StopPrimary => {
            primary.stop();
            all.wait_for_another_primary(primary).await;
            primary.cont();
        }
        Fault::CutOffPrimary => {
            all.cut_off(primary);
            all.wait_for_another_primary(primary).await;
            all.rejoin(primary);
        }
        Fault::PromoteStale => {
            let stale = all.replicas()[0];
            all.prefer(stale).await;
            all.separate(primary, stale);
            pause(700).await;
            primary.kill();
            all.wait_for_another_primary(primary).await;
            primary.start_again();
            all.rejoin(stale);
        }
        _ => return false,
    }
    all.wait_for_primary().await;
    // The next one to be promoted has all that this one grants, or is not asked.
    all.wait_for_replicas().await;
    true
}
