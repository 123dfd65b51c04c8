//! Drives the locks that are written in Rust, as `bench/README.md` says of all drivers.

mod locks;
mod record;
mod run;
mod standby;

use std::collections::HashMap;
use std::io::{Write as _, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the driver is asked for, in the words of the command line.
struct Arguments {
    peer: String,
    url: String,
    work: String,
    tasks: usize,
    first: usize,
    hold: Duration,
    pause: Duration,
    warm: Duration,
    measured: Duration,
    ttl: Option<Duration>,
    record: PathBuf,
    broken: bool,
}

impl Arguments {
    fn read() -> Result<Self, Failure> {
        let words: Vec<_> = std::env::args().skip(1).collect();
        let given: HashMap<_, _> = words.chunks_exact(2).map(|it| (&*it[0], &it[1])).collect();
        let text = |name: &str| given.get(name).ok_or(format!("{name} is missing"));
        let number = |name: &str| Ok::<u64, Failure>(text(name)?.parse()?);
        let ttl = number("--ttl-ms")?;
        Ok(Self {
            peer: text("--peer")?.to_string(),
            url: text("--url")?.to_string(),
            work: text("--work")?.to_string(),
            tasks: number("--tasks")?.try_into()?,
            first: number("--first")?.try_into()?,
            hold: Duration::from_micros(number("--hold-us")?),
            pause: Duration::from_micros(number("--pause-us")?),
            warm: Duration::from_millis(number("--warm-ms")?),
            measured: Duration::from_millis(number("--measured-ms")?),
            ttl: (ttl > 0).then(|| Duration::from_millis(ttl)),
            record: text("--record")?.into(),
            broken: number("--broken")? == 1,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::read()?;
    let peer = locks::Peer::connect(&arguments).await?;
    // Scripts are loaded, connections made.
    let mut first = peer.lock("bench-warm-up")?;
    first.acquire().await?;
    first.release().await?;
    say(&serde_json::json!({"event": "ready"}))?;
    match &*arguments.work {
        "stand-by" => standby::stand_by(&arguments, &peer).await?,
        _ => run::run(&arguments, &peer).await?,
    }
    // Whoever still waits for a lock is not waited for.
    std::process::exit(0);
}

/// A line for the runner.
fn say(event: &Value) -> Result<(), Failure> {
    let mut out = stdout().lock();
    writeln!(out, "{event}")?;
    Ok(out.flush()?)
}

/// The next line of the runner; empty at the end.
fn next_word() -> Result<String, Failure> {
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Nanoseconds of the clock that all processes of this machine share.
fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Processor time of this process in nanoseconds.
fn own_cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    Duration::try_from(time).map_or(0, |it| it.as_nanos().try_into().unwrap_or(u64::MAX))
}
