//! Examination of a store: what its locks guarantee, and which settings endanger that.
//!
//! [`examine`] uses the servers of a URL as a client does: it acquires and releases a lock of its
//! own, measures latency and clocks, and reads the servers' configuration. Each [`Finding`] says
//! what was found, what it means and what to do.
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

use crate::access::Access;
use crate::error::{Error, Operation};
use crate::registry;
#[doc(inline)]
pub use crate::store::report::{Finding, Report, Severity};
use crate::sync::check_runtime;

/// Examines the store at `url`. It takes a second or two, uses a lock whose key begins with
/// `leasehold-doctor/`, and leaves in the store only what makes later tokens rise. It uses no lock
/// if that would start the quarantine of a server that is new or was restarted.
///
/// A fault of a server, or a server that cannot be reached, is a finding and not an error.
///
/// # Cancel safety
/// If the future is dropped, a key may remain; it expires within seconds.
///
/// # Errors
/// `Invalid` for an invalid URL or invalid options; `Unsupported` for a store that this build
/// does not include.
pub async fn examine(url: &str, access: &Access) -> Result<Report, Error> {
    let url = url.trim();
    let found = check_runtime().and_then(|_| registry::of(url));
    let report = match found.and_then(|found| access.check().map(|()| found)) {
        Ok((scheme, url)) => scheme.examine(&url, access).await,
        Err(error) => Err(error),
    };
    report.map_err(|error| Error::new(Operation::Connect, None, error))
}
