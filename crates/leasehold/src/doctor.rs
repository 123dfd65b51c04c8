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

use crate::access::Access;
use crate::error::{Error, Operation};
#[doc(inline)]
pub use crate::store::report::{Finding, Report, Severity};
use crate::stores;

/// Examines the store at `url`. It takes a second or two, uses a lock whose key
/// begins with `leasehold-doctor/`, and leaves nothing behind. Where a lock would start
/// the quarantine of a server that is new or was restarted, none is used.
///
/// What is wrong with a server, and that it cannot be reached, is a finding and
/// no error.
///
/// # Cancel safety
/// Dropping the future may leave a key that vanishes by itself within seconds.
///
/// # Errors
/// `Invalid` for a URL or options that cannot work; `Unsupported` for a store
/// that this build does not have.
pub async fn examine(url: &str, access: &Access) -> Result<Report, Error> {
    let url = url.trim();
    let report = match stores::of(url).and_then(|scheme| access.check().map(|()| scheme)) {
        Ok(scheme) => scheme.examine(url, access).await,
        Err(error) => Err(error),
    };
    report.map_err(|error| Error::new(Operation::Connect, None, error))
}
