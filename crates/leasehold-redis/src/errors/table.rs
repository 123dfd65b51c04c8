//! All answers of a server that are errors, each with what becomes of it.
//!
//! `docs/stores/one-primary.md` has the same table. No other code decides what passes.

use leasehold_store::StoreError;

use super::{
    clock_too_late, closed_to_others, corrupt, earlier_vote, foreign, misses_command, newer,
    no_permission, refused, wrong_password,
};

/// Whether waiting helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The server carried out nothing, and will again without a change of the client: a fail-over
    /// ends, memory is free again, an administrator has acted. It is asked again.
    Passes,
    /// It stays until somebody changes the client, its rights or the key. It ends what was asked.
    Stays,
}

use Outlook::{Passes, Stays};

/// How the error is made.
pub(super) enum Made {
    /// From the message and the hint.
    Of(&'static str, &'static str),
    /// From what the server said after the code.
    By(fn(&str) -> StoreError),
    /// With the words of the server: leasehold sends no command that is answered like this.
    Verbatim,
}

use Made::{By, Of, Verbatim};

/// One answer.
pub(super) struct Answer {
    /// Its first word.
    pub(super) code: &'static str,
    /// What the rest contains, where the first word is not enough.
    pub(super) part: &'static str,
    pub(super) outlook: Outlook,
    pub(super) made: Made,
}

const fn answer(code: &'static str, outlook: Outlook, made: Made) -> Answer {
    part(code, "", outlook, made)
}

const fn part(code: &'static str, part: &'static str, outlook: Outlook, made: Made) -> Answer {
    Answer {
        code,
        part,
        outlook,
        made,
    }
}

const ELSEWHERE: &str = "the server is a node of a Redis Cluster and does not keep this key";
const USE_CLUSTER: &str = "for a cluster write redis-cluster://, with one or more of its nodes";
const FAILS_OVER: &str = "the fail-over of the server is in progress";
const WAIT: &str = "wait until it is over; the server's log says more";
const TO_PRIMARY: &str = "connect to the primary; after a fail-over, to the new one";

/// The errors of Redis 8 and Valkey 9, and those of leasehold's scripts. The first that fits
/// counts. An answer that is not here stays: nothing is known of it, so nothing is promised.
#[rustfmt::skip] // A row an answer.
pub(super) const ANSWERS: &[Answer] = &[
    answer("NOREPLICAS", Passes, Of(
        "the server has too few replicas and refuses writes",
        "wait until a replica follows it, as after a fail-over; see its min-replicas-to-write",
    )),
    answer("READONLY", Passes, Of("the server is a read-only replica", TO_PRIMARY)),
    answer("REDIRECT", Passes, Of("the server is a replica and names another primary", TO_PRIMARY)),
    answer("MASTERDOWN", Passes, Of(
        "the server is a replica without a connection to its primary",
        TO_PRIMARY,
    )),
    answer("NOMASTERLINK", Passes, Of(FAILS_OVER, WAIT)),
    answer("INPROG", Passes, Of(FAILS_OVER, WAIT)),
    answer("NOGOODSLAVE", Passes, Of(
        "no replica can be promoted now",
        "check the replicas of the primary",
    )),
    answer("NOQUORUM", Passes, Of(
        "too few Sentinels can be reached",
        "check that the Sentinels are running and reach each other",
    )),
    answer("UNBLOCKED", Passes, Of(
        "the server stopped the request, as it does when it becomes a replica",
        TO_PRIMARY,
    )),
    answer("LOADING", Passes, Of(
        "the server is still loading its data (LOADING)",
        "wait until it has started",
    )),
    answer("BUSY", Passes, Of(
        "the server is busy with a script of another client",
        "wait until the script has ended; SCRIPT KILL and FUNCTION KILL end it",
    )),
    answer("UNKILLABLE", Passes, Of(
        "the server is busy with a script that cannot be ended",
        "wait until the script has ended",
    )),
    answer("MISCONF", Passes, Of(
        "the server cannot write its data to disk and refuses writes",
        "check its log and its disk; see stop-writes-on-bgsave-error",
    )),
    answer("OOM", Passes, Of(
        "the server is out of memory",
        "raise its maxmemory, or delete data that is not needed",
    )),
    answer("IOERR", Passes, Of("the server could not reach another server", WAIT)),
    answer("NOSCRIPT", Passes, Of(
        "the server forgets the scripts of leasehold (NOSCRIPT)",
        "does a program call SCRIPT FLUSH? are there several servers behind one address?",
    )),
    part("ERR", "max number of clients", Passes, Of(
        "the server has reached its limit of clients (maxclients)",
        "raise maxclients, or find the programs that leave connections open",
    )),
    answer("CLUSTERDOWN", Passes, Of(
        "the Redis Cluster does not serve this key now",
        "check CLUSTER INFO on one of its nodes",
    )),
    answer("TRYAGAIN", Passes, Of(
        "the keys are being moved to another node of the Redis Cluster",
        "wait until they have moved",
    )),
    answer("MOVED", Stays, Of(ELSEWHERE, USE_CLUSTER)),
    answer("ASK", Stays, Of(ELSEWHERE, USE_CLUSTER)),
    answer("CROSSSLOT", Stays, Of(ELSEWHERE, USE_CLUSTER)),
    answer("NOAUTH", Stays, Of(
        "the server asks for a password, and none was given (NOAUTH)",
        "log in: redis://user:password@host, or a password file",
    )),
    answer("WRONGPASS", Stays, By(wrong_password)),
    answer("NOPERM", Stays, By(no_permission)),
    answer("DENIED", Stays, By(closed_to_others)),
    answer("NOPROTO", Stays, By(|_| refused(
        "the server does not speak RESP3",
        "use Redis 6.2 or later, or Valkey, without a proxy that speaks RESP2 only",
    ))),
    answer("WRONGTYPE", Stays, By(|_| corrupt(
        "the key contains data of another type; nothing was changed",
        "choose another prefix, or delete the key",
    ))),
    // A command that a script may not run, which is said in many ways.
    part("ERR", "has no permissions to", Stays, By(no_permission)),
    part("ERR", "can't run this command", Stays, By(no_permission)),
    part("ERR", "can't access", Stays, By(no_permission)),
    part("ERR", "ACL failure", Stays, By(no_permission)),
    part("ERR", "Unknown Redis command", Stays, By(no_permission)),
    part("ERR", "called from script", Stays, By(no_permission)),
    part("ERR", "not allowed from script", Stays, By(no_permission)),
    part("ERR", "unknown command", Stays, By(misses_command)),
    part("ERR", "unknown subcommand", Stays, By(misses_command)),
    part("ERR", "DB index", Stays, By(|_| refused(
        "the server has no database of this number",
        "use a lower one, or raise `databases` at the server",
    ))),
    answer("LHTYPE", Stays, By(foreign)),
    answer("LHFOREIGN", Stays, By(|_| refused(
        "the server belongs to another set of servers, or to clients with other settings",
        "use the same servers, max_ttl and quarantine in all clients; `leasehold init` moves a \
         server, or changes them",
    ))),
    answer("LHCLOCK", Stays, By(|micros| {
        clock_too_late(micros.parse().unwrap_or(u64::MAX))
    })),
    answer("LHVERSION", Stays, By(|version| version.parse().map_or_else(|_| earlier_vote(), newer))),
    answer("EXECABORT", Stays, Verbatim),
    answer("NOTBUSY", Stays, Verbatim),
    answer("NOSUB", Stays, Verbatim),
    answer("BUSYKEY", Stays, Verbatim),
    answer("BUSYGROUP", Stays, Verbatim),
    answer("NOGROUP", Stays, Verbatim),
    answer("INVALIDOBJ", Stays, Verbatim),
];

/// An error without what was around it, and its row.
pub(super) struct Found<'a> {
    pub(super) code: &'a str,
    pub(super) detail: &'a str,
    pub(super) answer: Option<&'static Answer>,
}

/// Finds an error in the table, also one within another: Redis 6.2 says first where in a script it
/// went wrong, with or without an `ERR`, and a transaction that was refused names the reason.
pub(super) fn find<'a>(code: &'a str, detail: &'a str) -> Found<'a> {
    let inner = match code {
        "ERR" | "@user_script:" => {
            let marked = ANSWERS.iter().find_map(|answer| {
                let (_, rest) = detail.split_once(&format!("-{} ", answer.code))?;
                Some((answer.code, rest))
            });
            marked.or(Some(("ERR", detail)))
        }
        "EXECABORT" => detail
            .split_once("because of: ")
            .map(|(_, inner)| inner.split_once(' ').unwrap_or((inner, ""))),
        _ => None,
    };
    let (code, detail) = inner.unwrap_or((code, detail));
    let fits = |answer: &&Answer| answer.code == code && detail.contains(answer.part);
    Found {
        code,
        detail,
        answer: ANSWERS.iter().find(fits),
    }
}
