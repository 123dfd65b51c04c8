//! A task that panics takes nothing else with it: so panics are looked for.

use std::sync::{Arc, Mutex};

use leasehold_store::sync::lock;

/// The first panic of this thread from now on.
pub(crate) fn watch() -> Arc<Mutex<Option<String>>> {
    let seen = Arc::new(Mutex::new(None));
    let (watched, thread) = (Arc::clone(&seen), std::thread::current().id());
    let former = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == thread {
            lock(&watched).get_or_insert_with(|| panic.to_string());
        }
        former(panic);
    }));
    seen
}
