//! Forged pushes: a user with all channels and no keys receives every push and publishes any
//! message. No claim is granted, ended or fenced by it.

use futures_util::StreamExt;
use leasehold_testkit::server::Stats;
use redis::aio::MultiplexedConnection;

use crate::redis_support::*;

const CHANNELS_ONLY: &str =
    "on >secret resetkeys resetchannels &leasehold:* -@all +subscribe +psubscribe +publish";

fn server() -> RedisServer {
    let server = RedisServer::builder().user("stranger", CHANNELS_ONLY);
    server.start()
}

/// A client, and its store.
async fn client(server: &RedisServer) -> (Client, Arc<RedisStore>) {
    let store = Arc::new(connect(&server.url()).await.unwrap());
    (client_of(store.clone()).await, store)
}

/// A message of a channel.
type Message = (String, String);

/// Whoever may use the channels, and nothing else.
struct Stranger {
    connection: MultiplexedConnection,
    heard: Arc<Mutex<Vec<Message>>>,
    listening: JoinHandle<()>,
    dice: Dice,
}

impl Stranger {
    async fn come(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url_as("stranger", "secret")).unwrap();
        let mut pubsub = client.get_async_pubsub().await.unwrap();
        pubsub.psubscribe("leasehold:*").await.unwrap();
        let heard: Arc<Mutex<Vec<Message>>> = Arc::default();
        let ear = heard.clone();
        let listening = tokio::spawn(async move {
            let mut messages = pubsub.into_on_message();
            while let Some(message) = messages.next().await {
                let channel = message.get_channel_name().to_owned();
                let text = message.get_payload().unwrap_or_default();
                ear.lock().unwrap().push((channel, text));
            }
        });
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self {
            connection,
            heard,
            listening,
            dice: Dice(1),
        }
    }

    fn heard(&self) -> Vec<Message> {
        self.heard.lock().unwrap().clone()
    }

    /// A grant that was heard, and not said by the stranger.
    async fn hears_a_grant(&self, said: &BTreeMap<Message, usize>) {
        let genuine = |it: &Message| it.1.contains(" g ") && !said.contains_key(it);
        let heard = async || self.heard().iter().any(genuine);
        until("a grant that is heard", heard).await;
    }

    fn draw(&mut self, below: usize) -> usize {
        usize::try_from(self.dice.roll(below as u64)).unwrap()
    }

    fn one_of(&mut self, of: &[String]) -> String {
        self.dice.pick(of).clone()
    }

    async fn publish(&mut self, messages: &[Message]) {
        let mut pipeline = redis::pipe();
        for (channel, text) in messages {
            pipeline.cmd("PUBLISH").arg(channel).arg(text).ignore();
        }
        let () = pipeline.query_async(&mut self.connection).await.unwrap();
    }

    /// One thing that it may try, with all that it can know: names, numbers, what it heard.
    fn forge(&mut self, known: &Known) -> Message {
        let channel = format!("leasehold:inbox:{}", self.one_of(&known.inboxes));
        let heard = &known.heard;
        let line = match self.draw(8) {
            // Word for word, anywhere.
            0 if !heard.is_empty() => heard[self.draw(heard.len())].1.clone(),
            // A word of it is another one.
            1 | 2 if !heard.is_empty() => {
                let line = heard[self.draw(heard.len())].1.clone();
                let mut words: Vec<_> = line.split(' ').map(str::to_owned).collect();
                let at = self.draw(words.len());
                words[at] = match at {
                    0 => self.one_of(&["1", "2", "3"].map(str::to_owned)),
                    1 => self.kind(),
                    2 => self.one_of(&known.arrivals),
                    3 => self.one_of(&known.numbers),
                    _ if at + 1 == words.len() => self.one_of(&known.names),
                    _ => self.one_of(&known.numbers),
                };
                words.join(" ")
            }
            3 | 4 => self.line(1, known),
            _ => self.line(2, known),
        };
        (channel, line)
    }

    fn kind(&mut self) -> String {
        self.one_of(&["g", "n", "r", "a", "u", "c"].map(str::to_owned))
    }

    /// Those of version 1 had no proof.
    fn line(&mut self, version: u8, known: &Known) -> String {
        let (kind, arrival) = (self.kind(), self.one_of(&known.arrivals));
        let (number, name) = (self.one_of(&known.numbers), self.one_of(&known.names));
        let (at, permits) = (self.one_of(&known.times), self.draw(3));
        let proof = match version {
            1 => String::new(),
            _ => self.proof(known) + " ",
        };
        match kind.as_str() {
            "g" if version == 1 => format!("1 g {arrival} {number} {at} {at} {name}"),
            "g" => format!("{version} g {arrival} {number} {at} {proof}{name}"),
            "n" => format!("{version} n {arrival} {number} {at} {name}"),
            "u" => format!("{version} u {arrival} {permits} {at} {proof}{name}"),
            "c" => format!("{version} c 0 {at} {name}"),
            kind => format!("{version} {kind} {arrival} {at} {proof}{name}"),
        }
    }

    fn proof(&mut self, known: &Known) -> String {
        match self.draw(4) {
            0 => "0".repeat(40),
            1 => known.proof(self.draw(1000)).unwrap_or_default(),
            _ => (0..40).map(|_| format!("{:x}", self.draw(16))).collect(),
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// What a stranger may know, which is all but the claims' ids.
struct Known {
    inboxes: Vec<String>,
    arrivals: Vec<String>,
    numbers: Vec<String>,
    times: Vec<String>,
    names: Vec<String>,
    heard: Vec<Message>,
}

impl Known {
    fn of(look: &Snapshot, stores: &[Arc<RedisStore>], heard: Vec<Message>) -> Self {
        let (mut arrivals, mut numbers, mut times) = (Vec::new(), Vec::new(), Vec::new());
        numbers.extend(["0", "9007199254740991", "18446744073709551615"].map(str::to_owned));
        let claims = (look.holders.iter().map(|holder| &holder.claim))
            .chain(look.waiters.iter().map(|waiter| &waiter.claim));
        for claim in claims {
            // More often right than not.
            arrivals.extend(vec![claim.arrival.to_string(); 4]);
            arrivals.push((claim.arrival.0 + 1).to_string());
            times.push(claim.deadline.0.to_string());
        }
        numbers.push(look.last_token.to_string());
        numbers.push((look.last_token.get() + 1).to_string());
        times.extend([0, look.at.0, look.at.0 + 1_000_000].map(|at| at.to_string()));
        let inboxes = stores.iter().map(|store| store.inbox().as_str().to_owned());
        Self {
            inboxes: inboxes.collect(),
            arrivals,
            numbers,
            times,
            names: ["k", "k", "k", "other"].map(str::to_owned).to_vec(),
            heard,
        }
    }

    /// A proof that was heard.
    fn proof(&self, at: usize) -> Option<String> {
        let proofs: Vec<_> = (self.heard.iter())
            .flat_map(|(_, line)| line.split([' ', '\n']))
            .filter(|word| word.len() == 40)
            .collect();
        let at = at % proofs.len().max(1);
        proofs.get(at).map(|proof| (*proof).to_owned())
    }
}

const ROUNDS: usize = 5;
const TRIES: usize = 1_000;
const AT_ONCE: usize = 50;

/// Two clients take turns at one key; in each turn one holds and the other waits, while a
/// stranger tries what it can, and then again as the other holds.
#[tokio::test]
async fn a_user_with_channels_and_no_keys_is_not_believed() {
    let server = server();
    let (one, two) = (client(&server).await, client(&server).await);
    let (clients, stores) = ([one.0, two.0], [one.1, two.1]);
    let mut stranger = Stranger::come(&server).await;
    let key = Key::new("k").unwrap();
    let mut said = BTreeMap::new();
    for round in 0..ROUNDS {
        let (holder, waiter) = (&clients[round % 2], &clients[(round + 1) % 2]);
        let (held, waiting) = contended(holder, waiter, "k").await;
        if round == 3 {
            // What was heard before is said on new connections.
            server.command(&["CLIENT", "KILL", "USER", "default"]);
            let back = async || stores[0].inspect(&key).await.is_ok();
            until("a new connection", back).await;
        }
        let token = held.token();
        for _ in 0..TRIES / AT_ONCE {
            let tried = try_it(&mut stranger, &stores, &mut said).await;
            assert!(!waiting.is_finished(), "a forged grant or end: {tried:#?}");
            still_held(&held, &tried);
            assert_eq!(held.token(), token);
        }
        let lease = hand_over(held, waiting).await;
        let token = stores[0].inspect(&key).await.unwrap().holders[0].token;
        assert_eq!(lease.token(), token, "the genuine one");
        stranger.hears_a_grant(&said).await;
        for _ in 0..TRIES / AT_ONCE {
            still_held(&lease, &try_it(&mut stranger, &stores, &mut said).await);
            assert_eq!(lease.token(), token);
        }
        give_back(lease).await;
    }
    assert_eq!(said.values().sum::<usize>(), 2 * ROUNDS * TRIES);
}

fn still_held(lease: &Lease, tried: &[Message]) {
    assert_eq!(lease.state(), LeaseState::Held, "{tried:#?}");
    assert!(lease.is_valid());
}

/// Tries several things, and waits until all have been heard.
async fn try_it(
    stranger: &mut Stranger,
    stores: &[Arc<RedisStore>; 2],
    said: &mut BTreeMap<Message, usize>,
) -> Vec<Message> {
    let key = Key::new("k").unwrap();
    let look = stores[0].inspect(&key).await.unwrap();
    let heard = stranger.heard();
    // What it said itself comes back to it, and drowns the rest.
    let genuine = heard.into_iter().filter(|it| !said.contains_key(it));
    let known = Known::of(&look, stores, genuine.collect());
    let tried: Vec<_> = (0..AT_ONCE).map(|_| stranger.forge(&known)).collect();
    for message in &tried {
        *said.entry(message.clone()).or_default() += 1;
    }
    stranger.publish(&tried).await;
    for store in stores {
        // Pushes and answers come in one order.
        store.inspect(&key).await.unwrap();
    }
    yield_now().await;
    tried
}

/// Each hint makes a claim ask, and a flood of them does not make it ask in a flood.
#[tokio::test]
async fn a_flood_of_hints_costs_few_questions() {
    const CLAIMS: usize = 4;
    let server = server();
    let ((holder, _), (client, store)) = (client(&server).await, client(&server).await);
    let mut stranger = Stranger::come(&server).await;
    let mut held = Vec::new();
    let mut lines = Vec::new();
    for number in 0..CLAIMS {
        let name = format!("k{number}");
        held.push(lock(&holder, &name).await);
        let mutex = client.mutex(&name).unwrap();
        tokio::spawn(async move { mutex.lock().await.unwrap().release().await });
        in_line(&holder, &name, 1).await;
        let look = store.inspect(&Key::new(&name).unwrap()).await.unwrap();
        let arrival = look.waiters[0].claim.arrival;
        for version in [1, 2] {
            lines.push(format!("{version} n {arrival} 0 {} {name}", look.at.0));
            lines.push(format!("{version} c 0 {} {name}", look.at.0));
        }
    }
    let mut leaders = client.election("k0").unwrap().observe();
    let watching = tokio::spawn(async move { while leaders.next().await.is_ok() {} });
    let channel = format!("leasehold:inbox:{}", store.inbox().as_str());
    let flood = vec![(channel, lines.join("\n")); 10];

    let asked = |stats: &Stats| stats.command("evalsha").calls;
    let (before, began) = (asked(&server.stats()), Instant::now());
    let mut messages = 0;
    while began.elapsed() < Duration::from_secs(2) {
        stranger.publish(&flood).await;
        messages += flood.len();
    }
    let (after, seconds) = (asked(&server.stats()), began.elapsed().as_secs() + 1);
    watching.abort();
    // Four that wait, and one that looks, with two questions each time.
    let most = (CLAIMS as u64 + 2) * (20 + 25 * seconds);
    let questions = after - before;
    assert!(
        questions <= most,
        "{questions} questions, and {most} at most, for {messages} messages"
    );
    for lease in held {
        give_back(lease).await;
    }
}
