//! Follows the primary that Sentinels watch: connects to it, and reconnects after a fail-over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_store::{ErrorKind, StoreError};
use redis::PushKind;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::address::Address;
use super::dial::dial;
use super::endpoint::{Endpoint, Opened};
use super::manager::ConnectionManager;
use super::rights::forbidden_or_lost;
use super::sentinel::{self, Answered, Failures, Named};
use super::socket::{OnPush, Socket};
use super::target::Common;
use crate::errors;
use crate::options::RedisOptions;
use crate::options::sentinels::Sentinels;
use crate::std_ext::lock;

/// The channel on which Sentinels tell of fail-overs.
const SWITCHED: &str = "+switch-master";

/// How often the Sentinel that is listened to is asked as well: a connection can
/// fall silent, and a message can be missed.
const CHECK: Duration = Duration::from_secs(10);

/// The pause after every Sentinel was found silent.
const PAUSE: Duration = Duration::from_secs(1);

/// The Sentinels and what is known of them, and how to connect to them and to what they
/// name.
pub(crate) struct Search {
    pub(crate) sentinels: Sentinels,
    /// The Sentinels that are known.
    pub(crate) nodes: Vec<Address>,
    /// How Sentinels are reached, and who logs in there.
    pub(super) options: RedisOptions,
    common: Arc<Common>,
    /// The one that answered last comes first.
    order: Mutex<Vec<Address>>,
    /// The highest epoch that any has named, and what those that are behind have named since.
    epochs: Mutex<(u64, BTreeMap<Address, u64>)>,
}

impl Search {
    pub(crate) fn new(sentinels: Sentinels, options: &RedisOptions, common: &Arc<Common>) -> Self {
        let address = |(host, port): &(String, u16)| Address::new(host, *port);
        let nodes: Vec<_> = sentinels.nodes.iter().map(address).collect();
        let mut options = options.clone();
        options.db = 0;
        // A silent one must not use up the time.
        let limit = (options.connect_timeout / 10).max(Duration::from_millis(100));
        (options.connect_timeout, options.response_timeout) = (limit, limit);
        let (user, password) = (&sentinels.username, &sentinels.password);
        options.access.set_login(user.clone(), password.clone());
        Self {
            order: Mutex::new(nodes.clone()),
            epochs: Mutex::default(),
            nodes,
            sentinels,
            options,
            common: Arc::clone(common),
        }
    }

    /// The Sentinels in the order in which to ask them.
    fn order(&self) -> Vec<Address> {
        lock(&self.order).clone()
    }

    /// This one is asked first from now on, or last.
    fn rank(&self, node: &Address, first: bool) {
        lock(&self.order).sort_by_key(|other| (other == node) != first);
    }

    /// Whether another has named a primary of a later fail-over already: then
    /// this one has not heard of it yet, or cannot. `listens`: a connection may stand, which is not
    /// left for what a single address says, as several Sentinels may be behind it.
    fn is_stale(&self, node: &Address, named: &Named, listens: bool) -> bool {
        let (latest, behind) = &mut *lock(&self.epochs);
        let Some(epoch) = named.epoch.filter(|epoch| *epoch < *latest) else {
            behind.clear();
            *latest = named.epoch.unwrap_or(0).max(*latest);
            return false;
        };
        behind.insert(node.clone(), epoch);
        // If not a single one is up to date, they were set up anew and count from the beginning. Most
        // of them are not enough: those that are silent may know of a primary that is in use.
        let counts = behind.len() > 1 || !listens;
        if counts && self.nodes.iter().all(|node| behind.contains_key(node)) {
            *latest = behind.values().copied().max().unwrap_or(0);
            behind.clear();
        }
        true
    }

    /// Asks the Sentinels in turn, and connects to the primary that they name.
    /// What they name counts only if it says itself that it is one.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
        hearing: Option<OnPush>,
    ) -> Result<Opened, StoreError> {
        let mut failures = Failures::default();
        let (mut tried, mut refused) = (Vec::new(), None);
        for node in &self.order() {
            match self.ask(node).await {
                Err(error) => failures.failed(node, error),
                Ok(Err(names)) => failures.unknown(node, names),
                Ok(Ok(named)) if self.is_stale(node, &named, false) => {
                    failures.named(node, &named.primary, sentinel::behind());
                }
                Ok(Ok(named)) if tried.contains(&named.primary) => {}
                Ok(Ok(named)) => match endpoint.open_named(&named, hearing.clone()).await {
                    Ok(opened) => {
                        self.rank(node, true);
                        return Ok(opened);
                    }
                    Err(error) => {
                        if error.kind() == ErrorKind::Unavailable {
                            failures.named(node, &named.primary, error);
                        } else {
                            // It may be another server by now, where this Sentinel is behind.
                            refused = Some(error);
                        }
                        tried.push(named.primary);
                    }
                },
            }
        }
        Err(refused.unwrap_or_else(|| failures.into_error(&self.sentinels.master)))
    }

    async fn ask(&self, node: &Address) -> Result<Answered, StoreError> {
        let sentinel = self.reach(node, None).await?;
        let (master, limit) = (&self.sentinels.master, self.options.connect_timeout);
        sentinel::ask(&sentinel, master, limit).await
    }

    /// Connects to one Sentinel.
    pub(crate) async fn reach(
        &self,
        node: &Address,
        push: Option<OnPush>,
    ) -> Result<Socket, StoreError> {
        let address = node.reached(&self.options);
        let mut target = self.common.target(address, &self.options).await?;
        target.push = push;
        dial(&target, true).await.map_err(|error| {
            let error = errors::of_opening(error, &self.common.dialling(&target));
            match errors::is_of_login(&error) {
                true => error.with_hint(
                    "set the login for the Sentinels with `sentinel_user` and `sentinel_pass`",
                ),
                false => error,
            }
        })
    }

    /// Listens to one Sentinel until it falls silent.
    async fn listen(
        &self,
        node: &Address,
        link: &Weak<ConnectionManager>,
    ) -> Result<(), StoreError> {
        let switched = Arc::new(Notify::new());
        let (heard, limit) = (Arc::clone(&switched), self.options.connect_timeout);
        let push: OnPush = Arc::new(move |info, _| {
            if matches!(info.kind, PushKind::Message | PushKind::Disconnection) {
                heard.notify_one();
            }
        });
        let sentinel = self.reach(node, Some(push)).await?;
        let subscribed = sentinel.ask(redis::cmd("SUBSCRIBE").arg(SWITCHED)).await;
        // Where that is forbidden, it is only asked.
        forbidden_or_lost(subscribed)?.ok();
        loop {
            let named = match sentinel::ask(&sentinel, &self.sentinels.master, limit).await? {
                Ok(named) if !self.is_stale(node, &named, true) => named,
                _ => return Err(sentinel::behind()),
            };
            let Some(link) = link.upgrade() else {
                return Ok(());
            };
            link.heard_of(&named);
            drop(link);
            tokio::select! {
                () = switched.notified() => {}
                () = sleep(CHECK) => {}
            }
        }
    }
}

/// Looks out for fail-overs, so that a primary which was only stopped is left
/// before its answers are given up, and is not believed when it goes on.
pub(crate) async fn look_out(search: Arc<Search>, link: Weak<ConnectionManager>) {
    while link.strong_count() > 0 {
        for _ in &search.nodes {
            // Anew each time: whoever connects may have found one that answers.
            let node = search.order().swap_remove(0);
            let Err(error) = search.listen(&node, &link).await else {
                return;
            };
            tracing::debug!(sentinel = %node, %error, "cannot listen to the Sentinel");
            search.rank(&node, false);
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        let sentinels = Sentinels::new(["a", "b", "c"], "m").unwrap();
        Search::new(sentinels, &RedisOptions::default(), &Arc::default())
    }

    fn first_letters(search: &Search) -> String {
        search
            .order()
            .iter()
            .map(|node| node.host.as_str())
            .collect()
    }

    fn node(host: &str) -> Address {
        Address::new(host, 26379)
    }

    fn named(epoch: u64) -> Named {
        Named {
            primary: Address::new("h", 1),
            epoch: Some(epoch),
        }
    }

    #[test]
    fn who_answers_is_asked_first() {
        let search = search();
        search.rank(&node("c"), true);
        assert_eq!(first_letters(&search), "cab");
        search.rank(&node("c"), true);
        search.rank(&node("a"), false);
        assert_eq!(first_letters(&search), "cba");
        search.rank(&node("c"), false);
        assert_eq!(first_letters(&search), "bac");
        search.rank(&node("unknown"), true);
        assert_eq!(first_letters(&search), "bac");
    }

    #[test]
    fn a_sentinel_that_missed_a_fail_over_is_not_believed() {
        let search = search();
        let is_stale = |host: &str, epoch| search.is_stale(&node(host), &named(epoch), true);
        assert!(!is_stale("a", 3));
        assert!(!is_stale("a", 4));
        assert!(is_stale("b", 3));
        assert!(is_stale("b", 0), "one that was set up anew");
        let silent = Named {
            epoch: None,
            ..named(0)
        };
        assert!(!search.is_stale(&node("c"), &silent, true));
    }

    /// Whether they are asked in one round, or one is listened to after the other.
    #[test]
    fn sentinels_that_were_set_up_anew_count_from_the_beginning() {
        let search = search();
        let is_stale = |host: &str, epoch| search.is_stale(&node(host), &named(epoch), true);
        assert!(!is_stale("a", 9));
        assert!(is_stale("b", 1) && is_stale("c", 2));
        assert!(!is_stale("a", 9), "one knows better");
        assert!(is_stale("a", 1) && is_stale("b", 1) && is_stale("c", 2));
        assert!(is_stale("a", 1));
        assert!(!is_stale("c", 2));
    }

    /// One of those behind it may have missed a fail-over.
    #[test]
    fn a_connection_is_not_left_for_what_a_single_address_says() {
        let sentinels = Sentinels::new(["a"], "m").unwrap();
        let search = Search::new(sentinels, &RedisOptions::default(), &Arc::default());
        let is_stale = |epoch, listens| search.is_stale(&node("a"), &named(epoch), listens);
        assert!(!is_stale(9, true));
        for _ in 0..2 {
            assert!(is_stale(1, true));
        }
        assert!(is_stale(1, false));
        assert!(!is_stale(1, false), "without a connection it is believed");
    }
}
