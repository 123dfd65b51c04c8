//! Once nothing is disturbed any more, every client gets every key in time.

use std::time::Duration;

use super::Invariant;
use crate::simulate::book::Fact;

pub(super) struct Served;

impl Invariant for Served {
    fn name(&self) -> &'static str {
        "everybody is served in the end"
    }

    fn see(&mut self, _: Duration, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Served {
                client,
                key,
                within: None,
            } => Err(format!(
                "client {client} did not get {key}, though nothing was disturbed any more"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::judge;
    use super::*;

    #[test]
    fn who_is_not_served_is_found() {
        let served = |within| {
            judge(
                Served,
                &[(
                    0,
                    Fact::Served {
                        client: 1,
                        key: "k",
                        within,
                    },
                )],
            )
        };
        assert!(served(Some(Duration::ZERO)).is_ok());
        assert!(served(None).is_err());
    }
}
