//! Many clients that want one key, while the server that has it falls.

use super::*;

/// A grant: when, to which client, and under which token.
type Granted = (Instant, usize, Token);

pub(crate) struct Crowd {
    over: Arc<AtomicBool>,
    grants: Arc<Mutex<Vec<Granted>>>,
    clients: JoinSet<u32>,
}

impl Crowd {
    const SIZE: usize = 50;
    /// In a cluster its slot is that of the word in braces.
    pub(crate) const KEY: &str = "{crowd}k";

    /// Clients that are opened so, and contend from then on.
    pub(crate) async fn start(open: impl AsyncFn() -> Client) -> Self {
        let mut crowd = Self {
            over: Arc::default(),
            grants: Arc::default(),
            clients: JoinSet::new(),
        };
        for number in 0..Self::SIZE {
            let lock = open().await.mutex(Self::KEY).unwrap();
            let (over, grants) = (crowd.over.clone(), crowd.grants.clone());
            crowd.clients.spawn(async move {
                let mut unanswered = 0;
                while !over.load(Ordering::SeqCst) {
                    match timeout(LIMIT, lock.lock()).await.expect("nobody hangs") {
                        Ok(lease) => {
                            let grant = (Instant::now(), number, lease.token());
                            grants.lock().unwrap().push(grant);
                            sleep(ms(2)).await;
                            // Unknown is an answer here: it goes on in the background.
                            let _ = timeout(LIMIT, lease.release()).await.expect("nobody hangs");
                        }
                        Err(error) => {
                            is_error(&error, ErrorKind::Unavailable, &[]);
                            unanswered += 1;
                        }
                    }
                }
                unanswered
            });
        }
        let begun = Instant::now();
        let many = async || crowd.since(begun).len() > 4 * Self::SIZE;
        until("contention", many).await;
        crowd
    }

    fn since(&self, moment: Instant) -> Vec<Granted> {
        let mut grants = self.grants.lock().unwrap().clone();
        grants.retain(|(at, ..)| *at > moment);
        grants
    }

    /// The server that fell then has just been replaced: a client is granted the key within this
    /// time, then each of them, and tokens have risen all the while.
    pub(crate) async fn goes_on(mut self, fell: Instant, limit: Duration) {
        let replaced = Instant::now();
        // Answers that were on their way have arrived by then.
        let quiet = fell + ms(500);
        until("a grant", async || !self.since(quiet).is_empty()).await;
        let (first, ..) = self.since(quiet)[0];
        let (replaced_after, first_after) = (replaced - fell, first - fell);
        eprintln!("replaced after {replaced_after:?}, a grant after {first_after:?}");
        assert!(first <= replaced + limit, "{first_after:?}");
        until("a grant for each", async || {
            let served = self.since(first).into_iter().map(|(_, who, _)| who);
            served.collect::<BTreeSet<_>>().len() == Self::SIZE
        })
        .await;
        eprintln!("all served after {:?}", fell.elapsed());
        self.over.store(true, Ordering::SeqCst);
        let mut unanswered = 0;
        while let Some(ended) = soon("the end", self.clients.join_next()).await {
            unanswered += ended.unwrap();
        }
        let grants = self.grants.lock().unwrap();
        eprintln!("{} grants, {unanswered} times unavailable", grants.len());
        let rise = grants.is_sorted_by(|(.., a), (.., b)| a < b);
        assert!(rise, "tokens rise");
    }
}
