//! What goes wrong between clients and servers.

use std::time::Duration;

use leasehold_testkit::proxy::{Command, Direction, Peers};

use super::{Servers, Site, pause};
use crate::faults::plan::{Fault, Way};

impl Site {
    /// What goes wrong on the way; whether this does.
    pub(super) async fn disturb(&self, fault: Fault) -> bool {
        match fault {
            Fault::Reset(which) => self.proxy(which).reset(),
            Fault::Refuse(which, time) => {
                let proxy = self.proxy(which);
                proxy.refuse();
                proxy.reset();
                pause(time).await;
                proxy.accept();
            }
            Fault::Delay(which, way, by, time) => {
                let proxy = self.proxy(which);
                proxy.delay(direction(way), Duration::from_millis(by));
                pause(time).await;
                proxy.delay(direction(way), Duration::ZERO);
            }
            Fault::Hold(which, way, time) => {
                let proxy = self.proxy(which);
                proxy.hold(direction(way));
                pause(time).await;
                proxy.resume(direction(way));
            }
            Fault::BlackHole(which, way, time) => {
                let proxy = self.proxy(which);
                proxy.black_hole(direction(way));
                pause(time).await;
                // What has lost bytes stays silent: clients have to find out by themselves.
                proxy.heal();
                if let Servers::Postgres(_) = &self.servers {
                    // There are as few sessions as a server has room for: it finds out, too.
                    proxy.half_open();
                }
            }
            Fault::CutOff(which, time) => {
                let proxy = self.proxy(which);
                proxy.isolate(Peers::All);
                pause(time).await;
                proxy.rejoin(Peers::All);
            }
            Fault::HalfOpen(which) => self.proxy(which).half_open(),
            Fault::Swallow(which, count) => {
                let _ = self.proxy(which).swallow_replies(count);
            }
            Fault::LoseAnswers(which, time) => {
                let proxy = self.proxy(which);
                proxy.black_hole(Direction::ToClient);
                pause(time).await;
                proxy.reset();
                proxy.heal();
            }
            Fault::LoseRequest(which) => {
                let script = |it: &Command| it.is("EVALSHA");
                let _ = self.proxy(which).swallow_request(script, 1);
            }
            _ => return false,
        }
        true
    }
}

fn direction(way: Way) -> Direction {
    match way {
        Way::There => Direction::ToServer,
        Way::Back => Direction::ToClient,
    }
}
