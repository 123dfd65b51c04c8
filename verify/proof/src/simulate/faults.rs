//! What is disturbed, and when: drawn one after another from the run's seed. Each fault
//! has its end, and all of them have ended before the quiet.

use std::time::Duration;

use clap::ValueEnum;

use super::book::Fact;
use super::chance::Chance;
use super::invariants::Deployment;
use super::stage::Stage;
use super::world::Way;

/// What may be disturbed, as clap lists it. The first two need no servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    StopClient,
    SleepClient,
    KillClient,
    StopServer,
    KillServer,
    CutOneWay,
    CutBothWays,
    Slow,
    Sever,
    ForgetScripts,
    Flush,
    FillMemory,
    StepBack,
    StepForward,
}

/// How a fault ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Nothing,
    StartClient(usize),
    StartServer(usize),
    Open(Way),
    Hasten(Way),
    Empty(usize),
}

/// The faults of a run.
pub(crate) struct Faults {
    chance: Chance,
    kinds: Vec<Kind>,
    next: Duration,
    ends: Vec<(Duration, End)>,
    pub(crate) count: u64,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Faults {
    pub(crate) fn new(stage: &Stage) -> Self {
        let plan = &stage.common.plan;
        let mut chance = Chance::new(plan.seed, "faults");
        let mut all = Kind::value_variants();
        if plan.deployment == Deployment::Memory {
            all = &all[..2];
        }
        // Not everything in every run: what is rare alone shows where it is frequent.
        let mut kinds: Vec<_> = all.iter().copied().filter(|_| chance.percent(60)).collect();
        kinds.retain(|kind| match kind {
            Kind::Flush => plan.loses_data,
            // The steps that a deployment promises to bear, and those that make it forget.
            // A step back makes a quarantine longer by as much.
            Kind::StepBack => {
                plan.deployment == Deployment::Redis && !plan.loses_data && !plan.quarantine
            }
            Kind::StepForward => plan.deployment == Deployment::Redis && plan.loses_data,
            _ => true,
        });
        let next = chance.time(Duration::ZERO..=plan.calm);
        Self {
            chance,
            kinds,
            next,
            ends: Vec::new(),
            count: 0,
        }
    }

    /// When something begins or ends next.
    pub(crate) fn next(&self) -> Duration {
        let ends = self.ends.iter().map(|(at, _)| *at);
        ends.fold(self.next, Duration::min)
    }

    /// Begins and ends what is due.
    pub(crate) fn act(&mut self, stage: &mut Stage) -> std::io::Result<()> {
        let now = stage.now();
        while let Some(at) = self.ends.iter().position(|(at, _)| *at <= now) {
            let (_, end) = self.ends.remove(at);
            undo(stage, end)?;
        }
        if self.next <= now {
            let calm = millis(10)..=stage.common.plan.calm;
            self.next = now + self.chance.mostly_short(calm);
            if !self.kinds.is_empty() {
                let kind = self.kinds[self.chance.index(self.kinds.len())];
                if let Some((lasts, end)) = self.begin(stage, kind) {
                    self.count += 1;
                    self.ends.push((now + lasts, end));
                }
            }
        }
        Ok(())
    }

    /// Ends everything.
    pub(crate) fn end(&mut self, stage: &mut Stage) -> std::io::Result<()> {
        for (_, end) in std::mem::take(&mut self.ends) {
            undo(stage, end)?;
        }
        for host in &mut stage.world.hosts {
            host.wake();
        }
        Ok(())
    }

    /// Begins a fault, if there is somebody to suffer it: how long it lasts.
    fn begin(&mut self, stage: &mut Stage, kind: Kind) -> Option<(Duration, End)> {
        let range = millis(5)..=stage.common.plan.ttl * 3;
        let lasts = self.chance.mostly_short(range);
        let client = self.chance.index(stage.guests.len());
        let server = self.chance.index(stage.servers.len().max(1));
        let (what, end) = match kind {
            Kind::StopClient | Kind::SleepClient => {
                let host = stage.guests[client].host;
                self.stop(stage, host, lasts, kind == Kind::SleepClient)?
            }
            Kind::StopServer => {
                let host = stage.servers[server].host;
                self.stop(stage, host, lasts, false)?
            }
            Kind::KillClient => self.kill_client(stage, client)?,
            Kind::KillServer => self.kill_server(stage, server)?,
            Kind::CutOneWay | Kind::CutBothWays => {
                let way = self.way(stage, client, server);
                self.cut(stage, way, lasts, kind == Kind::CutBothWays)
            }
            Kind::Slow => {
                let way = self.way(stage, client, server);
                let by = self.chance.mostly_short(millis(5)..=millis(1500));
                stage.world.net.slow(way, by);
                (format!("way {way:?} takes {by:?} more"), End::Hasten(way))
            }
            Kind::Sever => {
                let way = self.way(stage, client, server);
                let count = stage.world.net.sever(way, stage.now());
                if count == 0 {
                    return None;
                }
                let what = format!("{count} connections break off on {way:?}");
                (what, End::Nothing)
            }
            Kind::ForgetScripts => {
                stage.servers[server].server.as_ref()?.forget_scripts();
                (format!("server {server} forgets its scripts"), End::Nothing)
            }
            Kind::Flush => {
                stage.servers[server].erase();
                stage.forgot();
                (format!("server {server} is flushed"), End::Nothing)
            }
            Kind::FillMemory => {
                stage.servers[server].fill(true);
                let what = format!("the memory of server {server} is full");
                (what, End::Empty(server))
            }
            Kind::StepBack | Kind::StepForward => {
                self.step_clock(stage, server, kind == Kind::StepForward)
            }
        };
        stage.note(Fact::Fault(what));
        Some((lasts, end))
    }

    fn stop(
        &mut self,
        stage: &mut Stage,
        host: usize,
        lasts: Duration,
        asleep: bool,
    ) -> Option<(String, End)> {
        let (until, tasks) = (stage.now() + lasts, self.few());
        let host_there = &mut stage.world.hosts[host];
        if !host_there.runs() {
            return None;
        }
        host_there.stop(until, asleep, tasks);
        let how = if asleep { "sleeps" } else { "is stopped" };
        let what = format!("host {host} {how} for {lasts:?}");
        Some((what, End::Nothing))
    }

    fn kill_client(&mut self, stage: &mut Stage, client: usize) -> Option<(String, End)> {
        let silently = self.chance.percent(40);
        if !stage.world.hosts[stage.guests[client].host].is_up() {
            return None;
        }
        stage.kill_client(client, silently);
        let what = format!("client {client} is killed, silently: {silently}");
        Some((what, End::StartClient(client)))
    }

    fn cut(&mut self, stage: &Stage, way: Way, lasts: Duration, both: bool) -> (String, End) {
        stage.world.net.cut(way);
        if both {
            let back = (way.1, way.0);
            stage.world.net.cut(back);
            self.ends.push((stage.now() + lasts, End::Open(back)));
        }
        let what = format!("way {way:?} is cut for {lasts:?}, both: {both}");
        (what, End::Open(way))
    }

    fn step_clock(&mut self, stage: &mut Stage, server: usize, forward: bool) -> (String, End) {
        let by = self.chance.time(millis(1)..=millis(5_000));
        let micros = i64::try_from(by.as_micros()).unwrap_or(0);
        let host = stage.servers[server].host;
        stage.world.hosts[host].wall += if forward { micros } else { -micros };
        if forward {
            stage.clock_jumped();
        }
        let what = format!("the clock of server {server} is stepped by {by:?}, forward: {forward}");
        (what, End::Nothing)
    }

    fn kill_server(&mut self, stage: &mut Stage, server: usize) -> Option<(String, End)> {
        let loses = stage.common.plan.loses_data && self.chance.percent(50);
        stage.servers[server].server.as_ref()?;
        stage.kill_server(server, self.chance.percent(30));
        if loses {
            stage.servers[server].erase();
            stage.forgot();
        }
        let what = format!("server {server} is killed, loses its data: {loses}");
        Some((what, End::StartServer(server)))
    }

    /// After how many tasks a process is stopped.
    fn few(&mut self) -> u32 {
        u32::try_from(self.chance.index(8)).unwrap_or(0)
    }

    /// From a client to a server or the resource, or back.
    fn way(&mut self, stage: &Stage, client: usize, server: usize) -> Way {
        let to = if self.chance.percent(25) {
            stage.resource.host
        } else {
            stage.servers[server].host
        };
        let way = (stage.guests[client].host, to);
        if self.chance.percent(50) {
            way
        } else {
            (way.1, way.0)
        }
    }
}

fn undo(stage: &mut Stage, end: End) -> std::io::Result<()> {
    match end {
        End::Nothing => {}
        End::StartClient(client) => stage.start_client(client)?,
        End::StartServer(server) => stage.start_server(server)?,
        End::Open(way) => stage.world.net.open(way, stage.now()),
        End::Hasten(way) => stage.world.net.slow(way, Duration::ZERO),
        End::Empty(server) => stage.servers[server].fill(false),
    }
    Ok(())
}
