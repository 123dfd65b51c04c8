//! Examines a server: its settings, and a lock as clients use it.

use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::report::{Finding, Report, Rule, Severity};
use leasehold_store::trial;
use tokio_postgres::Row;

use super::errors::no_answer;
use super::journal;
use super::listener::{DEAF, REMEDY};
use super::options::{Commit, PostgresOptions};

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

/// Texts and `bigint`s, by the names that the rules know. Of the sessions of other roles a role without
/// `pg_read_all_stats` sees the database, and no type.
const SETTINGS: &str = "select current_setting('server_version') as version, \
    current_setting('server_version_num')::bigint as version_num, \
    current_setting('server_encoding') as encoding, current_setting('fsync') as fsync, \
    current_setting('synchronous_commit') as commit, \
    current_setting('synchronous_standby_names') as standbys, \
    current_setting('wal_writer_delay') as writer_delay, \
    current_setting('log_statement') as log_statement, \
    current_setting('log_min_duration_statement') as log_duration, \
    current_setting('log_parameter_max_length', true) as log_parameters, \
    (select count(*) from pg_stat_activity where datid is not null \
    and coalesce(backend_type, 'client backend') = 'client backend') as connections, \
    current_setting('max_connections')::bigint as max_connections, \
    pg_stat_get_dead_tuples('{schema}.keys'::regclass::oid) as old_rows, \
    pg_stat_get_live_tuples('{schema}.keys'::regclass::oid) as rows";

/// What a server says of itself, and what this client makes of it.
struct Facts {
    settings: Row,
    is_async: bool,
    acknowledges: bool,
    is_deaf: bool,
}

impl Facts {
    fn text(&self, name: &str) -> String {
        self.settings.try_get(name).unwrap_or_default()
    }

    fn number(&self, name: &str) -> i64 {
        self.settings.try_get(name).unwrap_or_default()
    }
}

const RULES: &[Rule<Facts>] = &[
    Rule {
        check: "version",
        when: |it| it.number("version_num") < 140_000,
        found: |it| format!("PostgreSQL {}", it.text("version")),
        severity: Severity::Unsafe,
        meaning: "leasehold is tested with PostgreSQL 14 and later",
        remedy: "use a newer server",
    },
    Rule {
        check: "encoding",
        when: |it| it.text("encoding") != "UTF8",
        found: |it| format!("the database has the encoding {}", it.text("encoding")),
        severity: Severity::Warning,
        meaning: "keys with letters that the encoding lacks cannot be used",
        remedy: "use a database with the encoding UTF8",
    },
    Rule {
        check: "fsync",
        when: |it| it.text("fsync") != "on",
        found: |_| "fsync is off".to_owned(),
        severity: Severity::Warning,
        meaning: "a crash of the machine can undo grants and damage the database",
        remedy: "set fsync = on",
    },
    Rule {
        check: "commit",
        when: |it| it.is_async || it.text("commit") == "off",
        found: |it| {
            let delay = it.text("writer_delay");
            format!("commits do not wait for the disk (wal_writer_delay {delay})")
        },
        severity: Severity::Note,
        meaning: "a crash of the server can undo the grants of up to three times that delay",
        remedy: "use commit=sync, and synchronous_commit = on at the server",
    },
    Rule {
        check: "standbys",
        when: |it| {
            let none_waits = it.is_async || matches!(&*it.text("commit"), "local" | "off");
            it.text("standbys").is_empty() || none_waits && !it.acknowledges
        },
        found: |_| "no standby has to have a commit".to_owned(),
        severity: Severity::Note,
        meaning: "a fail-over to a standby that is behind can undo grants",
        remedy: "set synchronous_standby_names and synchronous_commit = on, if there is a fail-over",
    },
    Rule {
        check: "log",
        when: |it| {
            let logs_changes = matches!(&*it.text("log_statement"), "all" | "mod");
            (logs_changes || it.text("log_duration") != "-1") && it.text("log_parameters") != "0"
        },
        found: |_| "the server logs statements, with their parameters".to_owned(),
        severity: Severity::Note,
        meaning: "claim ids get into its log: whoever reads it can release the claims that are held",
        remedy: "set log_parameter_max_length = 0, or protect the log",
    },
    Rule {
        check: "connections",
        when: |it| it.number("connections") * 10 > it.number("max_connections") * 8,
        found: |it| {
            let (used, most) = (it.number("connections"), it.number("max_connections"));
            format!("{used} of {most} connections are in use")
        },
        severity: Severity::Warning,
        meaning: "clients that find no connection wait, as in an outage",
        remedy: "use a pooler in transaction mode with listen=, a smaller pool=, or raise \
                 max_connections",
    },
    Rule {
        check: "rows",
        when: |it| it.number("old_rows") > 10_000.max(10 * it.number("rows")),
        found: |it| {
            let (old, rows) = (it.number("old_rows"), it.number("rows"));
            format!("{old} old rows are kept beside {rows}")
        },
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
    let brief = options.clone().retention(RETENTION);
    let promise = "Exclusion as long as the server keeps what it has committed and its clock is \
                   not stepped. Fencing as long as it keeps its records, or its clock does not step \
                   back.";
    Report::of_use(&options.redacted_url(), promise, findings(&brief).await)
}

async fn findings(options: &PostgresOptions) -> Result<Vec<Finding>, StoreError> {
    let store = journal::open(options).await?;
    let pool = &store.journal().pool;
    let settings = pool.ask(SETTINGS, &[]).await?;
    let mut trial = trial::run(&store).await;
    let deaf = trial.failed.take_if(|(step, _)| *step == trial::LISTEN);
    let facts = Facts {
        settings: settings.into_iter().next().ok_or_else(no_answer)?,
        is_async: options.commit == Commit::Async,
        acknowledges: options.acknowledge > 0,
        is_deaf: deaf.is_none() && !store.journal().listener.hears(),
    };
    let found = format!("PostgreSQL {}", facts.text("version"));
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
