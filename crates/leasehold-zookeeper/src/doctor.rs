//! Examines the servers: the ensemble, and a lock as clients use it.

use std::time::Duration;

use leasehold_core::written;
use leasehold_store::StoreError;
use leasehold_store::report::{Finding, Report, Severity};
use leasehold_store::trial::{self, Trial};

use super::journal;
use super::options::ZooKeeperOptions;

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

/// What the servers and the client say of themselves.
struct Facts {
    /// How many servers vote.
    voters: usize,
    wanted: Duration,
    granted: Duration,
    is_open: bool,
}

/// A rule: what it checks, when it applies and says what, what it means, and what to do.
type Rule = (
    &'static str,
    fn(&Facts) -> Option<String>,
    &'static str,
    &'static str,
);

const RULES: &[Rule] = &[
    (
        "ensemble",
        |it| (it.voters <= 1).then(|| "there is one server".to_owned()),
        "while it is down, nobody gets a lock and nobody renews",
        "run three servers or five, and name them all in the URL",
    ),
    (
        "ensemble",
        |it| {
            let is_even = it.voters > 1 && it.voters.is_multiple_of(2);
            is_even.then(|| format!("{} servers vote", it.voters))
        },
        "with one less, as many could be lost",
        "run an odd number of servers",
    ),
    (
        "session",
        |it| {
            let (wanted, granted) = (written(it.wanted), written(it.granted));
            let differs = it.wanted != it.granted;
            differs.then(|| format!("sessions end after {granted}, not {wanted}"))
        },
        "so long a client that has died counts as listening",
        "change minSessionTimeout or maxSessionTimeout at the servers",
    ),
    (
        "access",
        |it| {
            it.is_open
                .then(|| "there is no user and no client certificate".to_owned())
        },
        "whoever reaches the servers can read and remove the locks",
        "name a user with a password, or a client certificate, before the first use of the path",
    ),
];

/// Examines the servers of these options.
pub(crate) async fn examine(options: &ZooKeeperOptions) -> Report {
    let mut brief = options.clone();
    brief.retention = RETENTION;
    let (promise, findings) = match findings(&brief).await {
        Ok(findings) => (
            "Exclusion and fencing, also when a minority of the servers is lost, as long as the clocks \
             of the servers agree to within a small part of the TTL.",
            findings,
        ),
        Err(error) => (
            "Nothing: locks cannot be used here.",
            vec![Finding::of_error("connection", None, &error)],
        ),
    };
    Report::new(options.redacted_url(), promise, findings)
}

async fn findings(options: &ZooKeeperOptions) -> Result<Vec<Finding>, StoreError> {
    let store = journal::open(options).await?;
    let sessions = &store.journal().sessions;
    let session = sessions.get().await?;
    let (config, _) = sessions.ask(session.client.get_config()).await?;
    let lines = str::from_utf8(&config).unwrap_or_default().lines();
    let is_voter = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    let facts = Facts {
        voters: lines.filter(is_voter).count(),
        wanted: options.session_timeout,
        granted: session.client.session_timeout(),
        is_open: !options.has_identity(),
    };
    let hosts = options.hosts();
    let found = "a session was opened";
    let mut findings = vec![Finding::new(Severity::Fine, "connection", found).at(&*hosts)];
    for (check, found, meaning, remedy) in RULES {
        if let Some(found) = found(&facts) {
            let finding = Finding::new(Severity::Note, check, found).at(&*hosts);
            findings.push(finding.meaning(*meaning).remedied(*remedy));
        }
    }
    let trial = match trial::key() {
        Some(key) => trial::take(&store, &key, trial::TTL).await,
        None => Trial::default(),
    };
    findings.extend(trial.findings());
    Ok(findings)
}
