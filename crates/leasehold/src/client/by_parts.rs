//! Renews and releases a lease by its parts, without holding it.

use std::time::Duration;

use leasehold_core::{Release, ReleaseReply, Renew, RenewReply};

use super::Client;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::lease::{LeaseKind, Released};
use crate::parts::LeaseParts;
use crate::settings::check_ttl;
use crate::store::Verbs as _;

impl Client {
    /// Renews the lease of these parts, so that it ends `ttl` from now at the earliest.
    ///
    /// Its id, token and holder do not change. Use this for a lease whose holder has ended
    /// without releasing it, such as a step of a pipeline (not on `local:`, where a lock ends with
    /// its process), or to prolong it for a holder that cannot. To become the holder, with a
    /// [`Lease`](crate::Lease) that is renewed automatically, use
    /// [`Mutex::adopt`](crate::Mutex::adopt).
    ///
    /// In a quarantine of a Redis server it may succeed although the lease was released: the server
    /// may have lost the release. Nobody else is granted the key then.
    ///
    /// # Errors
    /// `Lost`: the claim no longer exists, or another process has taken it over. `Invalid`: the
    /// TTL is out of bounds. Otherwise the same as [`Client::inspect`].
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the lease was renewed; a retry is safe.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    /// let client = leasehold::connect("memory:").await?;
    /// let lease = client.mutex("deploy")?.lock().await?;
    /// let saved = lease.parts()?; // serialise it, and read it in another process
    /// client.renew_by_parts(&saved, Duration::from_secs(600)).await?;
    /// assert_eq!(client.release_by_parts(&saved).await?, leasehold::Released::Held);
    /// assert!(!client.mutex("deploy")?.is_locked().await?);
    /// # drop(lease);
    /// # Ok(()) }
    /// ```
    pub async fn renew_by_parts<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let key = parts.key();
        let failed = Operation::Renew.failed_on(key);
        let lost = |why| failed(StoreError::new(ErrorKind::Lost, why));
        check_ttl(ttl).map_err(|invalid| failed(invalid.into()))?;
        let renew = Renew::new(parts.claim().clone(), ttl);
        let session = &self.session;
        let answer = session.ask(session.store.renew(key, &renew)).await;
        match answer.map_err(&failed)?.reply {
            RenewReply::Standing(standing) if standing.holds() => Ok(()),
            // It was passed on, and the release of the lease ahead in its run is under way.
            RenewReply::Standing(standing) if standing.token == Some(parts.token()) => Ok(()),
            RenewReply::Superseded | RenewReply::Taken => Err(lost(
                "another process has taken the lease over, or its id was replaced",
            )),
            // Where the grant was lost, as in a fail-over, the claim waits again.
            RenewReply::Standing(_) | RenewReply::Gone | RenewReply::Mismatch { .. } => Err(lost(
                "the lease has ended: it was released or broken, or it has expired",
            )),
        }
    }

    /// Releases the lease of these parts. A holder that is still running notices it at its next
    /// renewal or release.
    ///
    /// # Errors
    /// Same as [`Client::inspect`].
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the lease was released; a retry is safe.
    ///
    /// # Examples
    /// See [`Self::renew_by_parts`].
    pub async fn release_by_parts<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
    ) -> Result<Released, Error> {
        let key = parts.key();
        let failed = Operation::Release.failed_on(key);
        let release = Release {
            id: parts.claim().clone(),
            hand_off: true,
            settled: false,
            unused: false,
        };
        let session = &self.session;
        let answer = session.ask(session.store.release(key, &release)).await;
        Ok(match answer.map_err(failed)?.reply {
            ReleaseReply::Released { held: true } => Released::Held,
            // A claim that only waits has lost its grant, as in a fail-over.
            ReleaseReply::Released { held: false } | ReleaseReply::Absent => Released::AlreadyGone,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::{Claim, ClaimId, Key, Mode};
    use leasehold_store::memory::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_claim_that_only_waits_was_no_lease() {
        let (store, key) = (MemoryStore::new(), Key::new("k").unwrap());
        let ids = [1, 2].map(ClaimId::from_random);
        for id in &ids {
            let claim = Claim::new(id.clone(), Mode::EXCLUSIVE, Duration::from_secs(60));
            store.claim(&key, &claim).await.unwrap();
        }
        let client = Client::builder().with_store(Arc::new(store));
        let client = client.connect().await.unwrap();
        let [holds, waits] = ids.map(|id| {
            let claim = id.expose();
            let written = format!(
                r#"{{"key":"k","claim":{claim:?},"version":0,"token":1,"mode":"Exclusive","handed_over":false}}"#
            );
            serde_json::from_str::<LeaseParts>(&written).unwrap()
        });
        let waited = client.release_by_parts(&waits).await.unwrap();
        assert_eq!(waited, Released::AlreadyGone);
        let held = client.release_by_parts(&holds).await.unwrap();
        assert_eq!(held, Released::Held);
    }
}
