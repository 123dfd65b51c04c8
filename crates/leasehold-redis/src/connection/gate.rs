//! The quarantine and the marker of a server.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Marked, SetTerms};
use leasehold_store::StoreError;
use redis::Value;

use super::multiplexed::Connection;
use super::step::Delivery;
use crate::codec::record::Bytes;
use crate::codec::script::{self, Gate, INIT, Request, TOUCH, micros};
use crate::errors;

impl Gate {
    /// For a server that runs as `run`.
    pub(crate) fn new(prefix: &str, run: &str, terms: &SetTerms) -> Self {
        let mut packed = Vec::new();
        script::push_number(&mut packed, micros(terms.quarantine));
        script::push_short(&mut packed, run);
        script::push_short(&mut packed, &terms.set);
        Self {
            marker: marker_key(prefix),
            terms: packed,
        }
    }

    /// Asks whether the server belongs to clients with these settings. `starts`: where
    /// it may have forgotten something, its quarantine starts now, and not only with
    /// the next request.
    pub(crate) async fn touch(
        &self,
        wire: &Arc<Connection>,
        starts: bool,
    ) -> Result<(), StoreError> {
        let starting: &[u8] = if starts { b"1" } else { b"0" };
        let arguments: [&[u8]; 2] = [&self.terms, starting];
        let call = Request::call(&TOUCH, &self.marker, &arguments);
        match wire.run(Delivery::Plain, &call).await?.value {
            Value::ServerError(error) if matches!(error.code(), "LHFOREIGN" | "NOPERM") => {
                Err(errors::of_server(&error))
            }
            // What keeps it from writing now may be over when somebody asks.
            Value::ServerError(error) => {
                tracing::debug!(error = error.code(), "cannot mark the server");
                Ok(())
            }
            value => read_left(&value).map(|(left, _)| {
                if starts && !left.is_zero() {
                    tracing::warn!(
                        ?left,
                        "this server may have lost locks; it grants nothing until its quarantine \
                         ends"
                    );
                }
            }),
        }
    }
}

/// The key of the server's marker.
fn marker_key(prefix: &str) -> String {
    format!("{prefix}boot")
}

/// Says that a server is new, whose keys have this prefix.
pub(crate) async fn mark(
    wire: &Arc<Connection>,
    prefix: &str,
    terms: &SetTerms,
) -> Result<Marked, StoreError> {
    let quarantine = micros(terms.quarantine).to_string();
    let arguments = [&*wire.server.run_id, &terms.set, &quarantine].map(str::as_bytes);
    let marker = marker_key(prefix);
    let call = Request::call(&INIT, &marker, &arguments);
    let (left, became) = read_left(&wire.run(Delivery::Plain, &call).await?.value)?;
    Ok(match became {
        1 => Marked::New,
        2 => Marked::Moved { left },
        _ if left.is_zero() => Marked::Already,
        _ => Marked::NotNew { left },
    })
}

/// What is left of a quarantine; and, where a server was to be marked, what it was
/// before: see `codec/lua/init.lua`.
pub(crate) fn read_left(value: &Value) -> Result<(Duration, u64), StoreError> {
    let left = |bytes: &[u8]| {
        let mut bytes = Bytes(bytes);
        let (kind, _, left) = (bytes.u8()?, bytes.time()?, bytes.number()?);
        (kind == 7).then(|| (Duration::from_micros(left), bytes.number().unwrap_or(0)))
    };
    match value {
        Value::BulkString(bytes) => left(bytes).ok_or_else(|| script::unreadable(value)),
        other => Err(script::unreadable(other)),
    }
}
