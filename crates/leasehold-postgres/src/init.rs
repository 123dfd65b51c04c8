//! The schema: what `leasehold init` makes.

use std::sync::Arc;

use leasehold_core::Marked;
use leasehold_store::{ErrorKind, StoreError};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::errors;
use super::pool::{PATIENCE, Pool, first, params};

/// The version of the schema that this build uses.
const VERSION: &str = "3";

/// What to do where the role may not make it.
const BY_OWNER: &str = "let the owner of the database run what leasehold init --dry-run prints";

/// Others may have made functions that fit better than those of the server.
const PATH: &str = "set local search_path = pg_catalog, pg_temp;";

/// What the schema has beside the rest, and those made earlier lack.
const SOUND: &str = include_str!("sound.sql");

/// The statements that make the schema.
pub(crate) fn sql(schema: &str) -> String {
    let sql = [include_str!("schema.sql"), SOUND].concat();
    sql.replace("{schema}", schema)
}

/// The same for people: what to run, and what each role needs.
pub(crate) fn script(schema: &str) -> String {
    let (sql, grants) = (sql(schema), errors::grants(schema, "ROLE"));
    let grants = grants.replace("; ", ";\n-- ");
    format!("begin; {PATH}\n\n{sql}\ncommit;\n\n-- For each role that uses locks:\n-- {grants}\n")
}

/// Makes the schema, unless it is there.
pub(crate) async fn make(pool: &Arc<Pool>) -> Result<Marked, StoreError> {
    let at = &pool.options.config;
    // What fails is undone when the connection ends.
    let (client, _) = pool.connect().await?;
    // Two at once: the second finds what the first has made.
    let lock = "select pg_advisory_xact_lock(hashtextextended('leasehold init', 0))";
    let begin = format!("{PATIENCE} {PATH} {lock}");
    pool.told(at, client.batch_execute(&begin)).await?;
    let made = match version(pool, &client).await? {
        Some(found) => {
            checked(&found, &pool.schema)?;
            let sound = SOUND.replace("{schema}", &pool.schema);
            pool.told(at, client.batch_execute(&sound)).await?;
            Marked::Already
        }
        None => {
            let sql = sql(&pool.schema);
            let made = pool.answer(at, client.batch_execute(&sql)).await?;
            made.map_err(|error| match error.code() {
                Some(&SqlState::INSUFFICIENT_PRIVILEGE) => pool.meaning(error).with_hint(BY_OWNER),
                // Somebody else's are in the way, or what is left of ours.
                Some(&SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_FUNCTION) => pool
                    .meaning(error)
                    .with_hint("name another schema: ?schema=NAME"),
                _ => pool.meaning(error),
            })?;
            Marked::New
        }
    };
    pool.told(at, client.batch_execute("commit")).await?;
    Ok(made)
}

async fn version(pool: &Pool, client: &Client) -> Result<Option<String>, StoreError> {
    let (at, schema) = (&pool.options.config, &pool.schema);
    let is_there = format!("select to_regclass('{schema}.about') is not null");
    let is_there = pool.told(at, client.query_typed(&is_there, &[])).await?;
    if first::<bool>(&is_there) != Some(true) {
        return Ok(None);
    }
    let version = format!("select version::text from {schema}.about");
    let version = pool.told(at, client.query_typed(&version, &[])).await?;
    Ok(first(&version))
}

/// Refuses the schema of another version.
pub(crate) fn checked(found: &str, schema: &str) -> Result<(), StoreError> {
    if found == VERSION {
        return Ok(());
    }
    let message =
        format!("the schema {schema} has version {found}, and this leasehold uses {VERSION}");
    Err(StoreError::new(ErrorKind::Refused, message)
        .with_hint("use the version of leasehold that made it, or another schema: ?schema=NAME"))
}

/// Finds out whether the schema is there, in the right version, and whether commits can count when
/// they are to.
pub(crate) async fn check(pool: &Arc<Pool>, commit_when: i32) -> Result<(), StoreError> {
    let statement = "select version::text from {schema}.about";
    let found: Option<String> = first(&pool.ask(statement, &[]).await?);
    checked(found.as_deref().unwrap_or("none"), &pool.schema)?;
    let can = "select {schema}.commit_when($1)";
    pool.ask(can, &params![commit_when => INT4]).await.map(drop)
}
