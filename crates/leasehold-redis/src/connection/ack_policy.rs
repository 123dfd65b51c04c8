//! Acknowledgement of writes by replicas and disks: `WAIT` and `WAITAOF`.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_store::{Acknowledged, ErrorKind, StoreError};
use redis::{Cmd, Value};

use super::socket::Socket;
use super::value::field;
use crate::codec::script::unreadable;
use crate::errors;
use crate::options::acknowledge::{Acknowledge, AcknowledgedBy};

/// What is asked of one primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    disk: bool,
    replicas: u32,
    pub(crate) within: Duration,
}

impl AckPolicy {
    fn name(&self) -> &'static str {
        if self.disk { "WAITAOF" } else { "WAIT" }
    }

    /// Waits for so many replicas, and the disk if there must be one.
    fn wait(&self, disks: u32, replicas: u32, millis: u128) -> Cmd {
        let mut wait = redis::cmd(self.name());
        wait.arg(self.disk.then_some(disks));
        wait.arg(replicas).arg(millis);
        wait
    }

    /// The command that waits, on the connection that has written.
    pub(crate) fn command(&self) -> Cmd {
        self.wait(1, self.replicas, self.within.as_millis().max(1))
    }

    /// What it has answered.
    pub(crate) fn read(&self, answer: &Value) -> Result<Acknowledged, StoreError> {
        let number = |value: &Value| match value {
            Value::Int(count) => u32::try_from(*count).ok(),
            _ => None,
        };
        // The script has run: what it wrote stands.
        let unacknowledged = |refused: StoreError| {
            let why = format!("the write was not acknowledged: {refused}");
            Err(errors::unavailable(why)
                .with_hint_of(&refused)
                .with_source(refused))
        };
        let (disk, replicas) = match answer {
            Value::Array(both) if self.disk && both.len() == 2 => {
                (number(&both[0]).map(|disk| disk > 0), number(&both[1]))
            }
            count => (None, number(count)),
        };
        match replicas {
            Some(replicas) if disk.is_some() == self.disk => Ok(Acknowledged::new(
                replicas,
                self.replicas,
                disk,
                self.within,
            )),
            _ => unacknowledged(unreadable(answer)),
        }
    }

    /// Finds out whether the server can wait at all, and for what is asked.
    pub(crate) async fn probe(
        &self,
        connection: &Socket,
        info: &HashMap<String, String>,
    ) -> Result<(), StoreError> {
        let name = self.name();
        // Asks for nothing, so that it is answered at once.
        let answered = connection.ask(&self.wait(0, 0, 0)).await;
        if let Value::ServerError(error) = answered.map_err(errors::of_connection)? {
            let why = errors::of_server(&error);
            if why.kind() == ErrorKind::Unavailable {
                return Err(why);
            }
            let message = format!("the `acknowledge` policy needs {name}, which failed: {why}");
            let refused = StoreError::new(ErrorKind::Refused, message);
            return Err(refused.with_hint(match (error.code(), self.disk) {
                ("NOPERM", true) => "add +waitaof +config|get to the user's ACL rule",
                ("NOPERM", false) => "add +wait to the user's ACL rule",
                (_, true) => {
                    "WAITAOF needs Redis 7.2 or later; without it use acknowledge=<replicas>"
                }
                (_, false) => "leave `acknowledge` out, or use a server that allows WAIT",
            }));
        }
        if !self.disk {
            return Ok(());
        }
        let refused = |what: &str, hint: &str| {
            Err(errors::refused(
                format!("the `acknowledge` policy needs the disk, and the server has {what}"),
                hint,
            ))
        };
        if info.get("aof_enabled").is_some_and(|it| it == "0") {
            return refused("appendonly no", "set appendonly to yes");
        }
        let mut config = redis::cmd("CONFIG");
        let answer = connection.ask(config.arg("GET").arg("appendfsync")).await;
        // A user who may not ask finds out by the time-out.
        let policy = field(&answer.map_err(errors::of_connection)?, "appendfsync");
        match policy.as_deref() {
            Some("no") => refused(
                "appendfsync no, so it does not report when data is on disk",
                "set appendfsync to everysec or always",
            ),
            _ => Ok(()),
        }
    }
}

impl Acknowledge {
    /// What is asked of a primary that had this number of replicas at connect.
    pub(crate) fn policy(&self, connected: u32) -> AckPolicy {
        let (disk, replicas) = match self.by {
            AcknowledgedBy::Replicas(replicas) => (false, replicas),
            AcknowledgedBy::Majority => (false, connected / 2 + 1),
            AcknowledgedBy::Disk { replicas } => (true, replicas),
        };
        AckPolicy {
            disk,
            replicas,
            within: self.timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half_of_the_replicas() {
        let majority = Acknowledge::by(AcknowledgedBy::Majority);
        for (connected, wanted) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(majority.policy(connected).replicas, wanted, "{connected}");
        }
    }

    #[test]
    fn counts_are_compared() {
        let policy = Acknowledge::replicas(2).policy(0);
        assert!(!policy.read(&Value::Int(1)).unwrap().is_enough());
        assert!(policy.read(&Value::Int(2)).unwrap().is_enough());
        // It stands at the server, and is given back.
        let odd = policy.read(&Value::Nil).unwrap_err();
        assert_eq!(odd.kind(), ErrorKind::Unavailable, "{odd}");
        let disk = Acknowledge::by(AcknowledgedBy::Disk { replicas: 1 }).policy(0);
        let both = |own, others| Value::Array(vec![Value::Int(own), Value::Int(others)]);
        assert!(disk.read(&both(1, 1)).unwrap().is_enough());
        assert!(!disk.read(&both(0, 1)).unwrap().is_enough());
        assert!(!disk.read(&both(1, 0)).unwrap().is_enough());
        assert!(disk.read(&Value::Int(1)).is_err());
    }
}
