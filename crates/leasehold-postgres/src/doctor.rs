//! Examines a server: its settings, and a lock as clients use it.

use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::report::Severity::{Fine, Note, Warning};
use leasehold_store::report::{Finding, Report, applied};
use leasehold_store::trial;
use tokio_postgres::Row;

use super::errors::no_answer;
use super::journal;
use super::listener::{DEAF, REMEDY};
use super::options::{Commit, PostgresOptions};

/// How long what the trial leaves is kept.
const RETENTION: Duration = Duration::from_secs(60);

const SETTINGS: &str = include_str!("settings.sql");

/// What the findings below mean and need, where a line is too short for that.
const HAS_IDS: &str =
    "claim ids get into its log: whoever reads it can release the claims that are held";
const WAIT_FOR_STANDBY: &str =
    "set synchronous_standby_names and synchronous_commit = on, if there is a fail-over";
const FEWER: &str =
    "use a pooler in transaction mode with listen=, a smaller pool=, or raise max_connections";
const END_OLDEST: &str =
    "end the transaction with the oldest xact_start in pg_stat_activity, and let autovacuum run";

/// What is to be said of the settings of a server, and of what this client hears.
fn judge(server: &str, settings: &Row, options: &PostgresOptions, is_deaf: bool) -> Vec<Finding> {
    let text = |name: &str| -> String { settings.try_get(name).unwrap_or_default() };
    let number = |name: &str| -> i64 { settings.try_get(name).unwrap_or_default() };
    let found = format!("PostgreSQL {}", text("version"));
    let connection = Finding::new(Fine, "connection", found);
    let found = format!("the database has the encoding {}", text("encoding"));
    let encoding = Finding::new(Warning, "encoding", found)
        .meaning("keys with letters that the encoding lacks cannot be used")
        .remedied("use a database with the encoding UTF8");
    let fsync = Finding::new(Warning, "fsync", "fsync is off")
        .meaning("a crash of the machine can undo grants and damage the database")
        .remedied("set fsync = on");
    let (is_async, commit) = (options.commit == Commit::Async, text("commit"));
    let delay = text("writer_delay");
    let found = format!("commits do not wait for the disk (wal_writer_delay {delay})");
    let commits = Finding::new(Note, "commit", found)
        .meaning("a crash of the server can undo the grants of up to three times that delay")
        .remedied("use commit=sync, and synchronous_commit = on at the server");
    let none_waits = is_async || matches!(&*commit, "local" | "off");
    let is_alone = text("standbys").is_empty() || none_waits && options.acknowledge == 0;
    let standbys = Finding::new(Note, "standbys", "no standby has to have a commit")
        .meaning("a fail-over to a standby that is behind can undo grants")
        .remedied(WAIT_FOR_STANDBY);
    let (gone, lacking) = (text("gone"), number("lacking"));
    let are_missing = !is_alone && (lacking > 0 || !gone.is_empty());
    let logs_changes = matches!(&*text("log_statement"), "all" | "mod");
    let logs = logs_changes || text("log_duration") != "-1";
    let found = "the server logs statements, with their parameters";
    let log = Finding::new(Note, "log", found)
        .meaning(HAS_IDS)
        .remedied("set log_parameter_max_length = 0, or protect the log");
    let (used, most) = (number("connections"), number("max_connections"));
    let found = format!("{used} of {most} connections are in use");
    let connections = Finding::new(Warning, "connections", found)
        .meaning("clients that find no connection wait, as in an outage")
        .remedied(FEWER);
    let (old, rows) = (number("old_rows"), number("rows"));
    let found = format!("{old} old rows are kept beside {rows}");
    let old_rows = Finding::new(Warning, "rows", found)
        .meaning("keys in heavy use get slower, the longer the more")
        .remedied(END_OLDEST);
    let pushes = Finding::new(Note, "pushes", DEAF)
        .meaning("waiters look four times a second, and nobody sees that one has died")
        .remedied(REMEDY);
    let rules = [
        (true, connection),
        (text("encoding") != "UTF8", encoding),
        (text("fsync") != "on", fsync),
        (is_async || commit == "off", commits),
        (is_alone, standbys),
        (are_missing, missing(&gone, lacking)),
        (logs && text("log_parameters") != "0", log),
        (used * 10 > most * 8, connections),
        (old > 10_000.max(10 * rows), old_rows),
        (is_deaf, pushes),
    ];
    applied(server, rules)
}

/// Of those in `synchronous_standby_names`: who is `gone`, and how many are `lacking` for commits.
fn missing(gone: &str, lacking: i64) -> Finding {
    let found = match gone {
        "" => format!("more standbys have to be connected: {lacking}"),
        names => format!("standbys are not connected: {names}"),
    };
    let (severity, meaning) = match lacking {
        1.. => (Warning, "no claim or renewal is answered in time"),
        _ => (Note, "a fail-over to one of them can undo grants"),
    };
    Finding::new(severity, "standbys", found)
        .meaning(meaning)
        .remedied("start them, or take them out of synchronous_standby_names")
}

/// Examines the server at these options.
pub(crate) async fn examine(options: &PostgresOptions) -> Result<Report, StoreError> {
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
    let is_deaf = deaf.is_none() && !store.journal().listener.hears();
    let settings = settings.first().ok_or_else(no_answer)?;
    let mut findings = judge(&pool.server, settings, options, is_deaf);
    if let Some((step, error)) = deaf {
        let meaning = "waiters poll, and nobody sees that one has died";
        let mut finding = Finding::of_error("pushes", None, &error).meaning(meaning);
        finding.severity = Warning;
        finding.found = format!("cannot {step}: {error}");
        findings.push(finding);
        let without = options.clone().listen(None);
        trial = trial::run(&journal::open(&without).await?).await;
    }
    findings.extend(trial.findings());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_that_commits_wait_for_are_named() {
        let (one, any) = (missing("s2", 1), missing("", 2));
        assert_eq!(one.found, "standbys are not connected: s2");
        assert_eq!(any.found, "more standbys have to be connected: 2");
        assert_eq!(one.severity, Warning);
        assert_eq!(missing("s2", 0).severity, Note);
    }
}
