//! Examines a server: its settings, and a lock as clients use it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::report::{Finding, Report, Severity};
use leasehold_store::trial::{self, Trial};
use leasehold_store::{LockStore, StoreError};
use tokio_postgres::Row;

use super::errors::no_answer;
use super::journal;
use super::listener::{DEAF, REMEDY};
use super::options::{Commit, PostgresOptions};
use super::pool::Pool;

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

const SETTINGS: &str = "select current_setting('server_version'), \
    current_setting('server_version_num')::int, current_setting('server_encoding'), \
    current_setting('fsync'), current_setting('synchronous_commit'), \
    current_setting('synchronous_standby_names'), current_setting('wal_writer_delay'), \
    current_setting('log_statement'), current_setting('log_min_duration_statement'), \
    (select count(*) from pg_stat_activity where backend_type = 'client backend')::int, \
    current_setting('max_connections')::int, \
    pg_stat_get_dead_tuples('{schema}.keys'::regclass::oid), \
    pg_stat_get_live_tuples('{schema}.keys'::regclass::oid)";

/// What a server says of itself.
struct Facts {
    version: String,
    number: i32,
    encoding: String,
    fsync: String,
    commit: String,
    standbys: String,
    writer_delay: String,
    logs: bool,
    connections: (i32, i32),
    /// Old and current.
    rows: (i64, i64),
    is_async: bool,
    is_deaf: bool,
}

impl Facts {
    async fn ask(pool: &Arc<Pool>, options: &PostgresOptions) -> Result<Self, StoreError> {
        let settings = SETTINGS.replace("{schema}", &pool.schema);
        let answer = pool.ask(&settings, &[]).await?;
        let row = answer.first().ok_or_else(no_answer)?;
        let text = |column: usize| row.try_get::<_, String>(column).unwrap_or_default();
        let number = |column: usize| Row::try_get(row, column).unwrap_or_default();
        let rows = |column: usize| Row::try_get(row, column).unwrap_or_default();
        Ok(Self {
            version: text(0),
            number: number(1),
            encoding: text(2),
            fsync: text(3),
            commit: text(4),
            standbys: text(5),
            writer_delay: text(6),
            logs: text(7) == "all" || text(7) == "mod" || text(8) != "-1",
            connections: (number(9), number(10)),
            rows: (rows(11), rows(12)),
            is_async: options.commit == Commit::Async,
            is_deaf: false,
        })
    }
}

/// A rule: what it checks, when it applies and says what, how bad that is, what it means, and what
/// to do.
type Rule = (
    &'static str,
    fn(&Facts) -> Option<String>,
    Severity,
    &'static str,
    &'static str,
);

fn when(is: bool, found: impl FnOnce() -> String) -> Option<String> {
    is.then(found)
}

const RULES: &[Rule] = &[
    (
        "version",
        |it| when(it.number < 140_000, || format!("PostgreSQL {}", it.version)),
        Severity::Unsafe,
        "leasehold is tested with PostgreSQL 14 and later",
        "use a newer server",
    ),
    (
        "encoding",
        |it| {
            when(it.encoding != "UTF8", || {
                format!("the database has the encoding {}", it.encoding)
            })
        },
        Severity::Warning,
        "keys with letters that the encoding lacks cannot be used",
        "use a database with the encoding UTF8",
    ),
    (
        "fsync",
        |it| when(it.fsync != "on", || "fsync is off".to_owned()),
        Severity::Warning,
        "a crash of the machine can undo grants and damage the database",
        "set fsync = on",
    ),
    (
        "commit",
        |it| {
            let is_off = it.is_async || it.commit == "off";
            let delay = &it.writer_delay;
            when(is_off, || {
                format!("commits do not wait for the disk (wal_writer_delay {delay})")
            })
        },
        Severity::Note,
        "a crash of the server can undo the grants of up to three times that delay",
        "use commit=sync, and synchronous_commit = on at the server",
    ),
    (
        "standbys",
        |it| {
            when(it.standbys.is_empty(), || {
                "no standby has to have a commit".to_owned()
            })
        },
        Severity::Note,
        "a fail-over to a standby that is behind can undo grants",
        "set synchronous_standby_names, if there is a fail-over",
    ),
    (
        "log",
        |it| {
            when(it.logs, || {
                "the server logs statements, with their parameters".to_owned()
            })
        },
        Severity::Note,
        "claim ids get into its log: whoever reads it can release the claims that are held",
        "set log_parameter_max_length = 0, or protect the log",
    ),
    (
        "connections",
        |it| {
            let (used, most) = it.connections;
            when(used * 10 > most * 8, || {
                format!("{used} of {most} connections are in use")
            })
        },
        Severity::Warning,
        "clients that find no connection wait, as in an outage",
        "use a pooler in transaction mode with listen=, a smaller pool=, or raise max_connections",
    ),
    (
        "rows",
        |it| {
            let (old, current) = it.rows;
            when(old > 10_000.max(10 * current), || {
                format!("{old} old rows are kept beside {current}")
            })
        },
        Severity::Warning,
        "keys in heavy use get slower, the longer the more",
        "end the transaction with the oldest xact_start in pg_stat_activity, and let autovacuum run",
    ),
    (
        "pushes",
        |it| when(it.is_deaf, || DEAF.to_owned()),
        Severity::Note,
        "waiters look four times a second, and nobody sees that one has died",
        REMEDY,
    ),
];

/// Examines the server at these options.
pub(crate) async fn examine(options: &PostgresOptions) -> Report {
    let mut brief = options.clone();
    brief.retention = RETENTION;
    let (promise, findings) = match findings(&brief).await {
        Ok(findings) => (
            "Exclusion as long as the server keeps what it has committed and its clock is not \
             stepped. Fencing as long as it keeps its records, or its clock does not step back.",
            findings,
        ),
        Err(error) => (
            "Nothing: locks cannot be used here.",
            vec![Finding::of_error("connection", None, &error)],
        ),
    };
    Report::new(options.redacted_url(), promise, findings)
}

async fn findings(options: &PostgresOptions) -> Result<Vec<Finding>, StoreError> {
    let store = journal::open(options).await?;
    let pool = &store.journal().pool;
    let mut facts = Facts::ask(pool, options).await?;
    let mut trial = try_locks(&store).await;
    let deaf = trial.failed.take_if(|(step, _)| *step == trial::LISTEN);
    facts.is_deaf = deaf.is_none() && !store.journal().listener.hears();
    let mut findings = vec![
        Finding::new(
            Severity::Fine,
            "connection",
            format!("PostgreSQL {}", facts.version),
        )
        .at(&*pool.server),
    ];
    for (check, found, severity, meaning, remedy) in RULES {
        if let Some(found) = found(&facts) {
            let finding = Finding::new(*severity, check, found);
            findings.push(
                finding
                    .at(&*pool.server)
                    .meaning(*meaning)
                    .remedied(*remedy),
            );
        }
    }
    if let Some((step, error)) = deaf {
        let meaning = "waiters poll, and nobody sees that one has died";
        let mut finding = Finding::of_error("pushes", None, &error).meaning(meaning);
        finding.severity = Severity::Warning;
        finding.found = format!("cannot {step}: {error}");
        findings.push(finding);
        let without = options.clone().listen(None);
        trial = try_locks(&journal::open(&without).await?).await;
    }
    findings.extend(trial.findings());
    Ok(findings)
}

async fn try_locks(store: &impl LockStore) -> Trial {
    match trial::key() {
        Some(key) => trial::take(store, &key, trial::TTL).await,
        None => Trial::default(),
    }
}
