//! Queues of the core and their twins on a server, taking the same steps at the
//! same times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{
    Claim, Closed, Command, Event, Holder, Key, Marker, Now, Outcome, Queue, Reply, SetTerms,
    Snapshot, StoreTime,
};
use leasehold_store::{ErrorKind, Push};
use leasehold_testkit::server::RedisServer;
use redis::{Commands, Value};

use super::super::refusal;
use super::record;
use crate::codec::push;
use crate::codec::record::Record;
use crate::codec::script::{self, Call, SCRIPTS, Script, Site, Terms};
use crate::connection::gate::Gate;

pub(super) const RETENTION: Duration = Duration::from_secs(24 * 3600);
const QUARANTINE: Duration = Duration::from_millis(500);
const PREFIX: &str = "leasehold:";
const SENTINEL: &str = "all-told";

/// The line of each script that reads the clock, and what replaces it here.
const CLOCK: &str = "local time = redis.call('TIME')\n";
const GIVEN: &str = "local time = {0, table.remove(ARGV)}\n";

/// Which of its scripts a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Alone,
    InCluster,
    /// For clients that say what a restart means.
    Gated,
}

impl Kind {
    pub(super) fn terms(self, believed: bool) -> Terms {
        Terms {
            site: match self {
                Self::Alone => Site::Alone,
                Self::InCluster => Site::InCluster,
                Self::Gated => Site::Gated,
            },
            retention: RETENTION,
            believed,
        }
    }
}

/// What a gated server and the core know of its restarts.
pub(super) struct Boot {
    pub(super) run: u64,
    pub(super) terms: SetTerms,
    pub(super) marker: Option<Marker>,
}

impl Boot {
    fn gate(&self) -> Gate {
        Gate::new(PREFIX, &self.run.to_string(), &self.terms)
    }

    /// Until when the core's server is closed; `None` where it is another's.
    fn admit(&mut self, clock: StoreTime, looks: bool) -> Option<Now> {
        let run = self.run.to_string();
        let admitted = match looks {
            true => Marker::look(self.marker.as_ref(), &run, &self.terms, clock),
            false => Marker::admit(&mut self.marker, &run, &self.terms, clock),
        };
        let closed = match admitted {
            Ok(()) => Duration::ZERO,
            Err(Closed::Quarantined { left }) => left,
            Err(Closed::Foreign) => return None,
        };
        Some(Now {
            closed,
            ..Now::from(clock)
        })
    }
}

/// What each inbox heard, line by line.
type Heard = BTreeMap<String, Vec<String>>;

/// A key and what the core keeps of it.
pub(super) struct Place {
    key: Key,
    pub(super) queue: Queue,
}

impl Place {
    fn new(name: &str) -> Self {
        Self {
            key: Key::new(name).unwrap(),
            queue: Queue::default(),
        }
    }

    fn redis_key(&self) -> String {
        format!("{PREFIX}lock:{}", self.key)
    }
}

pub(super) struct Twin {
    connection: redis::Connection,
    subscriber: redis::Connection,
    scripts: BTreeMap<&'static str, Script>,
    inboxes: BTreeSet<String>,
    pub(super) places: Vec<Place>,
    kind: Kind,
    pub(super) boot: Boot,
    /// Whether the memory is full when a step needs none.
    pub(super) full: bool,
    /// How many answers and events of each kind were compared.
    pub(super) seen: BTreeMap<&'static str, usize>,
}

impl Twin {
    pub(super) fn new(server: &RedisServer, heard: &[&str]) -> Self {
        Self::of(server, heard, Kind::Alone)
    }

    pub(super) fn of(server: &RedisServer, heard: &[&str], kind: Kind) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let mut subscriber = client.get_connection().unwrap();
        let channels = heard.iter().map(|name| format!("{PREFIX}inbox:{name}"));
        for channel in channels.chain([SENTINEL.to_owned()]) {
            subscriber.as_pubsub_without_unsubscribe(&channel);
        }
        let mut connection = client.get_connection().unwrap();
        let scripts = [
            ("claim", &SCRIPTS.claim),
            ("claim all", &SCRIPTS.claim_all),
            ("renew", &SCRIPTS.renew),
            ("release", &SCRIPTS.release),
            ("resize", &SCRIPTS.resize),
            ("watch", &SCRIPTS.watch),
            ("break", &SCRIPTS.break_key),
            ("inspect", &SCRIPTS.inspect),
        ]
        .map(|(verb, script)| {
            let lines = script.text.matches(CLOCK).count();
            assert_eq!(lines, 1, "one line of {verb} reads the clock");
            assert!(!script.text.contains("-- include"), "{verb} is assembled");
            let script = script.with_text(script.text.replace(CLOCK, GIVEN));
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(&script.text);
            let _: String = load.query(&mut connection).unwrap();
            (verb, script)
        });
        Self {
            connection,
            subscriber,
            scripts: scripts.into(),
            inboxes: heard.iter().map(|name| (*name).to_owned()).collect(),
            places: vec![Place::new("a key")],
            kind,
            boot: Boot {
                run: 0,
                terms: SetTerms {
                    set: "a set".to_owned(),
                    quarantine: QUARANTINE,
                },
                marker: None,
            },
            full: false,
            seen: BTreeMap::new(),
        }
    }

    /// The server loses its mark.
    pub(super) fn forget_marker(&mut self) {
        if self.kind != Kind::Gated {
            return;
        }
        self.boot.marker = None;
        let () = self.connection.del(format!("{PREFIX}boot")).unwrap();
    }

    /// Goes on with an empty queue at another key.
    pub(super) fn restart(&mut self, name: &str) {
        self.restart_all(&[name]);
    }

    /// Goes on with empty queues at other keys.
    pub(super) fn restart_all(&mut self, names: &[&str]) {
        self.places = names.iter().map(|name| Place::new(name)).collect();
        self.forget_marker();
    }

    fn eval(
        &mut self,
        verb: &str,
        places: &[usize],
        arguments: impl Fn(&mut redis::Cmd, Terms),
        clock: StoreTime,
    ) -> Value {
        self.try_eval(verb, places, arguments, clock).unwrap()
    }

    fn try_eval(
        &mut self,
        verb: &str,
        places: &[usize],
        arguments: impl Fn(&mut redis::Cmd, Terms),
        clock: StoreTime,
    ) -> redis::RedisResult<Value> {
        let script = &self.scripts[verb];
        let keys = places.iter().map(|place| self.places[*place].redis_key());
        let keys: Vec<_> = keys.collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let gate = self.boot.gate();
        let call = Call {
            script,
            keys: &keys,
            gated: (self.kind == Kind::Gated).then(|| gate.gated()),
        };
        let mut call = call.by_hash(|call| arguments(call, self.kind.terms(true)));
        call.arg(clock.0);
        call.query(&mut self.connection)
    }

    fn limit_memory(&mut self, bytes: u8) {
        let mut limit = redis::cmd("CONFIG");
        limit.arg("SET").arg("maxmemory").arg(bytes);
        limit.query::<()>(&mut self.connection).unwrap();
    }

    /// One step on the only place.
    pub(super) fn step(&mut self, command: &Command, clock: StoreTime) -> Reply {
        self.step_at(0, command, clock)
    }

    /// One step on both; panics where they differ.
    pub(super) fn step_at(&mut self, place: usize, command: &Command, clock: StoreTime) -> Reply {
        let (verb, arguments) = call_of(command);
        // What only lets go or holds on works when the memory is full.
        let full = self.full && matches!(verb, "renew" | "release" | "break");
        if full {
            self.limit_memory(1);
        }
        let value = self.eval(verb, &[place], arguments, clock);
        if full {
            self.limit_memory(0);
        }
        let (reply, at) = script::read_reply(&value).unwrap();
        let heard = self.heard();

        let looks = matches!(command, Command::Watch { .. });
        let now = self.now(clock, full, looks);
        let expected = self.places[place].queue.apply(command, now);
        assert_eq!((reply, at), (expected.reply, expected.at), "the answer");
        let mut told = Heard::new();
        self.deliver(place, expected, now, &mut told);
        if !now.closed.is_zero() {
            self.count("closed");
        }
        assert_eq!(heard, told, "what the inboxes heard");
        self.compare_records(place, clock);
        let look = self.places[place].queue.look(clock);
        self.note_holders(command, &look);
        self.count(kind(&reply));
        reply
    }

    /// A step at a clock that is too late: refused, and nothing is changed.
    pub(super) fn refused(&mut self, command: &Command, clock: StoreTime) {
        let Place { queue, .. } = &self.places[0];
        queue.check_clock(clock).unwrap_err();
        let before = self.record(0);
        let (verb, arguments) = call_of(command);
        let answer = self.try_eval(verb, &[0], arguments, clock);
        let refused = refusal::of_connection(answer.unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        assert!(
            refused.to_string().contains("the server's clock"),
            "{refused}"
        );
        assert_eq!(self.record(0), before, "the record");
        assert_eq!(self.heard(), Heard::new(), "what the inboxes heard");
    }

    /// What lies at the key, byte by byte.
    fn record(&mut self, place: usize) -> Option<Vec<u8>> {
        let key = self.places[place].redis_key();
        let mut dump = redis::cmd("DUMP");
        dump.arg(key).query(&mut self.connection).unwrap()
    }

    /// Claims on the first so many places, of both; panics where they differ.
    pub(super) fn claim_all(&mut self, claims: &[Claim], clock: StoreTime) -> bool {
        let all: Vec<_> = (0..claims.len()).collect();
        let arguments = |call: &mut redis::Cmd, terms| script::add_claims(call, claims, terms);
        let value = self.eval("claim all", &all, arguments, clock);
        let found = script::read_replies(&value, claims.len()).unwrap();
        let heard = self.heard();

        let mut queues: Vec<_> = all
            .iter()
            .map(|at| self.places[*at].queue.clone())
            .collect();
        let commands: Vec<_> = claims.iter().cloned().map(Command::Claim).collect();
        let mut told = Heard::new();
        let answer = |outcome: &Outcome| (outcome.reply, outcome.at);
        let now = self.now(clock, false, false);
        match Queue::claim_all(&mut queues, &commands, now) {
            Ok(outcomes) => {
                let expected = outcomes.iter().map(answer).collect();
                assert_eq!(found, Ok(expected), "the answers");
                for (at, (queue, outcome)) in queues.into_iter().zip(outcomes).enumerate() {
                    self.places[at].queue = queue;
                    self.deliver(at, outcome, now, &mut told);
                }
            }
            Err((part, outcome)) => {
                assert_eq!(found, Err((part, answer(&outcome))), "the answer");
            }
        }
        assert_eq!(heard, told, "what the inboxes heard");
        for at in all {
            self.compare_records(at, clock);
        }
        self.count(if found.is_ok() { "all" } else { "not all" });
        found.is_ok()
    }

    /// Counts what only the record tells.
    fn note_holders(&mut self, command: &Command, look: &Snapshot) {
        let pairs: Vec<_> = look
            .holders
            .windows(2)
            .filter(|pair| pair[0].token == pair[1].token)
            .collect();
        if !pairs.is_empty() {
            self.count("held twice");
        }
        let now = |holder: &Holder| holder.claim.since == look.at;
        let asked = matches!(command, Command::Claim(_));
        if !asked && pairs.iter().any(|pair| now(&pair[0]) && now(&pair[1])) {
            self.count("granted together");
        }
        if !asked && pairs.iter().any(|pair| !now(&pair[0]) && now(&pair[1])) {
            self.count("caught up");
        }
        if look.holders.iter().any(|holder| holder.claim.kept) {
            self.count("kept");
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// What the core makes of the time, and of the server's restarts.
    fn now(&mut self, clock: StoreTime, full: bool, looks: bool) -> Now {
        if self.kind != Kind::Gated {
            return clock.into();
        }
        let before = self.boot.marker.clone();
        let now = self
            .boot
            .admit(clock, looks)
            .expect("the terms are its own");
        if full {
            // There is no room for a new mark: it is closed all the same.
            self.boot.marker = before;
        }
        now
    }

    fn deliver(&mut self, place: usize, outcome: Outcome, now: Now, told: &mut Heard) {
        let Self {
            places,
            inboxes,
            seen,
            ..
        } = self;
        let Place { key, queue } = &mut places[place];
        queue.deliver(outcome.events, now, |event| {
            let inbox = event.inbox().as_str();
            let listens = inboxes.contains(inbox);
            let deaf = !push::is_heard(event.inbox());
            let what = match (listens, deaf) {
                (true, _) => "heard",
                (false, true) => "deaf",
                (false, false) => "unheard",
            };
            *seen.entry(what).or_default() += 1;
            if listens {
                *seen.entry(kind_of(event)).or_default() += 1;
                let line = line(event, outcome.at, key);
                told.entry(inbox.to_owned()).or_default().push(line);
            }
            listens || deaf
        });
    }

    /// All that was published in the last step.
    fn heard(&mut self) -> Heard {
        let mut heard = Heard::new();
        let _: usize = self.connection.publish(SENTINEL, "").unwrap();
        loop {
            let message = self.subscriber.recv_response().unwrap();
            let message = redis::Msg::from_owned_value(message).unwrap();
            let channel = message.get_channel_name();
            if channel == SENTINEL {
                return heard;
            }
            let inbox = channel.strip_prefix("leasehold:inbox:").unwrap();
            let text: String = message.get_payload().unwrap();
            let lines = heard.entry(inbox.to_owned()).or_default();
            lines.extend(text.split('\n').map(str::to_owned));
        }
    }

    fn compare_records(&mut self, place: usize, clock: StoreTime) {
        let value = self.eval("inspect", &[place], |_, _| {}, clock);
        let queue = self.places[place].queue.clone();
        let look = queue.look(clock);
        record::compare(&value, &queue, look.at);
        let (record, _) = Record::read(value).unwrap();
        assert_eq!(record.look(clock), look, "the look");

        let redis_key = self.places[place].redis_key();
        let left: i64 = self.connection.pttl(redis_key).unwrap();
        if left == -2 {
            assert_eq!(queue, Queue::default(), "no record");
            return;
        }
        let keep = queue
            .keep_for(clock, RETENTION)
            .saturating_sub(RETENTION / 16);
        let slack = Duration::from_secs(30);
        assert!(
            Duration::from_millis(u64::try_from(left).expect("it expires")) + slack > keep,
            "the record lives {left} ms, too short for {keep:?}"
        );
    }
}

/// The script of a command, and what it is given.
fn call_of(command: &Command) -> (&'static str, impl Fn(&mut redis::Cmd, Terms)) {
    let verb = match command {
        Command::Claim(_) => "claim",
        Command::Renew(_) => "renew",
        Command::Release(_) => "release",
        Command::Resize { .. } => "resize",
        Command::Watch { .. } => "watch",
        Command::Break => "break",
        _ => panic!("no verb of a store"),
    };
    let arguments = move |call: &mut redis::Cmd, terms| match command {
        Command::Claim(claim) => script::add_claim(call, claim, terms),
        Command::Renew(renew) => script::add_renew(call, renew, terms),
        Command::Release(release) => script::add_release(call, release, terms),
        Command::Resize { from, to } => script::add_resize(call, *from, *to, terms),
        Command::Watch { inbox, ttl } => script::add_watch(call, inbox, *ttl, terms),
        _ => script::add_break(call, terms),
    };
    (verb, arguments)
}

trait SubscribeRaw {
    fn as_pubsub_without_unsubscribe(&mut self, channel: &str);
}

impl SubscribeRaw for redis::Connection {
    /// Subscribes for good, so that messages can be read one by one.
    fn as_pubsub_without_unsubscribe(&mut self, channel: &str) {
        let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
        self.send_packed_command(&command).unwrap();
        self.recv_response().unwrap();
    }
}

fn kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Standing(standing) if standing.token.is_some() => "granted",
        Reply::Standing(_) => "waiting",
        Reply::Busy { .. } => "busy",
        Reply::Quarantined { .. } => "quarantined",
        Reply::Gone => "gone",
        Reply::Released { .. } => "released",
        Reply::Absent => "absent",
        Reply::Mismatch { .. } => "mismatch",
        Reply::Broken { .. } => "broken",
        Reply::Superseded => "superseded",
        Reply::Taken => "taken",
        Reply::Resized => "resized",
        Reply::Done => "done",
    }
}

fn kind_of(event: &Event) -> &'static str {
    match event {
        Event::Granted { .. } => "told granted",
        Event::Next { .. } => "told next",
        Event::Revoked { .. } => "told revoked",
        Event::Adopted { .. } => "told adopted",
        Event::Unfit { .. } => "told unfit",
        Event::Changed { .. } => "told changed",
    }
}

fn line(event: &Event, at: StoreTime, key: &Key) -> String {
    let push = Push::of(event, key, at, 1);
    let at = at.0;
    match (event, push) {
        (Event::Granted { arrival, token, .. }, Push::Granted { proof, .. }) => {
            format!("2 g {arrival} {token} {at} {proof} {key}")
        }
        (
            Event::Next {
                arrival,
                blocked_until,
                ..
            },
            _,
        ) => format!("2 n {arrival} {} {at} {key}", blocked_until.0),
        (Event::Revoked { arrival, .. }, Push::Revoked { proof, .. }) => {
            format!("2 r {arrival} {at} {proof} {key}")
        }
        (Event::Adopted { arrival, .. }, Push::Adopted { proof, .. }) => {
            format!("2 a {arrival} {at} {proof} {key}")
        }
        (
            Event::Unfit {
                arrival, in_use, ..
            },
            Push::Unfit { proof, .. },
        ) => format!("2 u {arrival} {} {at} {proof} {key}", in_use.units()),
        (Event::Changed { .. }, _) => format!("2 c 0 {at} {key}"),
        (event, push) => panic!("{event:?} is pushed as {push:?}"),
    }
}
