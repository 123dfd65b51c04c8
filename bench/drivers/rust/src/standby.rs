//! One lock, taken and released on command: its process, or the one before it, is killed.

use serde_json::json;

use crate::locks::Peer;
use crate::record::Records;
use crate::{Arguments, Failure, next_word, now, say};

pub(crate) async fn stand_by(arguments: &Arguments, peer: &Peer) -> Result<(), Failure> {
    let records = Records::open(arguments)?;
    let mut lock = peer.lock("bench-0")?;
    let mut inside = None;
    loop {
        match &*next_word()? {
            "acquire" => {
                lock.acquire().await?;
                let entered = records.enter(0, arguments.first);
                say(&json!({"event": "acquired", "at_ns": entered.entered}))?;
                inside = Some(entered);
            }
            "release" => {
                if let Some(inside) = inside.take() {
                    records.leave(0, arguments.first, &inside);
                }
                let at = now();
                lock.release().await?;
                say(&json!({"event": "released", "at_ns": at}))?;
            }
            _ => return Ok(()),
        }
    }
}
