//! Examines the servers: the ensemble, and a lock as clients use it.

use std::time::Duration;

use leasehold_core::written;
use leasehold_store::StoreError;
use leasehold_store::report::{Finding, Report, Rule, Severity};
use leasehold_store::trial;
use zookeeper_client::Error;

use super::journal;
use super::options::ZooKeeperOptions;

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

/// What the servers and the client say of themselves.
struct Facts {
    /// How many servers vote, where the user may know.
    voters: Option<usize>,
    wanted: Duration,
    granted: Duration,
    is_open: bool,
}

const RULES: &[Rule<Facts>] = &[
    Rule {
        check: "ensemble",
        when: |it| it.voters.is_some_and(|voters| voters <= 1),
        found: |_| "there is one server".to_owned(),
        severity: Severity::Note,
        meaning: "while it is down, nobody gets a lock and nobody renews",
        remedy: "run three servers or five, and name them all in the URL",
    },
    Rule {
        check: "ensemble",
        when: |it| {
            it.voters
                .is_some_and(|voters| voters > 1 && voters.is_multiple_of(2))
        },
        found: |it| format!("{} servers vote", it.voters.unwrap_or_default()),
        severity: Severity::Note,
        meaning: "with one less, as many could be lost",
        remedy: "run an odd number of servers",
    },
    Rule {
        check: "ensemble",
        when: |it| it.voters.is_none(),
        found: |_| "this user may not count the servers".to_owned(),
        severity: Severity::Note,
        meaning: "whether they are too few is not known",
        remedy: "let the user read /zookeeper/config",
    },
    Rule {
        check: "session",
        when: |it| it.wanted != it.granted,
        found: |it| {
            let (wanted, granted) = (written(it.wanted), written(it.granted));
            format!("sessions end after {granted}, not {wanted}")
        },
        severity: Severity::Note,
        meaning: "so long a client that has died counts as listening",
        remedy: "change minSessionTimeout or maxSessionTimeout at the servers",
    },
    Rule {
        check: "access",
        when: |it| it.is_open,
        found: |_| "there is no user and no client certificate".to_owned(),
        severity: Severity::Note,
        meaning: "whoever reaches the servers can read and remove the locks",
        remedy: "name a user with a password, or a client certificate, before the first use of the \
                 path",
    },
];

/// Examines the servers of these options.
pub(crate) async fn examine(options: &ZooKeeperOptions) -> Report {
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
    let facts = Facts {
        voters,
        wanted: options.session_timeout,
        granted: session.client.session_timeout(),
        is_open: !options.has_identity(),
    };
    let hosts = options.hosts();
    let found = "a session was opened";
    let mut findings = vec![Finding::new(Severity::Fine, "connection", found).at(&*hosts)];
    let rules = RULES.iter();
    findings.extend(rules.filter_map(|rule| rule.judge(&facts, &hosts)));
    findings.extend(trial::run(&store).await.findings());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::zookeeper::ZooKeeper;
    use zookeeper_client::{Acl, AuthId, Client, Permission};

    use super::*;

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
        let report = examine(&options).await;
        assert!(report.worst() < Severity::Unsafe, "{report:?}");
        let mut found = report.findings.iter().map(|finding| &*finding.found);
        let said = "this user may not count the servers";
        assert!(found.any(|found| found == said), "{report:?}");
    }
}
