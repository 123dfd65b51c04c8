//! The suites of cases on servers that all cases share: a prefix of its own makes each of them a
//! fresh store.

use leasehold_redis::{ManyNodes, OneServer, Votes};
use leasehold_store::access::Access;
use leasehold_store::scheme::Scheme;
use leasehold_testkit::facade::cancellations;
pub(crate) use leasehold_testkit::server::{Program, RedisServer};
use tokio::sync::OnceCell;

use crate::steps::*;

/// A store at a URL, of one case.
pub(crate) struct Case {
    /// With the prefix, as far as the next parameter.
    url: String,
    servers: Vec<&'static RedisServer>,
    prefix: String,
    /// Marks the servers as new, when the first client comes.
    marks: Option<OnceCell<()>>,
    /// The parameter of a client with an audit log, where there is one.
    audit: &'static str,
    short: Duration,
    cancellations: usize,
}

impl Case {
    /// On a deployment at this URL, which names a user if one is meant and no parameters.
    pub(crate) fn at(url: &str, servers: impl IntoIterator<Item = &'static RedisServer>) -> Self {
        static CASES: AtomicUsize = AtomicUsize::new(0);
        // As those see it who may use `app:` only.
        let prefix = format!("app:case-{}:", CASES.fetch_add(1, Ordering::Relaxed));
        // No server is silent here, and a busy machine must not look like it.
        let is_vote = url.starts_with("redlock");
        let patient = if is_vote { "" } else { "&response_timeout=30s" };
        Self {
            url: format!("{url}?prefix={prefix}{patient}"),
            servers: servers.into_iter().collect(),
            prefix,
            marks: None,
            audit: "&audit=1000",
            short: Duration::from_millis(300),
            cancellations: cancellations(),
        }
    }

    /// With these parameters of the URL, too.
    pub(crate) fn with(mut self, parameters: &str) -> Self {
        self.url = format!("{}&{parameters}", self.url);
        self
    }

    /// On servers that are marked as new when the first client comes.
    pub(crate) fn marked(mut self) -> Self {
        self.marks = Some(OnceCell::new());
        self
    }

    /// In the layout of other libraries, which has no audit log.
    pub(crate) fn classic(mut self) -> Self {
        self.audit = "";
        self.with("layout=classic")
    }

    /// On several servers, where all takes longer.
    pub(crate) fn slow(mut self) -> Self {
        self.short = Duration::from_secs(1);
        self
    }

    pub(crate) fn cancellations(mut self, cancellations: usize) -> Self {
        self.cancellations = cancellations;
        self
    }

    async fn open(&self, parameters: &str) -> Arc<dyn LockStore> {
        let url = format!("{}{parameters}", self.url);
        let schemes: [&dyn Scheme; 3] = [&OneServer, &ManyNodes, &Votes];
        let name = url.split(':').next().unwrap();
        let of_url = |scheme: &&dyn Scheme| scheme.names().contains(&name);
        let scheme = schemes.into_iter().find(of_url).unwrap();
        if let Some(marked) = &self.marks {
            let mark = async || {
                let servers = scheme.initialise(&url, &Access::default()).await;
                for server in servers.unwrap() {
                    server.outcome.unwrap();
                }
            };
            marked.get_or_init(mark).await;
        }
        let store = scheme.open(&url, &Access::default()).await.unwrap().store;
        // With a connection to each node, which would be opened later otherwise: some cases count
        // what is left open.
        store.list("*").await.unwrap();
        store
    }
}

#[async_trait]
impl Fixture for Case {
    async fn client(&self) -> Arc<dyn LockStore> {
        self.open("").await
    }

    async fn audited(&self) -> Arc<dyn LockStore> {
        self.open(self.audit).await
    }

    fn short(&self) -> Duration {
        self.short
    }
}

impl leasehold_testkit::facade::Fixture for Case {
    fn cancellations(&self) -> usize {
        self.cancellations
    }

    fn open_inboxes(&self) -> Option<usize> {
        let ours = format!("*{}*", self.prefix);
        let channels = |server: &&RedisServer| {
            let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", &ours]);
            channels.len()
        };
        Some(self.servers.iter().map(channels).sum())
    }
}

/// A module for each program of servers, with a deployment that its cases share, and in it modules
/// of suites on what a function makes of it.
macro_rules! suites {
    ($($of:ident: $program:ident { $($name:ident: [$($suite:ident),+] $case:ident),+ $(,)? })+) => {
        $(mod $of {
            use std::sync::LazyLock;

            use leasehold_testkit::server::Program;

            static SHARED: LazyLock<super::Shared> =
                LazyLock::new(|| super::start(Program::$program));

            $(mod $name {
                $($crate::redis_support::case::suite! { $suite super::super::$case(&super::SHARED) })+
            })+
        })+
    };
}

macro_rules! suite {
    (contract $case:expr) => { leasehold_store::contract!($case); };
    (facade $case:expr) => { leasehold_testkit::facade!($case); };
    (quick $case:expr) => { leasehold_testkit::facade!(@quick $case); };
    (limits $case:expr) => { leasehold_testkit::facade!(@limits $case); };
}

pub(crate) use {suite, suites};
