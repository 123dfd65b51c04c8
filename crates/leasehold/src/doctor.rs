//! What can be promised on a store, and what endangers it.
//!
//! [`examine`] looks at the servers behind a URL as a client would use them: it
//! takes and gives back a lock of its own, measures, and reads what the servers
//! tell of themselves. Each [`Finding`] says what it means and what to do.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::doctor::{Severity, examine};
//! let report = examine("memory:", &Default::default()).await?;
//! assert_eq!(report.worst(), Severity::Warning, "a restart forgets all locks");
//! for finding in &report.findings {
//!     println!("{}: {}", finding.check, finding.found);
//! }
//! # Ok(()) }
//! ```

use std::fmt;

use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::open::{self, Credentials, TlsFiles};
pub use crate::store::report::{Finding, Report, Severity};

/// What opens a store besides its URL: wins over the URL. `Debug` hides the
/// password.
#[derive(Clone, Default)]
pub struct Access {
    /// The user to log in as.
    pub user: Option<String>,
    /// The password to log in with.
    pub password: Option<String>,
    /// Certificates for TLS.
    pub tls: TlsFiles,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("user", &self.user)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Examines the store at `url`. It takes a second or two, uses a lock whose key
/// begins with `leasehold-doctor/`, and leaves nothing behind.
///
/// What is wrong with a server, and that it cannot be reached, is a finding and
/// no error.
///
/// # Cancel safety
/// Dropping the future leaves a key that vanishes by itself.
///
/// # Errors
/// `Invalid` for a URL or options that cannot work; `Unsupported` for a store
/// that this build does not have.
pub async fn examine(url: &str, access: &Access) -> Result<Report, Error> {
    let report = examine_store(url.trim(), access).await;
    report.map_err(|error| Error::new(Operation::Connect, None, error))
}

async fn examine_store(url: &str, access: &Access) -> Result<Report, StoreError> {
    match url.split_once(':').map_or("", |(scheme, _)| scheme) {
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "redis-sentinel"
        | "rediss-sentinel" | "valkey-sentinel" | "valkeys-sentinel" => {
            let options = open::redis_options(url, &access.credentials())?;
            Ok(crate::store::redis::examine(&options).await)
        }
        #[cfg(feature = "redis")]
        "redis-cluster" | "rediss-cluster" | "valkey-cluster" | "valkeys-cluster" => {
            let options = open::cluster_options(url, &access.credentials())?;
            Ok(crate::store::redis::examine_cluster(&options).await)
        }
        #[cfg(feature = "redis")]
        "redlock" | "redlocks" => {
            let options = open::redlock_options(url, &access.credentials())?;
            Ok(crate::store::redis::examine_redlock(&options).await)
        }
        _ => without_servers(url, access).await,
    }
}

impl Access {
    fn credentials(&self) -> Credentials {
        Credentials {
            user: self.user.clone(),
            password: self.password.clone(),
            tls: self.tls.clone(),
        }
    }
}

/// Stores of one process or machine: opening them is the examination.
async fn without_servers(url: &str, access: &Access) -> Result<Report, StoreError> {
    let (store, shown) = match open::open(url, &access.credentials()).await {
        Ok(opened) => opened,
        Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported) => {
            return Err(error);
        }
        Err(error) => {
            return Ok(Report {
                store: url.to_owned(),
                promise: "Nothing: the store cannot be used.".to_owned(),
                findings: vec![Finding::of_error("reach", None, &error)],
            });
        }
    };
    let (promise, finding) = if store.capabilities().name == "memory" {
        let found = "locks live in the memory of one process";
        (
            "Exclusion and fencing among the tasks of this process.",
            Finding::new(Severity::Warning, "reach", found)
                .meaning("no other process sees them, and a restart forgets them")
                .remedied("use local: for one machine, or a server for several"),
        )
    } else {
        let found = "the directory can be written to, and is on a disk of this machine";
        (
            "Exclusion and fencing among the processes of this machine that use this directory. \
             Holds end with the machine; tokens rise over its restarts.",
            Finding::new(Severity::Fine, "reach", found),
        )
    };
    Ok(Report {
        store: shown,
        promise: promise.to_owned(),
        findings: vec![finding],
    })
}
