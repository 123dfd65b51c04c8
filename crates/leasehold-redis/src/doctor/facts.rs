//! The facts about a server: its configuration and measurements, without judgement.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_store::StoreError;
use leasehold_store::trial::Trial;

use crate::connection::rights::Rights;
use crate::options::RedisOptions;
use crate::options::acknowledge::AcknowledgedBy;
use crate::options::restart::Restart;

/// What a server is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// It keeps all locks.
    #[default]
    Alone,
    /// A primary of a cluster, which keeps some.
    Node,
    /// One of several independent servers, which has a vote on each.
    Voter,
}

/// One server. What could not be found out is absent.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) part: Part,
    /// How its clients reach and use it.
    pub(super) options: RedisOptions,
    /// The user we are.
    pub(super) user: Option<String>,
    /// Why it could not be reached.
    pub(super) unreachable: Option<StoreError>,
    /// What it lets us do; an error if that is too little.
    pub(super) rights: Option<Result<Rights, StoreError>>,
    /// The fields of `INFO`.
    pub(super) info: HashMap<String, String>,
    /// The users; absent where only administrators may know.
    pub(super) users: Option<Users>,
    /// The settings that `CONFIG GET` gave away.
    pub(super) config: HashMap<String, String>,
    pub(super) clock: Option<Clock>,
    /// How long a round trip takes: the median, and all but one in a hundred.
    pub(super) latency: Option<[Duration; 2]>,
    /// What came of using a lock.
    pub(super) trial: Option<Trial>,
    /// Whether it votes, or grants, as far as its boot marker says.
    pub(super) vote: Option<Vote>,
    /// Whether it is of a set without quarantine.
    pub(super) votes_at_once: bool,
}

/// What `ACL LIST` tells of the users besides `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Users {
    /// How many there are.
    pub(super) others: usize,
    /// The names of those who may publish on all channels and not write all keys.
    pub(super) on_all_channels: Vec<String>,
}

/// The server's time of day against ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// The server's less ours, in microseconds.
    pub(super) ahead: i64,
    /// How far that may be wrong: half a round trip.
    pub(super) within: Duration,
    /// Whether it advanced between two readings.
    pub(super) advances: bool,
}

/// What a boot marker says. One server on its own grants where one of several votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vote {
    /// It has no marker: it is new, or has lost its data.
    Unmarked,
    /// It was restarted, and has not been asked since.
    Restarted,
    /// It votes again after so long.
    After(Duration),
    /// It votes.
    Now,
    /// It belongs to clients with other settings.
    Foreign,
}

impl Facts {
    /// A field of `INFO`; empty if there is none.
    pub(super) fn info(&self, field: &str) -> &str {
        self.info.get(field).map_or("", String::as_str)
    }

    /// The same as a number.
    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.info(field).parse().ok()
    }

    /// A setting, if it could be read.
    pub(super) fn config(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(String::as_str)
    }

    /// Whether it grants nothing for a while once it may have lost its data.
    pub(super) fn is_quarantined(&self) -> bool {
        let votes = self.part == Part::Voter && !self.options.is_classic();
        (votes && !self.votes_at_once) || self.options.restart != Restart::Trust
    }

    /// Who must have grants and renewals before they count.
    pub(super) fn acknowledged_by(&self) -> Option<AcknowledgedBy> {
        let policy = self.options.acknowledge;
        policy.filter(|it| it.renewals).map(|it| it.by)
    }

    /// The replicas that are connected: how each is called, whether it is in
    /// step, and for how many seconds nothing was heard of it.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        let fields = (0..).map(|number| self.info(&format!("slave{number}")));
        let fields = fields.take_while(|field| !field.is_empty());
        fields.map(Replica::read).collect()
    }
}

/// A replica, as its primary sees it.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    /// Host and port.
    pub(super) name: String,
    pub(super) online: bool,
    /// Seconds.
    pub(super) silent_for: u64,
}

impl Replica {
    /// Reads `ip=…,port=…,state=online,offset=…,lag=0`.
    fn read(line: &str) -> Self {
        let get = |name: &str| {
            let mut fields = line.split(',').filter_map(|part| part.split_once('='));
            fields.find_map(|(field, value)| (field == name).then_some(value))
        };
        let text = |name| get(name).unwrap_or_default();
        Self {
            name: format!("{}:{}", text("ip"), text("port")),
            online: text("state") == "online",
            silent_for: text("lag").parse().unwrap_or(0),
        }
    }
}
