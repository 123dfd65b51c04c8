//! The process of a server, which a test kills, pauses and starts again.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_store::sync::lock;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal,
    waitid,
};

use super::{End, exit_status, halt, spawn_tied, wait_for_change};
use crate::deployment::until_blocking;
use crate::server::Port;

/// The process of a server, which can be down; killed on drop.
///
/// Methods that do something to it panic when it is down.
#[derive(Debug)]
pub struct Daemon {
    log: PathBuf,
    /// Whether its children are meant with it: PostgreSQL has one for each connection.
    has_children: bool,
    process: Mutex<Option<Child>>,
    is_paused: AtomicBool,
    port: Port,
}

impl Daemon {
    /// One that is down, and will listen on that port and write to the end of that file.
    pub(crate) fn new(port: Port, log: PathBuf, has_children: bool) -> Self {
        Self {
            log,
            has_children,
            process: Mutex::new(None),
            is_paused: AtomicBool::new(false),
            port,
        }
    }

    /// Where it listens, on the loopback address, which stays the same over restarts.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The port of the [address](Self::address).
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// Where the other nodes of a Cluster connect to.
    pub(crate) fn bus_address(&self) -> SocketAddr {
        self.port.bus()
    }

    /// Starts it.
    pub(crate) fn launch(&self, mut command: Command) -> io::Result<()> {
        let mut process = lock(&self.process);
        assert!(process.is_none(), "the server is running");
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.expect("a log can be written");
        command.stdout(log.try_clone()?).stderr(log);
        *process = Some(spawn_tied(command)?);
        self.is_paused.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Everything the server has logged since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process id; of several processes, that of the parent.
    pub fn pid(&self) -> u32 {
        self.id().expect("the server is running")
    }

    /// The same, if it is not down.
    pub(crate) fn id(&self) -> Option<u32> {
        lock(&self.process).as_ref().map(Child::id)
    }

    /// Whether it can answer: it runs, and is not paused.
    pub fn is_up(&self) -> bool {
        self.is_wanted() && self.status().is_none()
    }

    /// Whether it was started, and the test has neither ended nor paused it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.id().is_some() && !self.is_paused.load(Ordering::Relaxed)
    }

    /// How it has ended, unless by the test; it is not reaped, so that its number stays its own.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let process = lock(&self.process);
        let pid = Pid::from_child(process.as_ref()?);
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(pid), how).expect("a child can be looked at");
        ended.as_ref().map(exit_status)
    }

    /// Fails with its log if it has ended by itself.
    pub(crate) fn must_run(&self) {
        let ended = self.status();
        assert!(ended.is_none(), "it has ended: {ended:?}\n{}", self.log());
    }

    /// Kills it (SIGKILL), and returns when it is gone.
    pub fn kill(&self) {
        let process = lock(&self.process).take();
        self.end(process.expect("the server is running"));
    }

    fn end(&self, mut parent: Child) {
        let children = self.children_of_stopped(&parent);
        signal_all(&children, Signal::KILL);
        parent.kill().expect("a child can be killed");
        parent.wait().expect("a child can be waited for");
        children.iter().for_each(|(_, child)| child.has_come());
    }

    /// Waits until it has ended, as it was told to.
    pub(crate) fn wait_for_end(&self) {
        self.running(|it| End::of(Pid::from_child(it))).has_come();
        // What is left is its number.
        self.kill();
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open and are even accepted, by the kernel,
    /// but nothing is answered. Returns when it stands still.
    pub fn pause(&self) {
        let children = self.running(|parent| self.children_of_stopped(parent));
        signal_all(&children, Signal::STOP);
        until_blocking("a paused server to stand still", &[], || {
            let mut states = children.iter().map(|(pid, _)| state_and_parent(*pid));
            match states.find(|stat| stat.is_some_and(|(state, _)| !"TZX".contains(state))) {
                None => Ok(()),
                Some(stat) => Err(format!("a child is in state {stat:?}")),
            }
        });
        self.is_paused.store(true, Ordering::Relaxed);
    }

    /// Lets it go on if it was paused (SIGCONT), with what has been sent to it meanwhile.
    pub fn resume(&self) {
        self.running(|parent| {
            // The kernel reports a change only; a signal to one that goes on makes none.
            if self.is_paused.swap(false, Ordering::Relaxed) {
                signal_all(&self.children_of_stopped(parent), Signal::CONT);
                signal(parent, Signal::CONT);
                let how = WaitIdOptions::CONTINUED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                wait_for_change(Pid::from_child(parent), how);
            }
        });
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, what: Signal) {
        self.running(|process| signal(process, what));
    }

    /// Stops the parent, so that it makes no children and reaps none: their numbers stay their own.
    fn children_of_stopped(&self, parent: &Child) -> Vec<(i32, End)> {
        let pid = Pid::from_child(parent);
        halt(pid);
        if !self.has_children {
            return Vec::new();
        }
        let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
        let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let children = numbers.filter_map(|number| {
            let (_, its_parent) = state_and_parent(number)?;
            let child = Pid::from_raw(number).filter(|_| its_parent == pid.as_raw_pid())?;
            Some((number, End(pidfd_open(child, PidfdFlags::empty()).ok()?)))
        });
        children.collect()
    }

    fn running<T>(&self, act: impl FnOnce(&Child) -> T) -> T {
        act(lock(&self.process).as_ref().expect("the server is running"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let process = lock(&self.process).take();
        process.into_iter().for_each(|process| self.end(process));
    }
}

fn signal(process: &Child, signal: Signal) {
    let sent = kill_process(Pid::from_child(process), signal);
    sent.expect("a child can be signalled");
}

fn signal_all(processes: &[(i32, End)], signal: Signal) {
    for (_, End(process)) in processes {
        // One that has just ended is signalled in vain.
        let _ = pidfd_send_signal(process, signal);
    }
}

/// From `/proc/PID/stat`: `pid (name) state parent …`.
fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
