//! Examines the servers: the ensemble, and a lock as clients use it.

use std::time::Duration;

use leasehold_core::written;
use leasehold_store::StoreError;
use leasehold_store::report::Severity::{Fine, Note, Warning};
use leasehold_store::report::{Finding, Report, applied};
use leasehold_store::trial;
use zookeeper_client::Error;

use super::journal;
use super::options::ZooKeeperOptions;

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

/// What to do where anybody may use the nodes.
const LOG_IN: &str =
    "name a user with a password, or a client certificate, before the first use of the path";
const CHANGE_ACL: &str = "change the ACL of the path and all nodes below it, or use another path";

/// What is to be said of the ensemble, and of a session that was `granted` for so long. `voters`: how
/// many servers vote, if this user may count them.
fn judge(
    options: &ZooKeeperOptions,
    voters: Option<usize>,
    granted: Duration,
    is_open: bool,
) -> Vec<Finding> {
    let (wanted, has_identity) = (options.session_timeout, options.has_identity());
    let connection = Finding::new(Fine, "connection", "a session was opened");
    let alone = Finding::new(Note, "ensemble", "there is one server")
        .meaning("while it is down, nobody gets a lock and nobody renews")
        .remedied("run three servers or five, and name them all in the URL");
    let found = format!("{} servers vote", voters.unwrap_or_default());
    let even = Finding::new(Note, "ensemble", found)
        .meaning("with one less, as many could be lost")
        .remedied("run an odd number of servers");
    let unknown = Finding::new(Note, "ensemble", "this user may not count the servers")
        .meaning("whether they are too few is not known")
        .remedied("let the user read /zookeeper/config");
    let is_cut = wanted != granted;
    let (wanted, granted) = (written(wanted), written(granted));
    let found = format!("sessions end after {granted}, not {wanted}");
    let session = Finding::new(Note, "session", found)
        .meaning("so long a client that has died counts as listening")
        .remedied("change minSessionTimeout or maxSessionTimeout at the servers");
    let (severity, found, remedy) = match has_identity {
        true => (Warning, "the nodes were made without a user", CHANGE_ACL),
        false => (Note, "there is no user and no client certificate", LOG_IN),
    };
    let open = Finding::new(severity, "access", found)
        .meaning("whoever reaches the servers can remove the locks")
        .remedied(remedy);
    let is_even = |voters: usize| voters > 1 && voters.is_multiple_of(2);
    let rules = [
        (true, connection),
        (voters.is_some_and(|voters| voters <= 1), alone),
        (voters.is_some_and(is_even), even),
        (voters.is_none(), unknown),
        (is_cut, session),
        (is_open || !has_identity, open),
    ];
    applied(&options.hosts(), rules)
}

/// Examines the servers of these options.
pub(crate) async fn examine(options: &ZooKeeperOptions) -> Result<Report, StoreError> {
    let brief = options.clone().retention(RETENTION);
    let promise = "Exclusion and fencing, also when a minority of the servers is lost, as long as \
                   the clocks of the servers agree to within a small part of the TTL.";
    Report::of_use(&options.redacted_url(), promise, findings(&brief).await)
}

async fn findings(options: &ZooKeeperOptions) -> Result<Vec<Finding>, StoreError> {
    let store = journal::open(options).await?;
    let sessions = &store.journal().sessions;
    let session = sessions.get().await?;
    let is_voter = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    let config = session.client.get_config();
    let config = sessions.ask_unless(&Error::NoAuth, config).await?;
    let voters = config.map(|(config, _)| {
        let lines = str::from_utf8(&config).unwrap_or_default().lines();
        lines.filter(is_voter).count()
    });
    let is_open = sessions.are_open(&session.client).await?;
    let granted = session.client.session_timeout();
    let mut findings = judge(options, voters, granted, is_open);
    findings.extend(trial::run(&store).await.findings());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use leasehold_store::access::Access;
    use leasehold_store::report::Severity;
    use leasehold_store::scheme::Scheme as _;
    use leasehold_testkit::zookeeper::ZooKeeper;
    use zookeeper_client::{Acl, AuthId, Client, Permission};

    use super::*;
    use crate::scheme;

    /// The user `super` with the password `secret`.
    const ADMIN: &str =
        "DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

    /// The right to see the servers is not needed for locks.
    #[tokio::test]
    async fn who_may_not_count_the_servers_has_locks() {
        let server = ZooKeeper::start_with(ADMIN);
        let admin = Client::connector().with_auth("digest", b"super:secret");
        let admin = admin.connect(&server.hosts()).await.unwrap();
        let other = Acl::new(Permission::READ, AuthId::new("digest", "other:x"));
        admin
            .set_acl("/zookeeper/config", &[other], None)
            .await
            .unwrap();
        let options = ZooKeeperOptions::from_url(&server.url_of("/locks")).unwrap();
        let report = examine(&options).await.unwrap();
        assert!(report.worst() < Severity::Unsafe, "{report:?}");
        let mut found = report.findings.iter().map(|finding| &*finding.found);
        let said = "this user may not count the servers";
        assert!(found.any(|found| found == said), "{report:?}");
    }

    /// As where those who used the path before had no user.
    #[tokio::test]
    async fn who_has_a_user_learns_that_the_nodes_are_open_to_all() {
        let server = ZooKeeper::shared();
        let url = server.url_of(&server.chroot());
        let options = |url: &str| ZooKeeperOptions::from_url(url).unwrap();
        examine(&options(&url)).await.unwrap();
        let named = url.replace("://", "://user:secret@");
        let report = examine(&options(&named)).await.unwrap();
        let mut findings = report.findings.iter();
        let access = findings.find(|finding| finding.check == "access");
        let severity = access.map(|finding| finding.severity);
        assert_eq!(severity, Some(Warning), "{report:?}");
        let access = Access::default();
        let made = scheme::ZooKeeper.initialise(&named, &access).await;
        let made = made.unwrap().remove(0).made.unwrap();
        assert_eq!(made.users, "for all who reach the servers");
    }
}
