//! `postgres://` — locks in PostgreSQL 14 or later: a store of
//! [leasehold](https://docs.rs/leasehold).
//!
//! To use it, only the crate `leasehold` is needed, with the feature `postgres`:
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = leasehold::connect("postgres://app@db.example/app").await?;
//! client.mutex("orders/42")?.with_lock(async |_| { /* the work */ }).await?;
//! # Ok(()) }
//! ```
//!
//! Each key is a row with a journal ([`leasehold_store::journal`]): a step appends what is asked, in
//! one statement and one round trip. No session is held for a lock or a waiter, so that any pooler
//! will do; one session of its own listens for all waiters of a client. The page *PostgreSQL*
//! of the repository says what is promised.
//!
//! - `options`: the URL;
//! - `hosts`: the hosts one by one, and their passwords; `tls`: how they are encrypted; `pool`: connections, and what becomes of errors (`errors`);
//! - `journal`: the statements, and what is read of their answers; `batch`: steps that go together;
//! - `listener`: the session that is rung;
//! - `init`: the schema (`schema.sql`, `sound.sql`);
//! - `scheme`, `doctor` (`settings.sql`), `bare`: how it is opened, examined, and compared with its server.

// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bare;
mod batch;
mod doctor;
mod errors;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hosts;
mod init;
mod journal;
mod listener;
mod options;
mod pool;
mod scheme;
mod tls;

#[doc(hidden)]
pub use self::bare::bare;
pub use self::options::{Commit, PostgresOptions, SslMode};
pub use self::scheme::Postgres;
