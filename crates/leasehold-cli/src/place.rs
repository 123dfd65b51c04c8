//! Whether the store is the one that is meant: `local:` excludes the processes of one user on one
//! machine, in one directory. (A directory that a group shares has to be named.)

use std::fs::canonicalize;
use std::path::PathBuf;

use leasehold::store::local::LocalOptions;

use crate::cli::StoreArgs;
use crate::config::{Origin, Shown};
use crate::failure::Failure;
use crate::output::Printer;
use crate::{env, sys};

/// Refuses an election when no store is named: it is for several machines, mostly, and each would
/// have a leader of its own.
pub(crate) fn check_of_election(store: &StoreArgs) -> Result<(), Failure> {
    if store.is_named() {
        return Ok(());
    }
    Err(
        Failure::usage("no store is named: each machine would have a leader of its own").hint(
            "name the store of all candidates, with -S redis://host/, LEASEHOLD_STORE or \
             leasehold.toml; -S local: is for an election among the processes of this machine",
        ),
    )
}

/// Says that a periodic job is one of this machine only, when no store is named.
pub(crate) fn say_if_every_machine_runs_it(store: &StoreArgs, printer: &Printer) {
    if !store.is_named() {
        printer.warn_with_hint(
            "no store is named: every machine runs this job once per period",
            "name the store that the machines share, with -S URL, LEASEHOLD_STORE or \
             leasehold.toml; -S local: confirms that each machine runs it",
        );
    }
}

/// Says which credentials of the environment are not sent, where it names no store of its own.
pub(crate) fn say_if_not_sent(store: &StoreArgs, printer: &Printer) {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let unsent: Vec<_> = env::CREDENTIALS.into_iter().filter(set).collect();
    let has_servers = !store.url().starts_with("local:") && !store.url().starts_with("memory:");
    if store.uses_environment() || !has_servers || unsent.is_empty() || set(&env::STORE) {
        return;
    }
    let named = store.named();
    let url = Shown::of(&named.value).map_or_else(|_| "the store".to_owned(), |it| it.url);
    let from = match named.from {
        Origin::Default => "the saved lease names".to_owned(),
        from => format!("{from} names"),
    };
    printer.warn_with_hint(
        format!("{} not used for {url}, which {from}", unsent.join(", ")),
        "credentials of the environment are sent only to the store that -S or LEASEHOLD_STORE names",
    );
}

/// Says so when the environment leads `local:` to another directory than that of other processes
/// of this user.
pub(crate) fn say_if_elsewhere(store: &StoreArgs, printer: &Printer) {
    if let Some((here, named_by, usual)) = elsewhere(store.url()) {
        printer.warn_with_hint(
            format!(
                "local: is {} here, because of {named_by}; this user's other processes use {}",
                here.display(),
                usual.display()
            ),
            "they do not see these locks; name one directory for all: -S local:/some/dir",
        );
    }
}

/// The directory, what names it, and the one that is this user's by the system's list of users;
/// nothing if they are the same.
fn elsewhere(url: &str) -> Option<(PathBuf, &'static str, PathBuf)> {
    let (here, named_by) = LocalOptions::from_url(url).ok()?.place().ok()?;
    let named_by = named_by?;
    // Whose home does not exist has all its processes elsewhere.
    let home = canonicalize(sys::home()?).ok()?;
    let usual = home.join(".local/state/leasehold");
    // The directories may not have been made yet, and links may lead to the same one.
    let resolved = |path: &PathBuf| canonicalize(path).unwrap_or_else(|_| path.clone());
    let here_at_home = std::env::home_dir()
        .filter(|_| named_by == "HOME")
        .and_then(|home| canonicalize(home).ok());
    let same = resolved(&here) == resolved(&usual) || here_at_home.is_some_and(|it| it == home);
    (!same).then_some((here, named_by, usual))
}
