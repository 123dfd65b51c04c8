//! The client processes of a schedule.
#![allow(
    clippy::expect_used,
    reason = "a schedule that cannot be carried out fails with its text, as with the testkit"
)]

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold_testkit::process::{Process, Signal};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::faults::client::{Spec, Task};
use crate::faults::clock::{Shim, WrongClock};
use crate::faults::gate::Gate;
use crate::faults::history::{Micros, Op, assemble, now, read};
use crate::faults::plan::{Fault, Plan};
use crate::faults::site::Site;

/// How long a client may take to end.
const END: Duration = Duration::from_secs(15);

/// How long to wait for somebody to get a key.
const NEXT: Duration = Duration::from_secs(2);

/// All clients, those that died included.
pub(super) struct Clients {
    running: Vec<Running>,
    /// The dead have left their histories; and when they died.
    dead: Vec<(Spec, Micros)>,
    plan: Plan,
    store: String,
    /// For clients with clocks of their own.
    shim: Option<Shim>,
    directory: PathBuf,
}

struct Running {
    spec: Spec,
    process: Process,
    clock: Option<WrongClock>,
}

impl Clients {
    pub(super) fn start(
        plan: &Plan,
        site: &Site,
        shim: &Shim,
        directory: &Path,
    ) -> io::Result<Self> {
        let mut clients = Self {
            running: Vec::new(),
            dead: Vec::new(),
            plan: plan.clone(),
            store: site.url.clone(),
            shim: plan.deployment.clients_have_clocks().then(|| shim.clone()),
            directory: directory.to_owned(),
        };
        for tasks in &plan.clients {
            let client = clients.begin(tasks.clone())?;
            clients.running.push(client);
        }
        Ok(clients)
    }

    /// Starts a client, whose number no other has had.
    fn begin(&self, tasks: Vec<Task>) -> io::Result<Running> {
        let number = self.running.len() + self.dead.len();
        let waits = self.plan.deployment.takes_time();
        let spec = Spec {
            client: number,
            seed: self.plan.seed.wrapping_add(1_000 * number as u64),
            store: self.store.clone(),
            algorithm: self.plan.algorithm,
            ttl: self.plan.ttl,
            operation_timeout: Duration::from_millis(if waits { 3000 } else { 1000 }),
            journal: self.directory.join(format!("client-{number}.jsonl")),
            gate: self.directory.join("gate"),
            tasks,
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("client").arg(serde_json::to_string(&spec)?);
        let mut clock = None;
        if let Some(shim) = &self.shim {
            let path = self.directory.join(format!("client-clock-{number}"));
            let own = clock.insert(WrongClock::create(&path)?);
            command.envs(shim.environment(own));
        }
        let process = Process::spawn(command);
        Ok(Running {
            spec,
            process,
            clock,
        })
    }

    /// Does something to a client, and returns when it is over.
    pub(super) async fn befall(clients: &Mutex<Self>, gate: &Gate, fault: Fault) {
        match fault {
            Fault::KillClient(at) => Self::kill(clients, at).await,
            Fault::StopClient(at, time) => Self::stop(clients, at, time).await,
            Fault::KillHolder => {
                if let Some(at) = Self::next_holder(clients, gate).await {
                    Self::kill(clients, at).await;
                }
            }
            Fault::StopHolder(time) => {
                if let Some(at) = Self::next_holder(clients, gate).await {
                    Self::stop(clients, at, time).await;
                }
            }
            Fault::StepClientClock(at, by) => {
                if let Some(clock) = &clients.lock().await.running[at].clock {
                    clock.step_to(by * 1000).expect("a file can be written");
                }
            }
            _ => {}
        }
    }

    async fn kill(clients: &Mutex<Self>, at: usize) {
        let mut clients = clients.lock().await;
        clients.replace(at).expect("a client can be started");
    }

    async fn stop(clients: &Mutex<Self>, at: usize, millis: u64) {
        let signal = async |signal| clients.lock().await.running[at].process.signal(signal);
        signal(Signal::STOP).await;
        sleep(Duration::from_millis(millis)).await;
        signal(Signal::CONT).await;
    }

    /// The place of the client that gets a key next; none if nobody does for a while.
    async fn next_holder(clients: &Mutex<Self>, gate: &Gate) -> Option<usize> {
        let mut served = gate.served();
        served.mark_unchanged();
        timeout(NEXT, served.changed()).await.ok()?.ok()?;
        let (client, _) = served
            .borrow()
            .iter()
            .max_by_key(|(_, at)| **at)
            .map(|(who, _)| *who)?;
        let clients = clients.lock().await;
        let mut running = clients.running.iter();
        running.position(|running| running.spec.client == client)
    }

    /// Kills a client and starts another in its place.
    fn replace(&mut self, at: usize) -> io::Result<()> {
        // Before, so that nothing counts that it could not do any more.
        let died = now();
        self.running[at].process.signal(Signal::KILL);
        let fresh = self.begin(self.running[at].spec.tasks.clone())?;
        let old = std::mem::replace(&mut self.running[at], fresh);
        self.dead.push((old.spec, died));
        Ok(())
    }

    /// Who is there: client, task, key.
    pub(super) fn tasks(&self) -> Vec<(usize, usize, String)> {
        let tasks = self.running.iter().flat_map(|client| {
            let tasks = client.spec.tasks.iter().enumerate();
            tasks.map(|(task, wish)| (client.spec.client, task, wish.key.clone()))
        });
        tasks.collect()
    }

    pub(super) fn heal(&self) -> io::Result<()> {
        let running = self.running.iter();
        let clocks = running.filter_map(|client| client.clock.as_ref());
        clocks.into_iter().try_for_each(|clock| clock.step_to(0))
    }

    /// Ends all clients, and reads what they have seen.
    pub(super) async fn finish(self) -> io::Result<Vec<Op>> {
        for client in &self.running {
            client.process.signal(Signal::TERM);
        }
        let mut ops = Vec::new();
        for client in self.running {
            let (spec, process) = (client.spec, client.process);
            // One that does not end is killed, and has written down all that it did.
            let ended = timeout(END, process.wait()).await;
            if let Ok(status) = ended
                && !status.success()
            {
                let why = format!("client {}: {status}\n{process}", spec.client);
                return Err(io::Error::other(why));
            }
            drop(process);
            ops.extend(assemble(spec.client, &read(&spec.journal)?, None));
        }
        for (spec, died) in self.dead {
            // It may have died before it could begin.
            if spec.journal.exists() {
                ops.extend(assemble(spec.client, &read(&spec.journal)?, Some(died)));
            }
        }
        Ok(ops)
    }
}
