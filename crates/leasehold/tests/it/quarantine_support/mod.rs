//! Clients that contend for a key while its server loses data, and a witness of the validity of
//! each lease.

use leasehold::core::{Claim, ClaimId, Command, Key, Mode, Renew, Reply, Token, drift_allowance};
use leasehold::store::Answer;

use crate::redis_support::*;

/// The longest TTL that the clients here use.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(1);

/// A lease as its client believes in it.
struct Belief {
    number: u64,
    from: Instant,
    until: Instant,
}

/// What the clients have seen.
#[derive(Default)]
pub(crate) struct Witness {
    over: AtomicBool,
    numbers: AtomicU64,
    beliefs: Mutex<Vec<Belief>>,
    /// By the time of the server.
    tokens: Mutex<Vec<(u64, Token)>>,
    pub(crate) quarantined: AtomicU64,
}

impl Witness {
    /// A client believes from `from` to `until`; it may prolong that.
    fn believes(&self, number: u64, from: Instant, until: Instant) {
        let mut beliefs = self.beliefs.lock().unwrap();
        match beliefs.iter_mut().find(|belief| belief.number == number) {
            Some(belief) => belief.until = until,
            None => beliefs.push(Belief {
                number,
                from,
                until,
            }),
        }
    }

    /// It has let go.
    fn stops(&self, number: u64) {
        let now = Instant::now();
        let mut beliefs = self.beliefs.lock().unwrap();
        if let Some(belief) = beliefs.iter_mut().find(|belief| belief.number == number) {
            belief.until = belief.until.min(now);
        }
    }

    pub(crate) fn grants(&self) -> usize {
        self.beliefs.lock().unwrap().len()
    }

    /// How often two believed to hold at the same time.
    pub(crate) fn double_grants(&self) -> usize {
        let mut beliefs = self.beliefs.lock().unwrap();
        beliefs.sort_by_key(|belief| belief.from);
        let overlap = |pair: &[Belief]| pair[1].from < pair[0].until;
        beliefs.windows(2).filter(|pair| overlap(pair)).count()
    }

    /// Tokens rise in the order of the grants.
    pub(crate) fn assert_tokens_rise(&self) {
        let mut tokens = self.tokens.lock().unwrap();
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by(|(_, a), (_, b)| a < b), "{tokens:?}");
    }
}

/// Clients at work.
pub(crate) struct Contention {
    pub(crate) witness: Arc<Witness>,
    tasks: JoinSet<()>,
}

impl Contention {
    /// So many clients, each with a store of its own.
    pub(crate) async fn start(url: &str, clients: u64, seed: u64) -> Self {
        let witness = Arc::new(Witness::default());
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let store = connect(url).await.unwrap();
            tasks.spawn(contend(store, Dice(seed * 100 + client), witness.clone()));
        }
        Self { witness, tasks }
    }

    pub(crate) async fn stop(self) -> Arc<Witness> {
        self.witness.over.store(true, Ordering::Release);
        self.tasks.join_all().await;
        self.witness
    }
}

/// One client: it claims, sometimes in line, holds, renews or not, releases or
/// lets the lease lapse.
async fn contend(store: RedisStore, mut dice: Dice, witness: Arc<Witness>) {
    let key = Key::new("k").unwrap();
    while !witness.over.load(Ordering::Acquire) {
        let number = witness.numbers.fetch_add(1, Ordering::AcqRel);
        let id = ClaimId::from_random(u128::from(number) << 64 | u128::from(dice.roll(1 << 60)));
        // Some as long as may be: those are forgotten while they are valid.
        let ttl = [MAX_TTL, dice.millis(200, 500)][usize::from(dice.roll(3) > 0)];
        let claim = Claim {
            wait: dice.roll(2) == 0,
            ..Claim::new(id.clone(), Mode::EXCLUSIVE, ttl)
        };
        let mut sent = Instant::now();
        let mut answer = store.step(&key, &Command::Claim(claim)).await;
        while waits(&answer) {
            sleep(dice.millis(5, 30)).await;
            sent = Instant::now();
            let renew = Renew::new(id.clone(), ttl);
            answer = store.step(&key, &Command::Renew(renew)).await;
        }
        match answer {
            Ok(answer) if answer.holds() => {
                let valid = |sent: Instant| sent + ttl - drift_allowance(ttl);
                witness.believes(number, Instant::now(), valid(sent));
                if let Reply::Standing(standing) = answer.reply {
                    let token = standing.token.expect("it holds");
                    witness.tokens.lock().unwrap().push((answer.at.0, token));
                }
                hold(&store, &key, &id, ttl, number, &mut dice, &witness).await;
            }
            Ok(answer) => {
                if matches!(answer.reply, Reply::Quarantined { .. }) {
                    witness.quarantined.fetch_add(1, Ordering::AcqRel);
                }
                sleep(dice.millis(5, 30)).await;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                // It may stand in line, or hold by an answer that was lost.
                let _ = store.release(&key, &release_of(id.clone())).await;
                sleep(dice.millis(5, 30)).await;
            }
        }
    }
}

async fn hold(
    store: &RedisStore,
    key: &Key,
    id: &ClaimId,
    ttl: Duration,
    number: u64,
    dice: &mut Dice,
    witness: &Witness,
) {
    for _ in 0..dice.roll(3) {
        sleep(ttl / 4).await;
        let sent = Instant::now();
        match store.renew(key, &Renew::new(id.clone(), ttl)).await {
            Ok(answer) if answer.holds() => {
                witness.believes(number, sent, sent + ttl - drift_allowance(ttl));
            }
            // It is lost, and the client knows.
            Ok(_) => return witness.stops(number),
            Err(_) => {}
        }
    }
    if dice.roll(3) > 0 {
        witness.stops(number);
        let _ = store.release(key, &release_of(id.clone())).await;
    }
}

/// Whether a claim stands in line.
fn waits<E>(answer: &Result<Answer, E>) -> bool {
    let waits = |reply: Reply| matches!(reply, Reply::Standing(it) if it.token.is_none());
    answer.as_ref().is_ok_and(|answer| waits(answer.reply))
}

/// How long the error says to wait.
pub(crate) fn retry_after(error: &Error) -> Duration {
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    error.retry_after().expect("it says when")
}
