//! Warnings about a store that may not be the one that is meant: `local:` excludes the processes of
//! one user on one machine, in one directory. (A directory that a group shares has to be named.)

use leasehold::store::describe;

use crate::config::{CommandSettings, Origin};
use crate::env;
use crate::failure::Failure;
use crate::output::Printer;

/// Refuses an election when no store is named: it is for several machines, mostly, and each would
/// have a leader of its own.
pub(crate) fn check_of_election(store: &CommandSettings) -> Result<(), Failure> {
    if store.is_named() {
        return Ok(());
    }
    let message = "no store is named: each machine would have a leader of its own";
    let hint = "name the store of all candidates, with -S redis://host/, LEASEHOLD_STORE or \
                leasehold.toml; -S local: is for an election among the processes of this machine";
    Err(Failure::usage(message).hint(hint))
}

/// Says that a periodic job is one of this machine only, when no store is named.
pub(crate) fn say_if_every_machine_runs_it(store: &CommandSettings, printer: &Printer) {
    if !store.is_named() {
        printer.warn_with_hint(
            "no store is named: every machine runs this job once per period",
            "name the store that the machines share, with -S URL, LEASEHOLD_STORE or \
             leasehold.toml; -S local: confirms that each machine runs it",
        );
    }
}

/// Says that a key or a pattern has the form of a server's URL, unless -S names the store.
pub(crate) fn say_if_it_is_a_url(key: &str, store: &CommandSettings, printer: &Printer) {
    if !store.named().from.is_typed() && describe(key).is_ok_and(|it| it.has_servers) {
        printer.warn_with_hint(
            "the key looks like the URL of a store",
            "write -S before the URL of a store",
        );
    }
}

/// Says which credentials of the environment are not sent, where it names no store of its own.
pub(crate) fn say_if_not_sent(store: &CommandSettings, printer: &Printer) {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let unsent: Vec<_> = env::CREDENTIALS.into_iter().filter(set).collect();
    if !store.without_environment || unsent.is_empty() || set(&env::STORE) {
        return;
    }
    let named = store.named();
    let url = match describe(&named.value) {
        Ok(described) if !described.has_servers => return,
        Ok(described) => described.url,
        Err(_) => "the store".to_owned(),
    };
    let from = match named.from {
        Origin::Default => "the saved lease names".to_owned(),
        from => format!("{from} names"),
    };
    printer.warn_with_hint(
        format!("{} not used for {url}, which {from}", unsent.join(", ")),
        "credentials of the environment are sent only to the store that -S or LEASEHOLD_STORE names",
    );
}
