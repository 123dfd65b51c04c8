//! Orphans that the system gives to this process: the first one of a container has to reap them.
//!
//! What the command leaves is given to its shim. To this process go those whose parents were not
//! started by leasehold, as with `docker exec`. Each that has ended is a zombie until it is reaped.

use tokio::runtime::Runtime;

/// Reaps orphans as long as the runtime runs, if the system gives them to this process.
#[cfg(target_os = "linux")]
pub(crate) fn reap_orphans(runtime: &Runtime) {
    use rustix::process::{Pid, Signal, child_subreaper, getpid};

    use super::shim;
    use crate::signals;

    let inherits = getpid() == Pid::INIT || matches!(child_subreaper(), Ok(Some(_)));
    if !inherits {
        return;
    }
    runtime.spawn(async {
        // Without it zombies stay, which is no reason not to run.
        let Ok(mut ends) = signals::stream(Signal::CHILD) else {
            return;
        };
        loop {
            shim::reap_others();
            if ends.recv().await.is_none() {
                return;
            }
        }
    });
}

/// The first process of such a system is not leasehold.
#[cfg(not(target_os = "linux"))]
pub(crate) fn reap_orphans(_runtime: &Runtime) {}
