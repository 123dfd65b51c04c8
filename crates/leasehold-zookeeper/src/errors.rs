//! What the errors of ZooKeeper mean for locks.

use leasehold_core::Key;
use leasehold_store::{ErrorKind, StoreError, unavailable};
use zookeeper_client::Error;

use super::options::ZooKeeperOptions;

/// What to tell a caller.
pub(crate) fn meaning(error: Error, options: &ZooKeeperOptions) -> StoreError {
    let (hosts, chroot) = (options.hosts(), &options.chroot);
    let refused = |message: String| StoreError::new(ErrorKind::Refused, message);
    let said = match &error {
        Error::NoHosts | Error::Timeout => unreachable(&error.to_string(), options),
        Error::ConnectionLoss
        | Error::SessionMoved
        | Error::NotReadOnly
        | Error::Throttled
        // Another client wants room just now.
        | Error::NotEmpty
        | Error::UnexpectedError(_)
        | Error::Custom(_) => unavailable(format!("ZooKeeper at {hosts}: {error}")),
        Error::SessionExpired | Error::ClientClosed => {
            unavailable(format!("the session at ZooKeeper at {hosts} has ended"))
        }
        Error::NoAuth => refused(format!("ZooKeeper does not let this user change {chroot}"))
            .with_hint("check the user and the password, or use another chroot"),
        Error::InvalidAcl => refused(format!(
            "ZooKeeper at {hosts} does not know this client by its certificate"
        ))
        .with_hint(
            "set ssl.clientAuth=want at the servers, or name a user in the URL, or leave out the \
             certificate",
        ),
        Error::AuthFailed => refused("ZooKeeper refuses the user or the password".to_owned())
            .with_hint("check the user and the password"),
        Error::QuotaExceeded => refused(format!("the quota of {chroot} is used up"))
            .with_hint("raise it at the servers"),
        Error::Unimplemented => refused(format!("ZooKeeper at {hosts} is too old"))
            .with_hint("use ZooKeeper 3.6 or later"),
        _ => refused(format!("ZooKeeper at {hosts}: {error}")),
    };
    said.with_source(error)
}

/// No server gives a session, for this reason.
pub(crate) fn unreachable(cause: &str, options: &ZooKeeperOptions) -> StoreError {
    let hosts = options.hosts();
    let message = format!("ZooKeeper at {hosts} cannot be reached: {cause}");
    unavailable(message).with_hint(match options.encrypted {
        true => "check that the servers run and the URL names their hosts and secureClientPort",
        false => {
            "check that the servers run and the URL names their hosts and ports; use \
             zookeeper+tls:// for a port that expects TLS"
        }
    })
}

/// A node that others would need is missing.
pub(crate) fn none() -> StoreError {
    unavailable("ZooKeeper has lost the nodes of the locks")
}

/// The queue of a key does not fit.
pub(crate) fn too_large(key: &Key, claims: usize, limit: usize) -> StoreError {
    let message = format!("the queue of {key:?} is full: {claims} claims");
    StoreError::new(ErrorKind::Refused, message).with_hint(format!(
        "let fewer wait, or raise jute.maxbuffer at the servers and maxbuffer ({limit}) in the URL"
    ))
}
