//! What is broken, and which models have to find it.

use super::Mutant;

const fn mutant(name: &'static str, what: &'static str, models: &'static [&'static str]) -> Mutant {
    Mutant { name, what, models }
}

/// All of them, by name: each is where the core asks whether it is `mutated`.
pub(super) const ALL: &[Mutant] = &[
    mutant(
        "answer-any-arrival",
        "a lease goes on by an answer about another claim of its id",
        &["clients/doubled"],
    ),
    mutant(
        "break-same-token",
        "a break uses up no token",
        &["queue/mutex"],
    ),
    mutant(
        "closed-claim",
        "a store that may have forgotten grants whoever comes",
        &["failover/loss"],
    ),
    mutant(
        "closed-for-good",
        "what waits is not told when a closed store grants again",
        &["failover/loss", "failover/restart", "failover/walks"],
    ),
    mutant(
        "closed-hands-on",
        "a store that may have forgotten hands on to whoever waits",
        &["failover/loss", "failover/replica", "failover/walks"],
    ),
    mutant(
        "closed-runs-on",
        "a store that may have forgotten lets the next in a run hold",
        &["runs/replica"],
    ),
    mutant(
        "expiry-late",
        "a claim lives one instant beyond its deadline",
        &["queue/mutex"],
    ),
    mutant(
        "extension-revives",
        "a renewal brings a vote back whatever has happened since",
        &["quorum/exclusion walks", "quorum/renewal"],
    ),
    mutant(
        "grant-lapses",
        "a claim that is granted while it waits keeps its old deadline",
        &["queue/mutex"],
    ),
    mutant(
        "lapsed-stays",
        "a holder that has lapsed is not passed",
        &["queue/mutex"],
    ),
    mutant(
        "last-token-lost",
        "a store that keeps nothing of an idle key forgets its last token",
        &["counter/steps back"],
    ),
    mutant(
        "lost-passes",
        "a lease is passed on that is lost, or that another may have adopted",
        &["runs/adoption"],
    ),
    mutant(
        "majority",
        "one vote less than a majority is enough",
        &["quorum/tokens"],
    ),
    mutant(
        "min-hold-forgotten",
        "a claim that leaves keeps no minimum hold",
        &["queue/minimum hold"],
    ),
    mutant(
        "no-quarantine",
        "a server that may have forgotten votes at once",
        &["quorum/loss"],
    ),
    mutant(
        "no-tombstone",
        "a release leaves no tombstone",
        &["quorum/tokens"],
    ),
    mutant(
        "one-register",
        "the tombstone is put among the accepted tokens, and renewals are held against those",
        &["quorum/renewal", "quorum/exclusion walks"],
    ),
    mutant(
        "order-last-first",
        "the last in line is granted first",
        &["queue/mutex"],
    ),
    mutant(
        "owner-shut-out",
        "a re-entrant owner waits for itself",
        &["queue/re-entrant"],
    ),
    mutant(
        "pass-holders",
        "who does not hear of a grant loses what it has held before",
        &["queue/runs passed over"],
    ),
    mutant(
        "permits-unweighed",
        "permits are counted without their weight",
        &["queue/permits"],
    ),
    mutant(
        "promotion-unnoticed",
        "a new process, or a replica that was promoted, is taken for the old one",
        &["failover/replica", "failover/walks"],
    ),
    mutant(
        "push-any-arrival",
        "a push counts whatever arrival it names, however old it is",
        &["clients/mutex walks"],
    ),
    mutant(
        "push-any-epoch",
        "a push counts on a connection that has answered nothing yet",
        &["clients/sleeper walks"],
    ),
    mutant(
        "push-before-grant",
        "the next in line is told of a grant that it does not have",
        &["queue/mutex"],
    ),
    mutant("push-missing", "a grant is not pushed", &["queue/mutex"]),
    mutant(
        "push-unproved",
        "a push counts whoever made its proof",
        &["clients/stranger"],
    ),
    mutant(
        "quarantine-short",
        "a quarantine lasts a quarter of its time",
        &["failover/walks", "quorum/losses walks"],
    ),
    mutant(
        "reader-passes",
        "a reader is let in past a writer that waits",
        &["queue/readers"],
    ),
    mutant(
        "regrant-keeps",
        "a lease goes on by an answer about another grant of its claim",
        &["failover/unguarded"],
    ),
    mutant(
        "release-any",
        "a release without a claim of its own frees whoever holds",
        &["queue/mutex"],
    ),
    mutant(
        "release-keeps",
        "a release hands on to nobody",
        &["queue/mutex"],
    ),
    mutant(
        "released-again",
        "a released id is not remembered",
        &["queue/mutex"],
    ),
    mutant(
        "renewal-answer",
        "a renewal counts from its answer",
        &["clients/mutex walks"],
    ),
    mutant(
        "renewal-lowers",
        "a renewal sets the deadline, also to an earlier one",
        &["queue/mutex"],
    ),
    mutant(
        "renewal-revives",
        "a renewal brings a claim back that has lapsed",
        &["queue/mutex"],
    ),
    mutant(
        "restart-unnoticed",
        "a new process of a server is taken for the old one",
        &["quorum/loss", "quorum/losses walks"],
    ),
    mutant(
        "run-of-two-clients",
        "a claim is granted behind another client's",
        &["queue/runs"],
    ),
    mutant(
        "run-stays",
        "a run goes on after a break, or behind a claim that was adopted",
        &["queue/runs"],
    ),
    mutant(
        "stranger-enters",
        "a claim is answered to whoever knows its id",
        &["queue/silence"],
    ),
    mutant(
        "time-goes-back",
        "the time of a key follows a clock that steps back",
        &["queue/steps back"],
    ),
    mutant(
        "token-counts",
        "tokens count without regard to the clock",
        &["queue/losses"],
    ),
    mutant(
        "token-lower",
        "a server accepts a token below one that it has accepted",
        &["quorum/tokens", "quorum/tokens walks"],
    ),
    mutant(
        "token-same",
        "a grant does not raise the token",
        &["queue/mutex"],
    ),
    mutant(
        "token-shared",
        "a server accepts a token again from another claim",
        &["quorum/tokens"],
    ),
    mutant(
        "turn-of-any",
        "a turn counts whoever has passed it on",
        &["runs/three"],
    ),
    mutant(
        "turn-of-ended",
        "a turn counts in a run that has ended",
        &["runs/adoption of three"],
    ),
    mutant(
        "validity-answer",
        "validity is counted from the answer",
        &["clients/drift"],
    ),
    mutant(
        "validity-basis",
        "a pushed grant is relied on from the answer, not the sending, of the last request",
        &["clients/mutex walks", "clients/drift"],
    ),
    mutant(
        "validity-drift",
        "validity has no allowance for drift",
        &["clients/drift"],
    ),
    mutant(
        "votes-for-two",
        "a server that votes for another votes all the same",
        &["quorum/exclusion", "quorum/tokens"],
    ),
    mutant(
        "waiter-silent",
        "a waiter does not ask again",
        &["clients/late", "clients/mutex walks"],
    ),
    mutant(
        "waiting-keeps",
        "a lease goes on by an answer that its claim waits",
        &["failover/replica"],
    ),
];
