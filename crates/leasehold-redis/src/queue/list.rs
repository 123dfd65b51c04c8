//! What is listed: the keys that are held or waited for.

use async_trait::async_trait;
use leasehold_store::StoreError;
use redis::Value;

use super::RedisStore;
use crate::codec::record;
use crate::errors;
use crate::routing::names::{Looked, Named, as_key};

#[async_trait]
impl Named for RedisStore {
    async fn look(&self, name: &[u8]) -> Result<Looked, StoreError> {
        let key = match as_key(name) {
            Ok(key) => key,
            Err(error) => return Ok(Err(error)),
        };
        let value = self.record(&key).await?;
        match &value {
            // It is about the server or the user, and not about this key.
            Value::ServerError(error) if !matches!(error.code(), "LHTYPE" | "LHVERSION") => {
                Err(errors::of_server(error))
            }
            _ => Ok(record::look(value).map(|it| it.capacity.is_some().then_some((key, it)))),
        }
    }
}
