//! `leasehold wait`: until a key is free, without taking it.

use std::pin::pin;
use std::time::Duration;

use leasehold::{Client, Key, Settings, Wait};
use tokio::time::{sleep, timeout};

use crate::args::WaitForArgs;
use crate::duration::millis;
use crate::exit::{self, Status};
use crate::failure::Failure;
use crate::output::{Event, Keys, Printer};
use crate::retries::{Patience, Retries};
use crate::session::Session;
use crate::signals::Signals;
use crate::view::KeyView;
use crate::waiting::SHORT_WAIT;

/// Waits until nobody holds the key.
pub(crate) async fn wait(args: &WaitForArgs, printer: &Printer) -> Result<Status, Failure> {
    let key = &args.key;
    Key::new(key)?;
    let patience = Patience {
        wait: args.wait.as_ref().map_or(Wait::Forever, |wait| wait.value),
        retry_for: args.retry.limit(),
    };
    let work = async |session: &mut Session<'_>| {
        let Session {
            client,
            retries,
            signals,
        } = session;
        let mut told = false;
        let signal = loop {
            let limit = retries.time_limit();
            let freed = limit.of(until_free(key, client, retries, &mut told, printer));
            let failure = tokio::select! {
                signal = signals.next() => break signal,
                freed = freed => match freed.flatten() {
                    Ok(true) => return Ok(exit::OK.into()),
                    Ok(false) => {
                        return Ok(args.conflict_exit_code.unwrap_or(exit::CONFLICT).into());
                    }
                    Err(failure) => failure,
                },
            };
            if let Some(signal) = retries.pause(failure, signals).await? {
                break signal;
            }
        };
        printer.event(&Event::Withdrawn {
            keys: Keys::from(std::slice::from_ref(key)),
            signal: signal.as_raw(),
            waited_ms: millis(retries.elapsed()),
        });
        Ok(Status::ended_by(signal))
    };
    let (store, asking) = (&args.common.store, (std::slice::from_ref(key), patience));
    let (settings, signals) = (Settings::default(), Signals::listen()?);
    Session::with(store, &settings, asking, signals, printer, work).await
}

/// Answers whether it is free; else the time is over, and who holds it was said.
async fn until_free(
    key: &str,
    client: &Client,
    retries: &mut Retries<'_>,
    told: &mut bool,
    printer: &Printer,
) -> Result<bool, Failure> {
    let look = async || Ok::<_, Failure>(KeyView::from(&client.inspect(key).await?));
    let seen = look().await?;
    retries.usable();
    let freed = client.wait_until_free(key);
    let mut waiting = pin!(async {
        match retries.left() {
            Wait::For(left) => timeout(left, freed).await,
            Wait::Forever => Ok(freed.await),
            // A key that is free when the time is over is free.
            _ => timeout(Duration::ZERO, freed).await,
        }
    });
    let pause = match printer.is_live() {
        true => Duration::ZERO,
        false => SHORT_WAIT,
    };
    let freed = loop {
        tokio::select! {
            biased;
            freed = &mut waiting => break freed,
            () = sleep(pause), if !*told && !seen.holders.is_empty() => {
                *told = true;
                let (key, holders) = (key.to_owned(), seen.holders.clone());
                printer.event(&Event::WaitingUntilFree { key, holders });
            }
        }
    };
    let holders = match freed {
        Ok(freed) => freed.map(|()| Vec::new())?,
        // It may have become free just now.
        Err(_) => look().await?.holders,
    };
    let (key, waited_ms) = (key.to_owned(), millis(retries.elapsed()));
    let is_free = holders.is_empty();
    printer.event(&match is_free {
        true => Event::Free {
            key,
            waited_ms,
            announced: *told,
        },
        false => Event::Conflict {
            key,
            waited_ms,
            holders,
        },
    });
    Ok(is_free)
}
