//! Queues of the core and their twins on a server, taking the same steps at the
//! same times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{
    Claim, Command, Event, Holder, Key, Outcome, Queue, Reply, Snapshot, StoreTime,
};
use leasehold_testkit::server::RedisServer;
use redis::{Commands, Value};

use super::super::push;
use super::super::record::Record;
use super::super::script::{self, SCRIPTS, Script, Terms};
use super::record;

pub(super) const RETENTION: Duration = Duration::from_secs(24 * 3600);
const TERMS: Terms = Terms {
    retention: RETENTION,
    believed: true,
};
const PREFIX: &str = "leasehold:";
const SENTINEL: &str = "all-told";

/// The line of each script that reads the clock, and what replaces it here.
const CLOCK: &str = "local time = redis.call('TIME')\n";
const GIVEN: &str = "local time = {0, ARGV[#ARGV]}\n";

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
    /// Whether the memory is full when a step needs none.
    pub(super) full: bool,
    /// How many answers and events of each kind were compared.
    pub(super) seen: BTreeMap<&'static str, usize>,
}

impl Twin {
    pub(super) fn new(server: &RedisServer, heard: &[&str]) -> Self {
        Self::of(server, heard, false)
    }

    /// With the scripts of a cluster, or those of one server.
    pub(super) fn of(server: &RedisServer, heard: &[&str], cluster: bool) -> Self {
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
            let script = script.on(cluster);
            let lines = script.text.matches(CLOCK).count();
            assert_eq!(lines, 1, "one line of {verb} reads the clock");
            assert!(!script.text.contains("include"), "{verb} is assembled");
            let script = Script::new(script.text.replace(CLOCK, GIVEN));
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
            full: false,
            seen: BTreeMap::new(),
        }
    }

    /// Goes on with an empty queue at another key.
    pub(super) fn restart(&mut self, name: &str) {
        self.restart_all(&[name]);
    }

    /// Goes on with empty queues at other keys.
    pub(super) fn restart_all(&mut self, names: &[&str]) {
        self.places = names.iter().map(|name| Place::new(name)).collect();
    }

    fn eval(
        &mut self,
        verb: &str,
        places: &[usize],
        arguments: impl Fn(&mut redis::Cmd),
        clock: StoreTime,
    ) -> Value {
        let script = &self.scripts[verb];
        let keys = places.iter().map(|place| self.places[*place].redis_key());
        let keys: Vec<_> = keys.collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let mut call = script::call(script, &keys);
        arguments(&mut call);
        call.arg(clock.0);
        call.query(&mut self.connection).unwrap()
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
        let verb = match command {
            Command::Claim(_) => "claim",
            Command::Renew(_) => "renew",
            Command::Release(_) => "release",
            Command::Resize { .. } => "resize",
            Command::Watch { .. } => "watch",
            Command::Break => "break",
            _ => panic!("no verb of a store"),
        };
        let arguments = |call: &mut redis::Cmd| match command {
            Command::Claim(claim) => script::add_claim(call, claim, TERMS),
            Command::Renew(renew) => script::add_renew(call, renew, TERMS),
            Command::Release(release) => script::add_release(call, release, TERMS),
            Command::Resize { from, to } => script::add_resize(call, *from, *to, TERMS),
            Command::Watch { inbox, ttl } => script::add_watch(call, inbox, *ttl, TERMS),
            _ => script::add_break(call, TERMS),
        };
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

        let expected = self.places[place].queue.apply(command, clock);
        assert_eq!((reply, at), (expected.reply, expected.at), "the answer");
        let mut told = Heard::new();
        self.deliver(place, expected, clock, &mut told);
        assert_eq!(heard, told, "what the inboxes heard");
        self.compare_records(place, clock);
        let look = self.places[place].queue.look(clock);
        self.note_holders(command, &look);
        self.count(kind(&reply));
        reply
    }

    /// Claims on the first so many places, of both; panics where they differ.
    pub(super) fn claim_all(&mut self, claims: &[Claim], clock: StoreTime) -> bool {
        let all: Vec<_> = (0..claims.len()).collect();
        let arguments = |call: &mut redis::Cmd| script::add_claims(call, claims, TERMS);
        let value = self.eval("claim all", &all, arguments, clock);
        let found = script::read_replies(&value).unwrap();
        let heard = self.heard();

        let mut queues: Vec<_> = all
            .iter()
            .map(|at| self.places[*at].queue.clone())
            .collect();
        let commands: Vec<_> = claims.iter().cloned().map(Command::Claim).collect();
        let mut told = Heard::new();
        let answer = |outcome: &Outcome| (outcome.reply, outcome.at);
        match Queue::claim_all(&mut queues, &commands, clock) {
            Ok(outcomes) => {
                let expected = outcomes.iter().map(answer).collect();
                assert_eq!(found, Ok(expected), "the answers");
                for (at, (queue, outcome)) in queues.into_iter().zip(outcomes).enumerate() {
                    self.places[at].queue = queue;
                    self.deliver(at, outcome, clock, &mut told);
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
        if look.holders.iter().any(|holder| holder.claim.kept) {
            self.count("kept");
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn deliver(&mut self, place: usize, outcome: Outcome, clock: StoreTime, told: &mut Heard) {
        let Self {
            places,
            inboxes,
            seen,
            ..
        } = self;
        let Place { key, queue } = &mut places[place];
        queue.deliver(outcome.events, clock, |event| {
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
        let value = self.eval("inspect", &[place], |_| {}, clock);
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
        let keep = queue.keep_for(clock, RETENTION) - RETENTION / 16;
        let slack = Duration::from_secs(30);
        assert!(
            Duration::from_millis(u64::try_from(left).expect("it expires")) + slack > keep,
            "the record lives {left} ms, too short for {keep:?}"
        );
    }
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
    let at = at.0;
    match event {
        Event::Granted {
            arrival,
            token,
            deadline,
            ..
        } => format!("1 g {arrival} {token} {} {at} {key}", deadline.0),
        Event::Next {
            arrival,
            blocked_until,
            ..
        } => format!("1 n {arrival} {} {at} {key}", blocked_until.0),
        Event::Revoked { arrival, .. } => format!("1 r {arrival} {at} {key}"),
        Event::Adopted { arrival, .. } => format!("1 a {arrival} {at} {key}"),
        Event::Unfit {
            arrival, in_use, ..
        } => format!("1 u {arrival} {} {at} {key}", in_use.units()),
        Event::Changed { .. } => format!("1 c 0 {at} {key}"),
    }
}
