//! Permissions of the client at a server, checked for each new connection.
//!
//! ACLs, proxies and managed servers can forbid commands. All permissions are checked in one
//! round trip, together with `INFO`. Each missing permission is logged once. The client works
//! without it in degraded mode, if that is safe (`docs/adr/0022-rights.md`).

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use futures_util::future::join3;
use leasehold_store::random::random_u128;
use leasehold_store::{ErrorKind, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerError, Value};

use super::value::text_of;
use crate::codec::script;
use crate::codec::script::Script;
use crate::lock::lock;
use crate::refusal;

/// What the scripts of a lock run on its key.
pub(crate) const OF_LOCKS: &[&str] = &[
    "TIME", "MGET", "EXISTS", "TYPE", "SET", "SETRANGE", "DEL", "HSET", "HGET", "HMGET", "HGETALL",
    "HDEL", "PEXPIRE",
];

/// The same, with an audit log.
pub(crate) const OF_AUDITED_LOCKS: &[&str] = &[
    "TIME", "MGET", "EXISTS", "TYPE", "SET", "SETRANGE", "DEL", "HSET", "HGET", "HMGET", "HGETALL",
    "HDEL", "PEXPIRE", "XADD",
];

/// What the scripts of a vote run on theirs.
pub(crate) const OF_VOTES: &[&str] = &["TIME", "MGET", "EXISTS", "TYPE", "SET", "PEXPIRE"];

/// The same, with an audit log.
pub(crate) const OF_AUDITED_VOTES: &[&str] =
    &["TIME", "MGET", "EXISTS", "TYPE", "SET", "PEXPIRE", "XADD"];

/// What of `INFO` is asked for: `clients` is the doctor's.
const SECTIONS: [&str; 6] = [
    "server",
    "replication",
    "memory",
    "cluster",
    "persistence",
    "clients",
];

static PROBE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../codec/lua/rights.lua").to_owned()));

/// How scripts are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sending {
    /// By hash; the server is told those that it does not know by `SCRIPT LOAD`.
    #[default]
    ByHash,
    /// By hash; it is told by `EVAL`.
    ByHashOrInFull,
    /// By `EVAL`, each time.
    InFull,
    /// Not at all: transactions do what scripts would.
    Never,
}

/// Something that is forbidden here, and can be done without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MissingPermission {
    Resp3,
    Subscribe,
    Publish,
    Hashes,
    Scripts,
    Info,
}

impl MissingPermission {
    /// What is missing, what that costs, and what would do, with `<prefix>` in it.
    const fn about(self) -> (&'static str, &'static str, &'static str) {
        let deaf = "clients poll for their grants; a dead waiter delays the others by its waiter \
         TTL";
        let scripts = "add +evalsha +script|load to the user's ACL rule";
        match self {
            Self::Resp3 => (
                "the server does not speak RESP3",
                deaf,
                "use Redis 6.2 or later, or Valkey, without a proxy that speaks RESP2 only",
            ),
            Self::Subscribe => (
                "SUBSCRIBE is forbidden",
                deaf,
                "add +subscribe +unsubscribe &<prefix>* to the user's ACL rule",
            ),
            Self::Publish => (
                "PUBLISH is forbidden",
                deaf,
                "add +publish &<prefix>* to the user's ACL rule",
            ),
            Self::Hashes => (
                "scripts cannot be sent by their hash",
                "each request contains its whole script, some kilobytes",
                scripts,
            ),
            Self::Scripts => (
                "scripts are forbidden",
                "locks are changed by transactions, which are as safe and take one more round trip",
                scripts,
            ),
            Self::Info => (
                "INFO is forbidden",
                "version, role, memory policy and restarts are unknown; a dead waiter delays \
                 others by its waiter TTL",
                "add +info to the user's ACL rule",
            ),
        }
    }

    pub(crate) fn found(self) -> &'static str {
        self.about().0
    }

    pub(crate) fn cost(self) -> &'static str {
        self.about().1
    }

    pub(crate) fn remedy(self, prefix: &str) -> String {
        self.about().2.replace("<prefix>", prefix)
    }
}

/// The missing permissions that were already logged.
#[derive(Debug, Default)]
pub(crate) struct ReportedMissing(Mutex<Vec<MissingPermission>>);

impl ReportedMissing {
    /// Logs missing permissions, each once.
    pub(crate) fn say(&self, rights: &Rights, url: &str, prefix: &str) {
        let mut said = lock(&self.0);
        for missing in &rights.missing {
            if !said.contains(missing) {
                said.push(*missing);
                let (found, cost, remedy) =
                    (missing.found(), missing.cost(), missing.remedy(prefix));
                tracing::warn!(%url, "{found}, so {cost}: {remedy}");
            }
        }
    }
}

/// The permissions of the client at a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) sending: Sending,
    /// What it does not.
    pub(crate) missing: Vec<MissingPermission>,
    /// Whether `PUBLISH` counted the one listener that there was.
    pub(crate) counts: bool,
}

impl Rights {
    /// Whether pushes can be received and sent.
    pub(crate) fn push(&self) -> bool {
        let needed = [
            MissingPermission::Resp3,
            MissingPermission::Subscribe,
            MissingPermission::Publish,
        ];
        !self.missing.iter().any(|missing| needed.contains(missing))
    }
}

/// What to check at a server.
pub(crate) struct Question<'a> {
    pub(crate) prefix: &'a str,
    /// Which commands the scripts run.
    pub(crate) commands: &'static [&'static str],
    /// Whether transactions do what the scripts do, where these are forbidden.
    pub(crate) does_without: bool,
    pub(crate) resp3: bool,
    /// The channel of pushes, if there is one.
    pub(crate) channel: Option<&'a str>,
}

/// The result of the check.
pub(crate) struct Findings {
    /// The fields of `INFO`; none where it is forbidden.
    pub(crate) info: HashMap<String, String>,
    /// Refused where no script can be run.
    pub(crate) rights: Result<Rights, StoreError>,
}

/// Checks the permissions at a server, in one round trip; falls back to EVAL where EVALSHA is
/// denied.
pub(crate) async fn find(
    connection: &mut MultiplexedConnection,
    question: &Question<'_>,
) -> Result<Findings, StoreError> {
    let mut pipeline = redis::pipe();
    for section in SECTIONS {
        pipeline.cmd("INFO").arg(section);
    }
    pipeline.cmd("SCRIPT").arg("LOAD").arg(&PROBE.text);
    pipeline.add_command(question.probe("EVALSHA", &PROBE.hash));
    let channel = question.channel.filter(|_| question.resp3);
    if let Some(channel) = channel {
        pipeline.cmd("PUBLISH").arg(channel).arg("");
    }
    let (subscribed, answers) = ask(connection, &pipeline, channel).await?;
    let (sections, rest) = answers.split_at(SECTIONS.len().min(answers.len()));
    let info = read_info(sections)?;
    let [load, by_hash, ..] = rest else {
        return Err(script::unreadable(&Value::Nil));
    };

    let mut rights = Rights::default();
    if info.is_empty() {
        rights.missing.push(MissingPermission::Info);
    }
    if question.channel.is_some() && !question.resp3 {
        rights.missing.push(MissingPermission::Resp3);
    }
    if subscribed.is_err() {
        rights.missing.push(MissingPermission::Subscribe);
    }
    match rest.get(2) {
        Some(Value::ServerError(error)) if is_forbidden(error) => {
            rights.missing.push(MissingPermission::Publish);
        }
        Some(count) => rights.counts = matches!(count, Value::Int(1)),
        None => {}
    }
    let sending = match question.scripts(connection, load, by_hash).await? {
        Err(_) if question.does_without => Ok(Sending::Never),
        sending => sending,
    };
    let rights = sending.map(|sending| {
        rights.sending = sending;
        match sending {
            Sending::InFull => rights.missing.push(MissingPermission::Hashes),
            Sending::Never => rights.missing.push(MissingPermission::Scripts),
            Sending::ByHash | Sending::ByHashOrInFull => {}
        }
        rights
    });
    Ok(Findings { info, rights })
}

impl Question<'_> {
    /// Asks what scripts may do, as one that is sent by `verb`.
    fn probe(&self, verb: &str, script: &str) -> Cmd {
        let mut probe = redis::cmd(verb);
        probe.arg(script).arg(0);
        // Nobody else's: where only trying helps, it is tried.
        let key = random_u128();
        probe.arg(format!("{}lock:{key:032x}", self.prefix));
        probe.arg(self.commands);
        probe
    }

    /// How scripts are to be sent, if they can be.
    async fn scripts(
        &self,
        connection: &mut MultiplexedConnection,
        load: &Value,
        by_hash: &Value,
    ) -> Result<Result<Sending, StoreError>, StoreError> {
        let refused = |value: &Value| matches!(value, Value::ServerError(e) if is_forbidden(e));
        if !refused(load) && !refused(by_hash) {
            return Ok(allowed(by_hash, self.prefix).map(|()| Sending::ByHash));
        }
        // Asked only now: a user who need not have it is not to be reported for it.
        let probe = self.probe("EVAL", &PROBE.text);
        let in_full = connection.send_packed_command(&probe).await;
        let in_full = in_full.map_err(refusal::of_connection)?;
        if refused(&in_full) {
            return Ok(Err(refusal::no_scripts(self.prefix)));
        }
        let sending = if refused(by_hash) {
            Sending::InFull
        } else {
            Sending::ByHashOrInFull
        };
        Ok(allowed(&in_full, self.prefix).map(|()| sending))
    }
}

/// Whether scripts may run all their commands: a script cannot roll back if a command is denied.
pub(crate) fn allowed(answer: &Value, prefix: &str) -> Result<(), StoreError> {
    let Value::Array(forbidden) = answer else {
        // It cannot say now, or not at all.
        return Ok(());
    };
    let forbidden: Vec<_> = forbidden.iter().filter_map(text_of).collect();
    if forbidden.is_empty() {
        Ok(())
    } else {
        Err(refusal::no_right(&forbidden.join(", "), prefix))
    }
}

/// Sends all of it at once: the inbox is open while `PUBLISH` counts, and closed
/// right after it. Says whether it could be opened.
async fn ask(
    connection: &mut MultiplexedConnection,
    pipeline: &Pipeline,
    channel: Option<&str>,
) -> Result<(Result<(), StoreError>, Vec<Value>), StoreError> {
    let count = pipeline.len();
    let Some(channel) = channel else {
        let answers = connection.send_packed_commands(pipeline, 0, count).await;
        return Ok((Ok(()), answers.map_err(refusal::of_connection)?));
    };
    let (mut ear, mut lid) = (connection.clone(), connection.clone());
    // Polled in this order, and so written in this order.
    let (opened, answers, closed) = join3(
        ear.subscribe(channel),
        connection.send_packed_commands(pipeline, 0, count),
        lid.unsubscribe(channel),
    )
    .await;
    let answers = answers.map_err(refusal::of_connection)?;
    forbidden_or_lost(closed)?.ok();
    Ok((forbidden_or_lost(opened)?, answers))
}

/// What a command that opens or closes the inbox was answered: an error within if
/// it is forbidden, without if the connection is at fault.
pub(crate) fn forbidden_or_lost(
    answer: RedisResult<()>,
) -> Result<Result<(), StoreError>, StoreError> {
    let Err(error) = answer else {
        return Ok(Ok(()));
    };
    let detail = error.detail().unwrap_or_default();
    let definite = error
        .code()
        .is_some_and(|code| refusal::is_forbidden(code, detail));
    let error = refusal::of_connection(error);
    if definite { Ok(Err(error)) } else { Err(error) }
}

pub(crate) fn read_info(sections: &[Value]) -> Result<HashMap<String, String>, StoreError> {
    let mut info = HashMap::new();
    for section in sections {
        match section {
            Value::ServerError(error) if is_forbidden(error) => continue,
            Value::ServerError(error) => return Err(refusal::of_server(error)),
            _ => {}
        }
        let text = text_of(section).ok_or_else(|| script::unreadable(section))?;
        info.extend(fields(&text));
    }
    Ok(info)
}

/// The fields of an answer to `INFO`.
pub(crate) fn fields(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines()
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, value)| (name.to_owned(), refusal::tame(value)))
}

/// As [`refusal::is_forbidden`].
fn is_forbidden(error: &ServerError) -> bool {
    refusal::is_forbidden(error.code(), error.details().unwrap_or_default())
}

/// The error of a feature that needs the run id of the server process.
pub(crate) fn no_run_id(what: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Unsupported,
        format!("the server does not report its run id, so {what}"),
    )
    .with_hint("add +info to the user's ACL rule, and connect without a proxy")
}
