//! What is listed: the keys that are held or waited for.

use async_trait::async_trait;
use leasehold_store::StoreError;
use redis::Value;

use super::RedisStore;
use crate::codec::record::Record;
use crate::codec::script::Look;
use crate::connection::step::Delivery;
use crate::errors;
use crate::routing::names::{Looked, Named, as_key};

#[async_trait]
impl Named for RedisStore {
    async fn look(&self, name: &[u8]) -> Result<Looked, StoreError> {
        let key = match as_key(name) {
            Ok(key) => key,
            Err(error) => return Ok(Err(error)),
        };
        let look = Look {
            key: &self.redis_key(key.as_str()),
        };
        let (value, _) = self.route.ask(Delivery::Plain, &look).await?;
        match &value {
            // It is about the server or the user, and not about this key.
            Value::ServerError(error) if !matches!(error.code(), "LHTYPE" | "LHVERSION") => {
                Err(errors::of_server(error))
            }
            _ => Ok(Record::read(value).map(|(record, clock)| {
                let seen = record.look(clock);
                seen.capacity.is_some().then_some((key, seen))
            })),
        }
    }
}
