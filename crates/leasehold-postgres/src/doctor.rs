//! Examines a server: its settings, and a lock as clients use it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::report::{Finding, Report, Rule, Severity};
use leasehold_store::trial;
use tokio_postgres::Row;

use super::errors::no_answer;
use super::journal;
use super::listener::{DEAF, REMEDY};
use super::options::{Commit, PostgresOptions};
use super::pool::Pool;

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

/// Of the sessions of other roles a role without `pg_read_all_stats` sees the database, and no type.
const SETTINGS: &str = "select current_setting('server_version'), \
    current_setting('server_version_num')::int, current_setting('server_encoding'), \
    current_setting('fsync'), current_setting('synchronous_commit'), \
    current_setting('synchronous_standby_names'), current_setting('wal_writer_delay'), \
    current_setting('log_statement'), current_setting('log_min_duration_statement'), \
    (select count(*) from pg_stat_activity where datid is not null \
    and coalesce(backend_type, 'client backend') = 'client backend')::int, \
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
    connections: i32,
    most_connections: i32,
    old_rows: i64,
    rows: i64,
    is_async: bool,
    is_deaf: bool,
}

impl Facts {
    async fn ask(pool: &Arc<Pool>, options: &PostgresOptions) -> Result<Self, StoreError> {
        let answer = pool.ask(SETTINGS, &[]).await?;
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
            connections: number(9),
            most_connections: number(10),
            old_rows: rows(11),
            rows: rows(12),
            is_async: options.commit == Commit::Async,
            is_deaf: false,
        })
    }
}

const RULES: &[Rule<Facts>] = &[
    Rule {
        check: "version",
        when: |it| it.number < 140_000,
        found: |it| format!("PostgreSQL {}", it.version),
        severity: Severity::Unsafe,
        meaning: "leasehold is tested with PostgreSQL 14 and later",
        remedy: "use a newer server",
    },
    Rule {
        check: "encoding",
        when: |it| it.encoding != "UTF8",
        found: |it| format!("the database has the encoding {}", it.encoding),
        severity: Severity::Warning,
        meaning: "keys with letters that the encoding lacks cannot be used",
        remedy: "use a database with the encoding UTF8",
    },
    Rule {
        check: "fsync",
        when: |it| it.fsync != "on",
        found: |_| "fsync is off".to_owned(),
        severity: Severity::Warning,
        meaning: "a crash of the machine can undo grants and damage the database",
        remedy: "set fsync = on",
    },
    Rule {
        check: "commit",
        when: |it| it.is_async || it.commit == "off",
        found: |it| {
            let delay = &it.writer_delay;
            format!("commits do not wait for the disk (wal_writer_delay {delay})")
        },
        severity: Severity::Note,
        meaning: "a crash of the server can undo the grants of up to three times that delay",
        remedy: "use commit=sync, and synchronous_commit = on at the server",
    },
    Rule {
        check: "standbys",
        when: |it| it.standbys.is_empty(),
        found: |_| "no standby has to have a commit".to_owned(),
        severity: Severity::Note,
        meaning: "a fail-over to a standby that is behind can undo grants",
        remedy: "set synchronous_standby_names, if there is a fail-over",
    },
    Rule {
        check: "log",
        when: |it| it.logs,
        found: |_| "the server logs statements, with their parameters".to_owned(),
        severity: Severity::Note,
        meaning: "claim ids get into its log: whoever reads it can release the claims that are held",
        remedy: "set log_parameter_max_length = 0, or protect the log",
    },
    Rule {
        check: "connections",
        when: |it| it.connections * 10 > it.most_connections * 8,
        found: |it| {
            let (used, most) = (it.connections, it.most_connections);
            format!("{used} of {most} connections are in use")
        },
        severity: Severity::Warning,
        meaning: "clients that find no connection wait, as in an outage",
        remedy: "use a pooler in transaction mode with listen=, a smaller pool=, or raise \
                 max_connections",
    },
    Rule {
        check: "rows",
        when: |it| it.old_rows > 10_000.max(10 * it.rows),
        found: |it| format!("{} old rows are kept beside {}", it.old_rows, it.rows),
        severity: Severity::Warning,
        meaning: "keys in heavy use get slower, the longer the more",
        remedy: "end the transaction with the oldest xact_start in pg_stat_activity, and let \
                 autovacuum run",
    },
    Rule {
        check: "pushes",
        when: |it| it.is_deaf,
        found: |_| DEAF.to_owned(),
        severity: Severity::Note,
        meaning: "waiters look four times a second, and nobody sees that one has died",
        remedy: REMEDY,
    },
];

/// Examines the server at these options.
pub(crate) async fn examine(options: &PostgresOptions) -> Report {
    let mut brief = options.clone();
    brief.retention = RETENTION;
    let promise = "Exclusion as long as the server keeps what it has committed and its clock is \
                   not stepped. Fencing as long as it keeps its records, or its clock does not step \
                   back.";
    Report::of_use(&options.redacted_url(), promise, findings(&brief).await)
}

async fn findings(options: &PostgresOptions) -> Result<Vec<Finding>, StoreError> {
    let store = journal::open(options).await?;
    let pool = &store.journal().pool;
    let mut facts = Facts::ask(pool, options).await?;
    let mut trial = trial::run(&store).await;
    let deaf = trial.failed.take_if(|(step, _)| *step == trial::LISTEN);
    facts.is_deaf = deaf.is_none() && !store.journal().listener.hears();
    let found = format!("PostgreSQL {}", facts.version);
    let mut findings = vec![Finding::new(Severity::Fine, "connection", found).at(&*pool.server)];
    let rules = RULES.iter();
    findings.extend(rules.filter_map(|rule| rule.judge(&facts, &pool.server)));
    if let Some((step, error)) = deaf {
        let meaning = "waiters poll, and nobody sees that one has died";
        let mut finding = Finding::of_error("pushes", None, &error).meaning(meaning);
        finding.severity = Severity::Warning;
        finding.found = format!("cannot {step}: {error}");
        findings.push(finding);
        let without = options.clone().listen(None);
        trial = trial::run(&journal::open(&without).await?).await;
    }
    findings.extend(trial.findings());
    Ok(findings)
}
