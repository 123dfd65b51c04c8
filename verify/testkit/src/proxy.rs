//! A network that misbehaves as the test says: a TCP proxy between a client and a server.
//!
//! ```no_run
//! # async fn example() {
//! use leasehold_testkit::proxy::Proxy;
//! use leasehold_testkit::server::RedisServer;
//!
//! let server = RedisServer::start();
//! let proxy = Proxy::to(&server);
//! let lost = proxy.swallow_reply_of(|command| command.is("EVALSHA"), 1);
//! // … a client connects to `proxy.url()` and runs a script …
//! lost.wait().await; // The script has run, and its client will never know.
//! # }
//! ```
//!
//! # What holds of every fault
//!
//! - It begins and ends when the method is called, and affects **every byte that reaches the proxy
//!   after the call has returned**, on connections old and new, and no byte before.
//! - Faults add up, and last until [`Proxy::heal`].
//! - An "n-th command" is counted from the call, over all connections, from 1.
//! - What has to be waited for is an [`Event`]; a test needs no sleep.
//! - A predicate is shown each command once. It must not panic, nor use the proxy.
//!
//! A server that is down shows through the proxy as connections that are accepted and then reset;
//! see [`Proxy::refuse`] for the other kind.
//!
//! # What it understands
//!
//! Commands (arrays of bulk strings) and their answers, in Redis protocol 2 and 3, pipelines and
//! subscriptions included: enough to say which answer belongs to which command. Not understood are
//! commands that change whether they are answered (`CLIENT REPLY`, `MONITOR`) and an unsubscribe
//! without a name. What a replica is sent, and a stream of anything else, such as TLS, passes uncut:
//! no command of it is seen, and all faults that name none work.
//!
//! Children that a test starts by other means than [`spawn_tied`](crate::process::spawn_tied) have
//! copies of the proxy's sockets until they run: what closes meanwhile may close a moment late.
//!
//! The proxy lives on a thread and a runtime of its own, so that it works while a test blocks, and
//! in real time while the time of a test's runtime stands still. Both end when it is dropped.

mod connection;
mod desk;
mod event;
mod faults;
pub mod resp;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::process::{PATIENCE, forks_settled};
use crate::server::{Port, RedisServer};
use connection::What;
use desk::{Desk, Order, Verb};
pub use event::{Event, Held};
use faults::{Action, Gate, Isolated, Rule, Shared};

/// A TCP proxy on a loopback port of its own, with faults; see the [module](self).
///
/// Its methods return when the change is made. Dropping it closes its connections and its port.
pub struct Proxy {
    port: Port,
    upstream: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// A way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Answers and pushes.
    ToClient,
}

/// Who connects to the proxy, by the address that it connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Everybody.
    All,
    /// Those at this address.
    At(IpAddr),
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Who has connected to the proxy.
    Client,
    /// Whom the proxy has connected to.
    Server,
}

impl End {
    /// Where what it says goes.
    fn speaks(self) -> Direction {
        match self {
            Self::Client => Direction::ToServer,
            Self::Server => Direction::ToClient,
        }
    }
}

/// What has passed since the proxy was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those of them that are not over.
    pub open: u64,
    /// Whole commands that clients have sent, delivered or not.
    pub requests: u64,
    /// Those of them that the server has answered, delivered or not.
    pub answers: u64,
}

/// A command on its way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    arguments: Vec<Vec<u8>>,
}

impl Command {
    /// Whether this is its name, in whatever case.
    pub fn is(&self, name: &str) -> bool {
        self.arguments[0].eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether one of its arguments contains the text, such as a key.
    pub fn has(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let mut arguments = self.arguments.iter().skip(1);
        text.is_empty() || arguments.any(|all| all.windows(text.len()).any(|part| part == text))
    }

    /// Its name and its arguments, as sent; there is always a name.
    pub fn arguments(&self) -> &[Vec<u8>] {
        &self.arguments
    }
}

impl Proxy {
    /// Starts a proxy in front of a server of this testkit.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    pub fn to(server: &RedisServer) -> Self {
        let mut proxy = Self::start(server.address());
        proxy.url = proxy.through(&server.url());
        proxy
    }

    /// Starts a proxy in front of any address, which need not answer yet.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    pub fn start(upstream: SocketAddr) -> Self {
        let port = Port::reserve();
        let (address, shared) = (port.address(), Arc::new(Shared::default()));
        let (orders, inbox) = mpsc::unbounded_channel();
        let desk = Desk::new(address, upstream, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build();
                let runtime = runtime.expect("a runtime can be built");
                runtime.block_on(desk.attend(inbox));
            })
            .expect("a thread can be started");
        let proxy = Self {
            port,
            upstream,
            url: format!("redis://{address}/"),
            shared,
            orders: Some(orders),
            thread: Some(thread),
        };
        proxy.accept();
        proxy
    }

    /// The URL of the server, through this proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// A URL of the server (of another user, say), through this proxy.
    pub fn through(&self, url: &str) -> String {
        url.replacen(&self.upstream.to_string(), &self.address().to_string(), 1)
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The port on which the proxy listens.
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    // ---- what has passed

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until what has passed is like this: `wait_for(|counts| counts.requests >= 3)`.
    ///
    /// # Panics
    ///
    /// When it is not within [`PATIENCE`].
    pub async fn wait_for(&self, mut like: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.shared.counts.subscribe();
        match tokio::time::timeout(PATIENCE, counts.wait_for(|counts| like(counts))).await {
            Ok(counts) => *counts.expect("the sender is ours"),
            Err(_) => panic!(
                "waited {PATIENCE:?}, but all that passed is {:?}",
                self.counts()
            ),
        }
    }

    /// The event that a client has sent the `n`-th command from now on that `matches`.
    ///
    /// It happens when the proxy has the command. That the server has executed it is another
    /// matter.
    ///
    /// # Panics
    ///
    /// When `n` is 0: commands are counted from 1.
    pub fn request(&self, matches: impl FnMut(&Command) -> bool + Send + 'static, n: u64) -> Event {
        self.rule(matches, n, Action::Watch, "a command was sent")
    }

    // ---- faults

    /// Closes all connections, those included that are not yet accepted. New ones are welcome.
    ///
    /// What was on its way, or held, is lost.
    pub fn cut(&self) {
        self.order(Verb::Tell(What::Close { reset: false }, Isolated::all()));
    }

    /// As [`Self::cut`], but resets them: an end that reads or writes sees an error instead of a
    /// mere end.
    pub fn reset(&self) {
        self.order(Verb::Tell(What::Close { reset: true }, Isolated::all()));
    }

    /// Refuses new connections, as a host does whose server is down. Old ones live on.
    pub fn refuse(&self) {
        self.order(Verb::Refuse);
    }

    /// Accepts new connections again.
    pub fn accept(&self) {
        self.order(Verb::Accept);
    }

    /// Delivers everything in a direction later by `delay`, in its order; [`Duration::ZERO`] ends
    /// it for what comes from then on.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.shared.faults().lane(direction).delay = delay;
    }

    /// Accepts everything in a direction and delivers nothing, not even the end of a connection.
    ///
    /// A connection that has lost bytes this way stays silent in this direction for good, since the
    /// rest of its stream would make no sense. For a partition that heals, see [`Self::hold`].
    pub fn black_hole(&self, direction: Direction) {
        self.shared.faults().lane(direction).black = true;
    }

    /// Holds everything in a direction until [`Self::resume`] delivers it, late and in its order.
    ///
    /// What a client has sent is delivered even if the client has given up and gone meanwhile:
    /// that is how a late request reaches a server.
    pub fn hold(&self, direction: Direction) {
        self.shared.faults().lane(direction).hold();
    }

    /// Delivers everything that is held in a direction, also by [`Self::hold_request`].
    pub fn resume(&self, direction: Direction) {
        self.shared.faults().lane(direction).resume();
    }

    /// Holds the `n`-th command from now on that `matches`, and all that follows it on its
    /// connection; what came before it is delivered. It goes on by [`Held::release`] or
    /// [`Self::resume`].
    ///
    /// # Panics
    ///
    /// When `n` is 0: commands are counted from 1.
    pub fn hold_request(
        &self,
        matches: impl FnMut(&Command) -> bool + Send + 'static,
        n: u64,
    ) -> Held {
        let gate = Gate::default();
        let mut faults = self.shared.faults();
        faults.lane(Direction::ToServer).closed.push(gate.clone());
        drop(faults);
        let event = self.rule(matches, n, Action::Hold(gate.clone()), "a command was held");
        Held { event, gate }
    }

    /// Executed, but nobody knows: delivers the `n`-th command from now on that `matches`, waits
    /// for its answer, drops it, and cuts the connection. The event happens when that is done.
    ///
    /// Answers to earlier commands are delivered. Commands behind it on the same connection are
    /// not, so that the test knows what the server has done.
    ///
    /// # Panics
    ///
    /// When `n` is 0: commands are counted from 1.
    pub fn swallow_reply_of(
        &self,
        matches: impl FnMut(&Command) -> bool + Send + 'static,
        n: u64,
    ) -> Event {
        let what = "an answer was swallowed";
        self.rule(matches, n, Action::SwallowReplies(1), what)
    }

    /// As [`Self::swallow_reply_of`], for the next command whatever it is, and for the `n` − 1 that
    /// follow it on its connection: all are executed, none is answered, then the connection is cut.
    ///
    /// # Panics
    ///
    /// When `n` is 0.
    pub fn swallow_replies(&self, n: u64) -> Event {
        assert!(n > 0, "no answers to swallow");
        let what = "answers were swallowed";
        self.rule(|_| true, 1, Action::SwallowReplies(n), what)
    }

    /// Not executed, and nobody knows: loses the `n`-th command from now on that `matches`, and cuts
    /// the connection once all earlier ones are answered. The event happens when that is done.
    ///
    /// To its client this looks exactly like [`Self::swallow_reply_of`].
    ///
    /// # Panics
    ///
    /// When `n` is 0: commands are counted from 1.
    pub fn swallow_request(
        &self,
        matches: impl FnMut(&Command) -> bool + Send + 'static,
        n: u64,
    ) -> Event {
        let what = "a command was swallowed";
        self.rule(matches, n, Action::SwallowRequest, what)
    }

    /// Closes the server's end of all connections and tells the client nothing, as a server that has
    /// vanished without a word. New connections are sound.
    pub fn half_open(&self) {
        self.order(Verb::Tell(What::HalfOpen, Isolated::all()));
    }

    /// Takes part in a partition of the network: nothing more passes between these peers and the
    /// server, in either direction, on connections old and new, and nobody is told. Until
    /// [`Self::rejoin`].
    pub fn isolate(&self, peers: Peers) {
        self.shared.faults().isolated.add(peers);
    }

    /// Ends [`Self::isolate`] for these peers ([`Peers::All`] are also those that were isolated one
    /// by one), and resets the connections that they had meanwhile, which have lost bytes. Others
    /// are left alone.
    pub fn rejoin(&self, peers: Peers) {
        let isolated = self.shared.faults().isolated.remove(peers);
        self.order(Verb::Tell(What::Close { reset: true }, isolated));
    }

    /// Ends all faults: accepts connections, delivers what is held, forgets what was to be watched
    /// for. Connections that are gone, torn or half open are not mended.
    pub fn heal(&self) {
        self.shared.faults().clear();
        self.accept();
    }

    // ---- how

    fn rule(
        &self,
        matches: impl FnMut(&Command) -> bool + Send + 'static,
        n: u64,
        action: Action,
        what: &'static str,
    ) -> Event {
        assert!(n > 0, "commands are counted from 1");
        let trigger = Gate::default();
        let happened = trigger.0.subscribe();
        self.shared.faults().rules.push(Rule {
            matches: Box::new(matches),
            left: n,
            action,
            trigger,
        });
        Event { what, happened }
    }

    /// Has the proxy's thread do something, and waits until it is done.
    fn order(&self, verb: Verb) {
        let (done, is_done) = std_mpsc::channel();
        let orders = self.orders.as_ref().expect("the proxy is not dropped");
        let _ = orders.send(Order { verb, done });
        let answer = is_done.recv_timeout(PATIENCE);
        answer.expect("the proxy's thread lives");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        forks_settled();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Proxy")
            .field("url", &self.url)
            .field("upstream", &self.upstream)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
