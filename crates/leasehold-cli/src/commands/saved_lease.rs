//! A lease in a file: `hold --save` writes it, `renew` and `release` use it.

use std::path::Path;
use std::time::Duration;

use leasehold::{Any, Client, Error, ErrorKind, HolderInfo, LeaseParts, Released, Settings, Token};

use crate::args::{ReleaseArgs, RenewArgs};
use crate::config::CommandSettings;
use crate::connect::connect;
use crate::duration::{millis, spoken};
use crate::exit;
use crate::failure::Failure;
use crate::output::{Fields, Printer};
use crate::saved::{SaveTarget, SavedLease};
use crate::store_warnings::say_if_not_sent;
use crate::user_file::{UserFile, quoted};

/// Renews each lease of the file.
pub(crate) async fn renew(args: &RenewArgs, printer: &Printer) -> Result<u8, Failure> {
    let (saved, _) = SavedLease::read(&args.file)?;
    let client = connect_to(&saved, &args.common.store.settings, printer).await?;
    let ttl = args.ttl.unwrap_or_else(|| saved.ttl());
    Settings::default().with_ttl(ttl).check()?;
    let renew = async |lease: &LeaseParts<Any>| {
        let key = lease.key().as_str();
        match client.renew_by_parts(lease, ttl).await {
            Ok(()) => Ok(Ok(format!("renewed {key} for {}", spoken(ttl)))),
            Err(error) if error.kind() == ErrorKind::Lost => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    };
    each(&saved, Some(ttl), printer, renew).await?
}

/// Releases each lease of the file, and removes the file.
pub(crate) async fn release(args: &ReleaseArgs, printer: &Printer) -> Result<u8, Failure> {
    let (saved, file) = SavedLease::read(&args.file)?;
    let client = connect_to(&saved, &args.common.store.settings, printer).await?;
    // `hold` does not take its lease for lost meanwhile. Some file systems have no such locks.
    let _ = file.try_lock();
    let release = async |lease: &LeaseParts<Any>| {
        let (key, released) = (lease.key().as_str(), client.release_by_parts(lease).await?);
        let ended = "the lease had ended before; another may have held it since";
        Ok::<_, Error>(match released {
            Released::Held => Ok(format!("released {key}")),
            _ => Err(format!("{key} was not held: {ended}")),
        })
    };
    let status = each(&saved, None, printer, release).await?;
    file.remove().map_err(|error| {
        let message = format!("cannot remove {}: {error}", args.file.display());
        Failure::new(exit::OUTPUT, message)
    })?;
    status
}

async fn connect_to(
    saved: &SavedLease,
    store: &CommandSettings,
    printer: &Printer,
) -> Result<Client, Failure> {
    let store = store.or_saved(&saved.store);
    say_if_not_sent(&store, printer);
    connect(&store).await
}

/// Does that with each lease of the file, and says what was done, or that the lease had ended: that
/// with `-q`, too. Answers the worst status. Output that cannot be written keeps no other lease from its
/// turn.
async fn each(
    saved: &SavedLease,
    ttl: Option<Duration>,
    printer: &Printer,
    work: impl AsyncFn(&LeaseParts<Any>) -> Result<Result<String, String>, Error>,
) -> Result<Result<u8, Failure>, Failure> {
    let mut status = Ok(exit::OK);
    for lease in &saved.leases {
        let done = work(lease).await?;
        let shown = Fields::default()
            .with("key", lease.key().as_str())
            .with("held", done.is_ok())
            .with_known("ttl_ms", ttl.filter(|_| done.is_ok()).map(millis));
        let said = match done {
            Ok(sentence) => printer.done(&shown, &sentence).map(|()| exit::OK),
            Err(sentence) => {
                printer.failure(&Failure::new(exit::LOST, sentence));
                printer.show(&shown, String::new).map(|_| exit::LOST)
            }
        };
        status = status.and_then(|worst: u8| Ok(worst.max(said?)));
    }
    Ok(status)
}

/// Saves a lease. One that is saved there and still holds is not replaced: nobody could release it
/// then.
pub(crate) async fn save(
    leases: Vec<LeaseParts<Any>>,
    file: &Path,
    client: &Client,
    store: &CommandSettings,
) -> Result<UserFile, Failure> {
    let lease = &SavedLease::new(client.store_url(), store.ttl().value, leases);
    let place = SaveTarget::at(file)?;
    if let Some(old) = &place.lease {
        let shown = file.display();
        let hint = format!(
            "save to another file, or first run leasehold release {}",
            quoted(file)
        );
        let held = still_held(old, lease, client, store).await;
        let held = held.map_err(|failure| {
            let message = format!(
                "cannot tell whether the lease that is saved in {shown} still holds: {failure}"
            );
            Failure { message, ..failure }.hint(&*hint)
        })?;
        if let Some(key) = held {
            let message = format!("the lease that is saved in {shown} still holds {key}");
            return Err(Failure::usage(message).hint(hint));
        }
    }
    place.write(lease)
}

/// The first key that the old lease still holds.
async fn still_held(
    old: &SavedLease,
    new: &SavedLease,
    client: &Client,
    store: &CommandSettings,
) -> Result<Option<String>, Failure> {
    let other;
    let client = match old.store == new.store {
        true => client,
        false => {
            other = connect(&store.elsewhere(&old.store)).await?;
            &other
        }
    };
    let is_ours = |key| old.store == new.store && new.leases.iter().any(|it| it.key() == key);
    for lease in &old.leases {
        let (key, token) = (lease.key(), lease.token());
        // Without tokens the holder may be the old one, unless it is the new one.
        let is_old = |holder: &HolderInfo| match token == Token::NONE {
            true => !is_ours(key),
            false => holder.token == token,
        };
        let seen = client.inspect(key.as_str()).await?;
        if seen.holders.iter().any(|it| !it.kept && is_old(it)) {
            return Ok(Some(key.to_string()));
        }
    }
    Ok(None)
}
