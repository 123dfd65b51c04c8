//! What happens to Redis servers, and to the files of the local store.

use std::path::Path;

use leasehold_testkit::server::{self, RedisServer};

use super::{Servers, Site, pause};
use crate::faults::plan::{Data, Fault, Which};

/// With what clients' clocks are off, in microseconds, this is less than the longest TTL.
const FURTHEST_BEHIND: i64 = 800_000;

/// So many turns of a loop take a script some tenths of a second.
const TURNS: &str = "20000000";

impl Site {
    /// What happens to a server.
    pub(super) async fn strike(&self, fault: Fault) {
        match fault {
            Fault::Stop(which, time) => {
                let server = self.server(which);
                server.stop();
                pause(time).await;
                server.cont();
            }
            Fault::Kill(which, time) => {
                let server = self.server(which);
                server.kill();
                pause(time).await;
                server.start_again();
            }
            Fault::KillAll(time) => {
                let Servers::Independent(all) = &self.servers else {
                    return;
                };
                all.servers().iter().for_each(RedisServer::kill);
                pause(time).await;
                all.servers().iter().for_each(RedisServer::start_again);
            }
            Fault::Restart(which, data) => self.server(which).restart(match data {
                Data::Kept => server::Data::Keep,
                Data::Lost => server::Data::Lose,
            }),
            Fault::SlowScript(which) => {
                let script = "local x = 0 for i = 1, ARGV[1] do x = x + i end return x";
                let server = self.server(which);
                let _ = server.try_command(&["EVAL", script, "0", TURNS]);
            }
            Fault::MemoryFull(which, time) => {
                let server = self.server(which);
                let _ = server.try_command(&["CONFIG", "SET", "maxmemory", "1"]);
                pause(time).await;
                let _ = server.try_command(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Fault::Evict(which, time) => {
                let server = self.server(which);
                let set = ["CONFIG", "SET", "maxmemory-policy"];
                let _ = server.try_command(&[&set[..], &["allkeys-random"]].concat());
                let _ = server.try_command(&["CONFIG", "SET", "maxmemory", "1"]);
                pause(time).await;
                let _ = server.try_command(&["CONFIG", "SET", "maxmemory", "0"]);
                let _ = server.try_command(&[&set[..], &["noeviction"]].concat());
            }
            Fault::ForgetScripts(which) => {
                let _ = self.server(which).try_command(&["SCRIPT", "FLUSH"]);
            }
            Fault::Flush(which) => {
                let _ = self.server(which).try_command(&["FLUSHALL"]);
            }
            Fault::StepClock(which, by) => {
                let Which::At(at) = which else { return };
                let clock = &self.clocks[at];
                let ahead = clock.ahead() + by * 1000;
                let ahead = match self.servers {
                    // Much further behind, and it refuses clients whose clocks are right.
                    Servers::Independent(_) => ahead.max(-FURTHEST_BEHIND),
                    _ => ahead,
                };
                clock.step_to(ahead).expect("a file can be written");
            }
            Fault::DeleteRecords => {
                if let Servers::Files(directory) = &self.servers {
                    delete_files(directory);
                }
            }
            _ => {}
        }
    }
}

/// All files below a directory, one by one as somebody would who tidies up.
fn delete_files(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            delete_files(&path);
        } else {
            let _ = std::fs::remove_file(path);
        }
    }
}
