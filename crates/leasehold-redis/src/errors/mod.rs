//! Converts errors of servers and connections to store errors.

mod opening;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold_core::{StoreTime, written};
use leasehold_store::{ErrorKind, StoreError};
pub(super) use leasehold_store::{corrupt, refused, unavailable, unsupported};
use redis::{RedisError, ServerError, make_extension_error};

pub(crate) use self::opening::{Dialling, NO_ADDRESS, is_closed, of_closed, of_opening};
use self::table::{Made, Outlook, find};

/// The rule that gives a user just what leasehold needs, and what to add to it.
pub(super) const ACL: &str = "ACL SETUSER <name> on ><password> resetchannels ~leasehold:* &leasehold:* \
    -@all +eval +evalsha +time +mget +exists +type +set +setrange +del +hset +hget +hmget \
    +hgetall +hdel +pexpire +publish +subscribe +unsubscribe +scan +info +ping; \
    for a cluster add +cluster|slots +asking, for an audit log +xadd +xrange, \
    for a database other than 0 +select, for acknowledged grants +wait, or +waitaof +config|get";

/// The same in the classic layout.
const ACL_OF_CLASSIC: &str = "ACL SETUSER <name> on ><password> resetchannels ~<prefix>* \
    -@all +eval +evalsha +type +get +set +pttl +pexpire +del +scan +info +ping; \
    for a cluster add +cluster|slots +asking, for a database other than 0 +select";

/// The rule for this user, as the server names it, with this prefix.
pub(super) fn acl(user: &str, prefix: &str) -> String {
    let rule = ACL.replace("<name>", &tame(user));
    rule.replace("leasehold:", prefix)
}

/// What to add to the user's ACL rule, if the server names the commands that are missing.
pub(super) fn lacking(text: &str) -> Option<String> {
    // Redis 7 and Valkey, also for scripts: "User bob has no permissions to run the 'select'
    // command".
    let (_, rest) = text.split_once("has no permissions to run the '")?;
    let (command, _) = rest.split_once('\'')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "|_-.".contains(c);
    let known = !command.is_empty() && command.chars().all(plain);
    let command = command.to_ascii_lowercase();
    known.then(|| format!("add +{command} to the user's ACL rule"))
}

/// A user who may not run scripts.
pub(super) fn no_scripts(prefix: &str, classic: bool) -> StoreError {
    let rule = match classic {
        true => ACL_OF_CLASSIC.replace("<prefix>", prefix),
        false => acl("<name>", prefix),
    };
    refused(
        "the server forbids scripts: leasehold needs EVAL and EVALSHA",
        format!("this rule is enough: {rule}"),
    )
}

/// A user whose scripts may not run these commands.
pub(super) fn no_right(commands: &str, prefix: &str) -> StoreError {
    let (shown, rule) = (tame(commands), acl("<name>", prefix));
    refused(
        format!("scripts of this user may not run {shown} on keys that begin with {prefix:?}"),
        format!("this rule is enough: {rule}"),
    )
}

/// An error that the server answered.
pub(super) fn of_server(error: &ServerError) -> StoreError {
    refusal(error.code(), error.details().unwrap_or_default())
}

/// The same in the classic layout: whether the call is forbidden or a command of its script, another
/// rule is enough there.
pub(super) fn in_classic(error: StoreError) -> StoreError {
    match error.hint().is_some_and(|hint| hint.contains(ACL)) {
        true => error.with_hint(format!(
            "this rule is enough (with the prefix you use): {ACL_OF_CLASSIC}"
        )),
        false => error,
    }
}

/// An error that the server answered to a login. A command that it does not know it names with the
/// arguments, and one of these is the password.
pub(super) fn of_greeting(error: ServerError) -> RedisError {
    let said = error.details().and_then(|it| it.split_once(", with args"));
    match said.map(|(known, _)| known.to_owned()) {
        Some(known) => make_extension_error(error.code().to_owned(), Some(known)),
        None => error.into(),
    }
}

/// An error that the server answered when it was asked for the other nodes.
pub(super) fn of_topology(error: &ServerError) -> StoreError {
    let detail = error.details().unwrap_or_default();
    if detail.contains("cluster support disabled") {
        return refused("the server is not part of a cluster", "use redis:// for it");
    }
    of_server(error)
}

/// An error of the connection, or one that the server answered to a single command.
pub(super) fn of_connection(error: RedisError) -> StoreError {
    if error.kind() == redis::ErrorKind::RESP3NotSupported {
        return refusal("NOPROTO", "");
    }
    if let Some(code) = error.code() {
        return refusal(code, error.detail().unwrap_or_default());
    }
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return refusal("WRONGPASS", "");
    }
    let message = if error.is_timeout() {
        "the server did not answer in time; the outcome is unknown".to_owned()
    } else {
        let why = tame(&error.to_string());
        format!("the connection to the server failed ({why}); the outcome is unknown")
    };
    unavailable(message).with_source(error)
}

/// Whether we are refused, and it is about who we are: an outage may name one Sentinel of many that
/// says so.
pub(super) fn is_of_login(error: &StoreError) -> bool {
    let says = |code: &&str| error.message().contains(code);
    error.kind() == ErrorKind::Refused && ["WRONGPASS", "NOAUTH"].iter().any(says)
}

/// Whether a connection may have been refused for its protocol alone. `login`: its
/// greeting had a password, which a server that does not understand it has not seen.
pub(super) fn is_without_resp3(error: &RedisError, login: bool) -> bool {
    let named = |detail: &str| detail.to_ascii_uppercase().contains("HELLO");
    match error.code() {
        Some("NOPROTO") => true,
        Some("NOAUTH") => login,
        Some("ERR" | "NOPERM") => error.detail().is_some_and(named),
        _ => error.kind() == redis::ErrorKind::RESP3NotSupported,
    }
}

/// The code of an error, also of one within another.
pub(super) fn code(error: &ServerError) -> &str {
    find(error.code(), error.details().unwrap_or_default()).code
}

/// What a server says that is no primary, or none yet: nothing was carried out,
/// and another connection may lead to one that is.
pub(super) fn is_elsewhere(error: &ServerError) -> bool {
    matches!(
        code(error),
        "READONLY" | "REDIRECT" | "MASTERDOWN" | "LOADING"
    )
}

/// Whether a command cannot be used here at all, or not by us: everything that is
/// not the matter of a moment, of the login or of the key.
pub(super) fn is_forbidden(error: &ServerError) -> bool {
    let found = find(error.code(), error.details().unwrap_or_default());
    let passes = |answer: &table::Answer| answer.outlook == Outlook::Passes;
    !found.answer.is_some_and(passes)
        && !matches!(found.code, "MOVED" | "ASK" | "NOAUTH" | "WRONGPASS")
}

/// Whether a server has answered, and not only been silent: then it is not waited for unnoticed.
pub(super) fn is_answered(error: &StoreError) -> bool {
    error.kind() != ErrorKind::Unavailable || error.retry_after().is_some()
}

/// After so long what passes may have passed.
const AGAIN: Duration = Duration::from_secs(1);

/// A server that cannot do it now, and has carried out nothing.
fn passing(message: &str, hint: &str) -> StoreError {
    unavailable(message).with_hint(hint).with_retry_after(AGAIN)
}

/// How much of what a server says is passed on: it goes to logs and terminals.
const LONGEST: usize = 300;

/// The text of a server, shortened and made safe to show.
pub(super) fn tame(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect()
}

fn refusal(code: &str, detail: &str) -> StoreError {
    let (code, detail) = (&*tame(code), &*tame(detail));
    let found = find(code, detail);
    match found.answer.map(|answer| (answer.outlook, &answer.made)) {
        Some((Outlook::Passes, Made::Of(message, hint))) => passing(message, hint),
        Some((Outlook::Stays, Made::Of(message, hint))) => refused(*message, *hint),
        Some((_, Made::By(make))) => make(found.detail),
        // Lua's own error; where in a script the server has refused a command is `@user_script:1`.
        None if format!(" {detail}").contains(" user_script:") => damaged(),
        Some((_, Made::Verbatim)) | None => StoreError::new(
            ErrorKind::Refused,
            format!("the server answered {code} {detail}"),
        ),
    }
}

/// A refusal that passes by itself here.
pub(super) fn not_now(refused: StoreError) -> StoreError {
    passing(refused.message(), refused.hint().unwrap_or_default()).with_source(refused)
}

/// A server that takes no writes.
pub(super) fn read_only() -> StoreError {
    refusal("READONLY", "")
}

/// A server that has just been started.
pub(super) fn loading(address: &impl std::fmt::Display) -> StoreError {
    let error = refusal("LOADING", "");
    let message = format!("{} at {address}", error.message());
    error.with_message(message)
}

fn wrong_password(detail: &str) -> StoreError {
    let said = format!("WRONGPASS {detail}");
    let said = said.trim_end();
    refused(
        format!("the server refuses the user name or password ({said})"),
        "check the credentials; a password file is read again with each connection",
    )
}

fn no_permission(detail: &str) -> StoreError {
    refused(
        format!("the user may not do this: {detail}"),
        format!("this rule is enough (with the prefix you use): {ACL}"),
    )
}

fn closed_to_others(detail: &str) -> StoreError {
    if detail.contains("protected mode") {
        return refused(
            "the server is in protected mode and accepts only local connections (DENIED)",
            "set a password on the server, or `bind` it to a private address",
        );
    }
    refused(
        format!("the server accepts no connection from here (DENIED {detail})"),
        "check its configuration",
    )
}

/// A command that the server or a proxy does not have.
fn misses_command(detail: &str) -> StoreError {
    refused(
        format!("the server lacks a command: {detail}"),
        "use Redis 6.2 or later, or Valkey, without a proxy that hides commands",
    )
}

/// The key contains something that is not leasehold's.
pub(super) fn foreign(found: &str) -> StoreError {
    let found = tame(found);
    corrupt(
        format!("the key contains a {found} that is not leasehold's; nothing was changed"),
        "choose another prefix, or delete the key; if it is a lock of another library, \
         layout=classic shares it",
    )
}

/// A clock from which tokens and deadlines cannot be counted.
pub(super) fn clock_too_late(micros: u64) -> StoreError {
    let late = StoreTime(micros).check().err();
    let late = late.map_or_else(String::new, |late| format!(": {late}"));
    refused(
        format!("the server's clock is wrong{late}"),
        "correct the server's clock; nothing was changed, and the key works again after that",
    )
}

/// A record of a later version.
pub(super) fn newer(version: u8) -> StoreError {
    refused(
        format!(
            "the record of the key has format version {version}, which is newer than this \
         client"
        ),
        "upgrade leasehold on this host",
    )
}

/// A record of a set of servers, as earlier versions wrote it.
pub(super) fn earlier_vote() -> StoreError {
    refused(
        "the record of the key is a vote of format version 1, and this client reads format \
         version 2",
        "stop the clients of the earlier version, and wait until their TTLs are over and the \
         record has expired, or delete it; docs/stores/redlock.md says how to move",
    )
}

/// The name of something that is not ours.
pub(super) fn no_key() -> StoreError {
    StoreError::new(
        ErrorKind::Corrupt,
        "its name is not UTF-8, so it is not a key of leasehold",
    )
}

/// A record of ours that cannot be read.
pub(super) fn damaged() -> StoreError {
    corrupt(
        "the record of the key is damaged; nothing was changed",
        "inspect it, and delete it when nobody holds the key",
    )
}

/// No answer came in this time.
pub(super) fn silent(limit: Duration) -> StoreError {
    unavailable(format!("no answer within {}", written(limit)))
}

/// There is no connection to that place, so nothing can have been carried out.
pub(super) fn no_connection_to(place: &str) -> StoreError {
    unavailable(format!("there is no connection to {place}"))
        .with_hint("is the server running, and reachable from here?")
}

/// The same, with the last reason.
pub(super) fn no_connection(last: &StoreError) -> StoreError {
    let message = format!("there is no connection to the server: {last}");
    let error = last.clone().with_message(message);
    error.with_source(last.clone())
}
