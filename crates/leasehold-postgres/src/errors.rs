//! What the errors of PostgreSQL mean for locks.

use std::iter;

use leasehold_core::Key;
use leasehold_store::journal::other_format;
use leasehold_store::{ErrorKind, StoreError, unavailable};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use super::hosts::text_of_file;

/// The code with which `append` refuses a record in another format, and `append_all` goes back.
pub(crate) const OTHER_FORMAT: &str = "LH002";
pub(crate) const CHANGED: &str = "LH003";

/// The code with which `commit_when` refuses a step for which too few standbys would be waited for.
const TOO_FEW_STANDBYS: &str = "LH004";

/// What to do where no more connections are let in.
const MORE_ROOM: &str =
    "raise max_connections, or lower pool= in the URL: who waits has two connections";

/// What to do where the server cannot forget notifications.
const OLDEST: &str = "let the transaction with the oldest xact_start in pg_stat_activity end";

/// What to do where only another server helps.
const OTHER_HOSTS: &str = "name all hosts in the URL: the one that accepts writes is used";

/// What to tell a caller.
pub(crate) fn meaning(error: Error, schema: &str, server: &str) -> StoreError {
    let Some(said) = error.as_db_error() else {
        let first = Some(&error as &dyn std::error::Error);
        let causes = iter::successors(first, |cause| (*cause).source());
        let cause = causes.last().map(ToString::to_string).unwrap_or_default();
        return of_client(&cause, server).with_source(error);
    };
    let (code, message) = (said.code(), said.message().to_owned());
    let class = code.code().get(..2).unwrap_or_default();
    if let Some(ours) = ours(said, server) {
        return ours.with_source(error);
    }
    let refusal = || refused(format!("PostgreSQL: {message}"));
    let passes = || unavailable(format!("PostgreSQL at {server}: {message}"));
    let incomplete = || {
        refused(format!("the schema {schema} is incomplete: {message}"))
            .with_hint("drop it when nobody uses it, or name another: ?schema=NAME; then init it")
    };
    let said = match (code, class) {
        // Without the table `about` there is no schema; without anything else, a part of it is missing.
        (&SqlState::UNDEFINED_TABLE, _) if !message.contains(".about") => incomplete(),
        (&SqlState::UNDEFINED_FUNCTION | &SqlState::UNDEFINED_COLUMN, _) => incomplete(),
        (&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME, _) => refused(format!(
            "there is no schema {schema} for locks in this database"
        ))
        .with_hint("make it once: leasehold init -S URL, with the same URL"),
        (&SqlState::INSUFFICIENT_PRIVILEGE, _) => refusal().with_hint(grants(schema, "ROLE")),
        (&SqlState::READ_ONLY_SQL_TRANSACTION, _) => {
            unavailable(format!("{server} is read-only: {message}")).with_hint(OTHER_HOSTS)
        }
        (&SqlState::DISK_FULL | &SqlState::OUT_OF_MEMORY, _) => {
            refusal().with_hint("make room on the server")
        }
        (&SqlState::INVALID_PASSWORD, _) => refusal().with_hint("check the user and the password"),
        // Whatever the password is.
        (_, OF_LOGIN) => refusal()
            .with_hint("check the user and sslmode in the URL, and pg_hba.conf at the server"),
        (&SqlState::INVALID_CATALOG_NAME, _) => {
            refusal().with_hint("check the database of the URL")
        }
        (&SqlState::TOO_MANY_CONNECTIONS, _) => passes().with_hint(MORE_ROOM),
        (&SqlState::PROGRAM_LIMIT_EXCEEDED, _) => passes().with_hint(OLDEST),
        (&SqlState::LOCK_NOT_AVAILABLE, _) => {
            passes().with_hint("find in pg_locks which session holds that lock")
        }
        // No room, shutting down, gone, in the way of others.
        (_, "08" | "25" | "40" | "53" | "57") => passes(),
        _ => refused(format!("PostgreSQL: {message} ({})", code.code())),
    };
    said.with_source(error)
}

/// What the client finds out by itself has no code.
fn of_client(cause: &str, server: &str) -> StoreError {
    match cause {
        "database does not allow writes" => {
            unavailable(format!("PostgreSQL at {server} is read-only")).with_hint(OTHER_HOSTS)
        }
        "password missing" => refused(match text_of_file() {
            Ok(_) => format!("PostgreSQL at {server} wants a password"),
            Err(why) => format!("PostgreSQL at {server} wants a password, and {why}"),
        })
        .with_hint("it can stand in ~/.pgpass, in PGPASSWORD or in a file for passwords"),
        "server does not support TLS" => {
            refused(format!("PostgreSQL at {server} has no TLS")).with_hint("set ssl = on there")
        }
        _ => unavailable(format!("PostgreSQL at {server} cannot be reached: {cause}"))
            .with_hint("check that the server runs and that the URL names its host and port"),
    }
}

/// The class of what a server says of a user or a password.
const OF_LOGIN: &str = "28";

/// Whether it is about who we are.
pub(crate) fn is_of_login(error: &Error) -> bool {
    let class = error.code().and_then(|state| state.code().get(..2));
    class == Some(OF_LOGIN)
}

/// What the functions of the schema say.
fn ours(said: &DbError, server: &str) -> Option<StoreError> {
    let (found, about) = (said.message(), said.detail().unwrap_or_default());
    match said.code().code() {
        OTHER_FORMAT => {
            let format = found.parse().unwrap_or_default();
            let other = Key::new(about).map(|key| other_format(&key, format));
            Some(other.unwrap_or_else(|_| no_answer()))
        }
        TOO_FEW_STANDBYS => Some(
            refused(format!(
                "acknowledge={about} is wanted, and PostgreSQL at {server} waits for {found} standbys"
            ))
            .with_hint(format!(
                "set synchronous_standby_names = 'ANY {about} (*)' at the server, or lower acknowledge"
            )),
        ),
        _ => None,
    }
}

fn refused(message: String) -> StoreError {
    StoreError::new(ErrorKind::Refused, message)
}

/// What a role has to be granted to use locks.
pub(crate) fn grants(schema: &str, role: &str) -> String {
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.keys TO {role}; \
         GRANT SELECT ON {schema}.about TO {role}; \
         GRANT USAGE ON SEQUENCE {schema}.records TO {role};"
    )
}

pub(crate) fn no_answer() -> StoreError {
    unavailable("PostgreSQL has answered nothing")
}
