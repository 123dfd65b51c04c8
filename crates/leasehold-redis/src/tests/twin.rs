//! A queue of the core and its copy on a server, which run the same steps at the same times.

use leasehold_testkit::expect::says;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use leasehold_core::*;
use leasehold_store::{AuditLimit, AuditRecord, ErrorKind, Push};
use leasehold_testkit::server::RedisServer;
use redis::{Commands, FromRedisValue, Value};

use super::super::errors;
use super::record;
use crate::codec::audit::{self, Audit};
use crate::codec::push;
use crate::codec::script::{self, Gate, INSPECT, Request, STEP, Script, Step, Terms};

pub(super) const RETENTION: Duration = Duration::from_secs(24 * 3600);
const QUARANTINE: Duration = Duration::from_millis(500);
const PREFIX: &str = "leasehold:";
const SENTINEL: &str = "all-told";

/// The line of each script that reads the clock, and what replaces it here.
const CLOCK: &str = "local time = redis.call('TIME')\n";
const GIVEN: &str = "local time = {0, table.remove(ARGV)}\n";

/// What says how long a string lives by the server's clock, also on the lean way, and what replaces
/// it.
const LIVES: &str = "math.max(math.ceil(micros / 1000), 1)";
const LIVES_ON: &str = "3600000";

/// Which of its scripts a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Alone,
    InCluster,
    /// For clients that say what a restart means.
    Gated,
    /// A member of a set: gated, and each key keeps its own last token.
    Member,
}

impl Kind {
    fn is_gated(self) -> bool {
        matches!(self, Self::Gated | Self::Member)
    }

    fn has_last_token(self) -> bool {
        matches!(self, Self::Alone | Self::Gated)
    }

    pub(super) fn terms<'a>(
        self,
        gate: &'a Gate,
        believed: bool,
        audit: Option<&'a Audit>,
    ) -> Terms<'a> {
        Terms {
            audit,
            last: self.has_last_token().then_some("leasehold:last"),
            gated: self.is_gated().then_some(gate),
            is_member: self == Self::Member,
            retention: RETENTION,
            believed,
            listens: false,
        }
    }
}

/// What a gated server and the core know of its restarts.
pub(super) struct Boot {
    pub(super) run: u64,
    pub(super) terms: SetTerms,
    pub(super) marker: Option<ServerMarker>,
}

impl Boot {
    fn gate(&self) -> Gate {
        Gate::new(PREFIX, &self.run.to_string(), &self.terms)
    }

    /// Until when the core's server is closed; `None` where it is another's.
    fn admit(&mut self, clock: StoreTime, looks: bool) -> Option<Now> {
        let run = self.run.to_string();
        let admitted = match looks {
            true => ServerMarker::look(self.marker.as_ref(), &run, &self.terms, clock),
            false => ServerMarker::admit(&mut self.marker, &run, &self.terms, clock),
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
    /// Of the steps, and of looks.
    scripts: [Script; 2],
    inboxes: BTreeSet<String>,
    pub(super) places: Vec<Place>,
    kind: Kind,
    /// Where the scripts note what they change, half of the time.
    audit: Option<Audit>,
    /// The core's last token of all keys.
    last_token: Token,
    pub(super) boot: Boot,
    /// Whether the memory is full when a step needs none.
    pub(super) full: bool,
    /// Whether the client listens that takes a step.
    pub(super) listens: bool,
    /// How many answers and events of each kind were compared.
    pub(super) seen: BTreeMap<String, usize>,
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
            subscribe(&mut subscriber, &channel);
        }
        let mut connection = client.get_connection().unwrap();
        let () = connection.del("leasehold:last").unwrap();
        let scripts = [&*STEP, &*INSPECT].map(|script| {
            let lines = script.text.matches(CLOCK).count();
            assert_eq!(lines, 1, "one line reads the clock");
            assert!(!script.text.contains("-- include"), "it is assembled");
            let text = script.text.replace(CLOCK, GIVEN);
            let script = Script::new(&text.replace(LIVES, LIVES_ON));
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(&script.text);
            let _: String = load.query(&mut connection).unwrap();
            script
        });
        assert_eq!(scripts[0].text.matches(LIVES_ON).count(), 3);
        assert!(!scripts[0].text.contains("math.ceil(micros"));
        Self {
            connection,
            subscriber,
            scripts,
            inboxes: heard.iter().map(|name| (*name).to_owned()).collect(),
            places: vec![Place::new("a key")],
            kind,
            audit: None,
            last_token: Token::NONE,
            boot: Boot {
                run: 0,
                terms: SetTerms {
                    set: "a set".to_owned(),
                    quarantine: QUARANTINE,
                },
                marker: None,
            },
            full: false,
            listens: false,
            seen: BTreeMap::new(),
        }
    }

    /// The server loses its mark.
    pub(super) fn forget_marker(&mut self) {
        if !self.kind.is_gated() {
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
        let limit = AuditLimit::Entries(1_000);
        self.audit = match self.audit {
            None => Some(Audit::new(PREFIX, limit)),
            Some(_) => None,
        };
    }

    fn look(&mut self, place: usize, clock: StoreTime) -> Value {
        let key = self.places[place].redis_key();
        let gate = self.boot.gate();
        let look = Request::Look { key: &key }.command(false, self.kind.terms(&gate, true, None));
        self.run(&look, 1, clock).unwrap()
    }

    /// Takes steps at these places.
    fn eval(
        &mut self,
        steps: &[(usize, &Command)],
        all: bool,
        clock: StoreTime,
    ) -> redis::RedisResult<Value> {
        let steps = steps.iter().map(|(at, step)| {
            let key = self.places[*at].redis_key();
            Step::new(key, step).unwrap()
        });
        let steps: Vec<_> = steps.collect();
        let (gate, steps) = (self.boot.gate(), &steps);
        let steps = Request::Steps { steps, all };
        let terms = Terms {
            listens: self.listens,
            ..self.kind.terms(&gate, true, self.audit.as_ref())
        };
        let call = steps.command(false, terms);
        self.run(&call, 0, clock)
    }

    /// Runs one of the scripts at a time that is given.
    fn run(
        &mut self,
        call: &redis::Cmd,
        script: usize,
        clock: StoreTime,
    ) -> redis::RedisResult<Value> {
        let mut patched = redis::cmd("EVALSHA");
        patched.arg(&self.scripts[script].hash);
        for argument in call.args_iter().skip(2) {
            if let redis::Arg::Simple(argument) = argument {
                patched.arg(argument);
            }
        }
        patched.arg(clock.0);
        patched.query(&mut self.connection)
    }

    /// What the server answers to a plain command.
    fn ask<T: FromRedisValue>(&mut self, command: &str, arguments: &[&str]) -> T {
        let mut command = redis::cmd(command);
        command.arg(arguments).query(&mut self.connection).unwrap()
    }

    fn limit_memory(&mut self, bytes: u8) {
        let () = self.ask("CONFIG", &["SET", "maxmemory", &bytes.to_string()]);
    }

    /// One step on the only place.
    pub(super) fn step(&mut self, command: &Command, clock: StoreTime) -> Reply {
        self.step_at(0, command, clock)
    }

    /// One step on both; panics where they differ.
    pub(super) fn step_at(&mut self, place: usize, command: &Command, clock: StoreTime) -> Reply {
        self.together(&[(place, command)], clock)[0]
    }

    /// Steps that travel together: they are taken one after the other.
    pub(super) fn together(&mut self, steps: &[(usize, &Command)], clock: StoreTime) -> Vec<Reply> {
        // What only lets go or holds on works when the memory is full.
        let must = |(_, command): &(usize, &Command)| {
            matches!(
                command,
                Command::Renew(_) | Command::Release(_) | Command::Void(_) | Command::Break { .. }
            )
        };
        let full = self.full && steps.iter().all(must);
        if full {
            self.limit_memory(1);
        }
        let value = self.eval(steps, false, clock).unwrap();
        if full {
            self.limit_memory(0);
        }
        let values = match steps.len() {
            1 => vec![value],
            _ => script::each_reply(value).unwrap(),
        };
        assert_eq!(values.len(), steps.len(), "{values:?}");
        let heard = self.heard();
        let noted = self.noted(steps[0].0);

        let (mut told, mut to_note) = (Heard::new(), Vec::new());
        let mut replies = Vec::new();
        let looks = |(_, command): &(usize, &Command)| matches!(command, Command::Watch { .. });
        let looks = steps.iter().all(looks);
        for (value, (place, command)) in values.iter().zip(steps) {
            let (reply, at) = script::read_reply(value).unwrap();
            let now = self.now(clock, full, looks);
            let mut expected = self.places[*place].queue.apply(command, now);
            assert_eq!((reply, at), (expected.reply, expected.at), "the answer");
            self.deliver(*place, &mut expected, now, &mut told);
            self.add_noted(*place, expected.audit, &mut to_note);
            if !now.closed.is_zero() {
                self.count("closed");
            }
            let look = self.places[*place].queue.look(clock);
            self.note_holders(command, &look);
            self.tidy(*place);
            self.count(kind(&reply));
            replies.push(reply);
        }
        assert_eq!(heard, told, "what the inboxes heard");
        assert_eq!(noted, in_order(to_note), "what is noted");
        let places: BTreeSet<_> = steps.iter().map(|(place, _)| *place).collect();
        for place in places {
            self.compare_records(place, clock);
        }
        replies
    }

    /// A step at a clock that is too late: refused, and nothing is changed.
    pub(super) fn refused(&mut self, command: &Command, clock: StoreTime) {
        let Place { queue, .. } = &self.places[0];
        queue.check_clock(clock).unwrap_err();
        let before = self.record(0);
        let answer = self.eval(&[(0, command)], false, clock);
        let refused = errors::of_connection(answer.unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        says(&refused, ["the server's clock"]);
        assert_eq!(self.record(0), before, "the record");
        assert_eq!(self.heard(), Heard::new(), "what the inboxes heard");
    }

    /// What lies at the key, byte by byte.
    fn record(&mut self, place: usize) -> Option<Vec<u8>> {
        let key = self.places[place].redis_key();
        self.ask("DUMP", &[&key])
    }

    /// Claims on the first so many places, of both; panics where they differ.
    pub(super) fn claim_all(&mut self, claims: &[Claim], clock: StoreTime) -> bool {
        let all: Vec<_> = (0..claims.len()).collect();
        let commands: Vec<_> = claims.iter().cloned().map(Command::Claim).collect();
        let steps: Vec<_> = all.iter().copied().zip(&commands).collect();
        let value = self.eval(&steps, true, clock).unwrap();
        let found = script::read_replies(&value, claims.len()).unwrap();
        let heard = self.heard();
        let noted = self.noted(0);

        let queues = all.iter().map(|at| self.places[*at].queue.clone());
        let mut queues: Vec<_> = queues.collect();
        let (mut told, mut to_note) = (Heard::new(), Vec::new());
        let answer = |outcome: &Outcome| (outcome.reply, outcome.at);
        let now = self.now(clock, false, false);
        match Queue::claim_all(&mut queues, &commands, now) {
            Ok(outcomes) => {
                let expected = outcomes.iter().map(answer).collect();
                assert_eq!(found, Ok(expected), "the answers");
                for (at, (queue, mut outcome)) in queues.into_iter().zip(outcomes).enumerate() {
                    self.places[at].queue = queue;
                    self.deliver(at, &mut outcome, now, &mut told);
                    self.add_noted(at, outcome.audit, &mut to_note);
                }
            }
            Err((part, outcome)) => {
                assert_eq!(found, Err((part, answer(&outcome))), "the answer");
            }
        }
        assert_eq!(heard, told, "what the inboxes heard");
        assert_eq!(noted, in_order(to_note), "what is noted");
        for at in all {
            self.last_token = self.last_token.max(self.places[at].queue.last_token());
        }
        for at in (0..claims.len()).filter(|_| found.is_ok()) {
            self.tidy(at);
            self.compare_records(at, clock);
        }
        self.count(if found.is_ok() { "all" } else { "not all" });
        found.is_ok()
    }

    /// Counts what only the record tells.
    fn note_holders(&mut self, command: &Command, look: &Snapshot) {
        let pairs = look.holders.windows(2);
        let pairs = pairs.filter(|pair| pair[0].token == pair[1].token);
        let pairs: Vec<_> = pairs.collect();
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

    fn count(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    /// What the core makes of the time, and of the server's restarts.
    fn now(&mut self, clock: StoreTime, full: bool, looks: bool) -> Now {
        let mut now = Now::from(clock);
        if self.kind.is_gated() {
            let before = self.boot.marker.clone();
            let admitted = self.boot.admit(clock, looks);
            now = admitted.expect("the terms are its own");
            if full {
                // There is no room for a new mark: it is closed all the same.
                self.boot.marker = before;
            }
        }
        Now {
            last_token: self.kind.has_last_token().then_some(self.last_token),
            audited: self.audit.is_some(),
            listens: self.listens,
            ..now
        }
    }

    /// A record of which nothing is left but the last token is not kept.
    fn tidy(&mut self, place: usize) {
        let queue = &mut self.places[place].queue;
        if !self.kind.has_last_token() {
            return;
        }
        self.last_token = self.last_token.max(queue.last_token());
        if queue.is_spent() {
            *queue = Queue::default();
        }
    }

    fn deliver(&mut self, place: usize, outcome: &mut Outcome, now: Now, told: &mut Heard) {
        let Self {
            places,
            inboxes,
            seen,
            ..
        } = self;
        let Place { key, queue } = &mut places[place];
        let at = outcome.at;
        let applied = queue.deliver(outcome, now, |event| {
            let inbox = event.inbox().as_str();
            let listens = inboxes.contains(inbox);
            let deaf = !push::is_heard(event.inbox());
            let what = match (listens, deaf) {
                (true, _) => "heard",
                (false, true) => "deaf",
                (false, false) => "unheard",
            };
            *seen.entry(what.to_owned()).or_default() += 1;
            if listens {
                *seen.entry(kind_of(event)).or_default() += 1;
                let line = line(event, at, key);
                told.entry(inbox.to_owned()).or_default().push(line);
            }
            listens || deaf
        });
        let passes = |command: &Command| {
            matches!(command, Command::Unheard { granted, passed, .. }
            if !granted.is_empty() && !passed.is_empty())
        };
        if applied.iter().any(passes) {
            *seen.entry("passed over".to_owned()).or_default() += 1;
        }
    }

    /// What the last call has noted, in order; `place` is one of its places.
    fn noted(&mut self, place: usize) -> Vec<AuditRecord> {
        let Some(audit) = &self.audit else {
            return Vec::new();
        };
        let key = self.places[place].redis_key();
        let log = audit.log(&key, self.kind == Kind::InCluster);
        let entries: Vec<(String, Vec<Vec<u8>>)> = self.ask("XRANGE", &[&log, "-", "+"]);
        let _: u64 = self.ask("XTRIM", &[&log, "MAXLEN", "0"]);
        assert!(entries.len() < 2, "a call adds one entry");
        let fields: Vec<_> = entries.into_iter().flat_map(|(_, fields)| fields).collect();
        match &fields[..] {
            [] => Vec::new(),
            [field, value] if field == audit::FIELD.as_bytes() => {
                in_order(audit::read(PREFIX, value).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    fn add_noted(
        &mut self,
        place: usize,
        entries: Vec<AuditEntry>,
        to_note: &mut Vec<AuditRecord>,
    ) {
        for entry in entries {
            self.count(format!("noted {}", variant(&entry.event)));
            let key = self.places[place].key.clone();
            to_note.push(AuditRecord::new(key, entry));
        }
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
        let value = self.look(place, clock);
        let queue = self.places[place].queue.clone();
        let look = queue.look(clock);
        let redis_key = self.places[place].redis_key();
        let left: i64 = self.connection.pttl(redis_key).unwrap();
        if left == -2 {
            assert_eq!(queue, Queue::default(), "no record");
            return;
        }
        let last_token = queue.last_token().max(self.last_token);
        record::compare(&value, &queue, last_token, look.at);
        let expires = record::expires(&value);
        let look = Snapshot { last_token, ..look };
        assert_eq!(crate::codec::record::look(value).unwrap(), look, "the look");

        assert!(left > 0, "it expires");
        let keep = match self.kind {
            Kind::InCluster | Kind::Member => queue
                .keep_for(clock, RETENTION)
                .saturating_sub(RETENTION / 16),
            // A string lives as long as its claim.
            _ if expires == StoreTime(0) => return,
            _ => queue.keep_for(clock, Duration::from_secs(60)),
        };
        let end = clock + keep;
        assert!(expires >= end, "it lives until {expires:?}, not {end:?}");
    }
}

/// In an order that both can be brought to: of one step the order does not count.
fn in_order(mut records: Vec<AuditRecord>) -> Vec<AuditRecord> {
    records.sort_by_key(|record| format!("{record:?}"));
    records
}

/// For good, so that messages can be read one by one.
fn subscribe(connection: &mut redis::Connection, channel: &str) {
    let command = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
    connection.send_packed_command(&command).unwrap();
    connection.recv_response().unwrap();
}

/// The name of a variant, in lower case.
fn variant(value: &impl Debug) -> String {
    let shown = format!("{value:?}").to_lowercase();
    let name = shown.split(|c: char| !c.is_alphanumeric()).next();
    name.unwrap_or_default().to_owned()
}

fn kind(reply: &Reply) -> String {
    match reply {
        Reply::Standing(standing) if standing.holds() => "granted".to_owned(),
        Reply::Standing(standing) if standing.behind.is_some() => "in a run".to_owned(),
        Reply::Standing(_) => "waiting".to_owned(),
        other => variant(other),
    }
}

fn kind_of(event: &Event) -> String {
    match event {
        Event::Granted {
            behind: Some(_), ..
        } => "told in a run".to_owned(),
        other => format!("told {}", variant(other)),
    }
}

fn line(event: &Event, at: StoreTime, key: &Key) -> String {
    let push = Push::of(event, key, at, 1);
    let (at, arrival) = (at.0, event.arrival().unwrap_or_default());
    match (event, push) {
        (Event::Granted { token, .. }, Push::Granted { behind, proof, .. }) => match behind {
            None => format!("2 g {arrival} {token} {at} {proof} {key}"),
            Some(behind) => format!("2 f {arrival} {token} {behind} {at} {proof} {key}"),
        },
        (Event::Next { blocked_until, .. }, _) => {
            format!("2 n {arrival} {} {at} {key}", blocked_until.0)
        }
        (Event::Revoked { .. }, Push::Revoked { proof, .. }) => {
            format!("2 r {arrival} {at} {proof} {key}")
        }
        (Event::Adopted { .. }, Push::Adopted { proof, .. }) => {
            format!("2 a {arrival} {at} {proof} {key}")
        }
        (Event::Unfit { in_use, .. }, Push::Unfit { proof, .. }) => {
            format!("2 u {arrival} {} {at} {proof} {key}", in_use.units())
        }
        (Event::Changed { .. }, _) => format!("2 c 0 {at} {key}"),
        (event, push) => panic!("{event:?} is pushed as {push:?}"),
    }
}
