//! The proxy's thread: takes orders, and connections.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::connection::{self, What};
use super::faults::{Isolated, Shared};
use crate::process::forks_settled;

/// What the test asks of the proxy's thread, and whom to tell that it is done.
pub(super) struct Order {
    pub(super) verb: Verb,
    pub(super) done: std_mpsc::Sender<()>,
}

/// What the test asks of the proxy's thread.
pub(super) enum Verb {
    Accept,
    Refuse,
    /// To the connections of these.
    Tell(What, Isolated),
}

/// Who takes the orders, and lets the connections in.
pub(super) struct Desk {
    address: SocketAddr,
    upstream: SocketAddr,
    shared: Arc<Shared>,
    door: Option<TcpListener>,
    connections: HashMap<u64, (IpAddr, mpsc::UnboundedSender<connection::Order>)>,
}

impl Desk {
    pub(super) fn new(address: SocketAddr, upstream: SocketAddr, shared: Arc<Shared>) -> Self {
        Self {
            address,
            upstream,
            shared,
            door: None,
            connections: HashMap::new(),
        }
    }

    /// Works until the proxy is dropped.
    pub(super) async fn attend(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                (stream, peer) = accept(&self.door) => self.welcome(stream, peer),
                order = orders.recv() => {
                    let Some(Order { verb, done }) = order else { return };
                    self.obey(verb).await;
                    forks_settled();
                    let _ = done.send(());
                }
            }
        }
    }

    async fn obey(&mut self, verb: Verb) {
        match verb {
            Verb::Accept if self.door.is_some() => {}
            Verb::Accept => self.door = Some(listen(self.address).await),
            // Resets whoever has knocked and was not let in.
            Verb::Refuse => {
                self.door = None;
                closed(self.address).await;
            }
            Verb::Tell(what, whom) => {
                if let (What::Close { .. }, Some(door), true) = (what, &self.door, whom.all) {
                    turn_away(door);
                }
                let connections = self.connections.values();
                for (_, connection) in connections.filter(|(peer, _)| whom.has(*peer)) {
                    let (done, is_done) = oneshot::channel();
                    // One that is over has nothing to do, and nobody to say so.
                    let _ = connection.send(connection::Order { what, done });
                    let _ = is_done.await;
                }
            }
        }
    }

    fn welcome(&mut self, client: TcpStream, peer: IpAddr) {
        self.connections
            .retain(|_, (_, connection)| !connection.is_closed());
        let (orders, inbox) = mpsc::unbounded_channel();
        let mut id = 0;
        self.shared.counts.send_modify(|counts| {
            counts.connections += 1;
            counts.open += 1;
            id = counts.connections;
        });
        self.connections.insert(id, (peer, orders));
        let (shared, upstream) = (Arc::clone(&self.shared), self.upstream);
        tokio::spawn(async move {
            let ordered =
                connection::carry((client, peer), upstream, Arc::clone(&shared), inbox).await;
            shared.counts.send_modify(|counts| counts.open -= 1);
            ordered.map(|done| done.send(()));
        });
    }
}

async fn listen(address: SocketAddr) -> TcpListener {
    let listen = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(1024)
    };
    loop {
        match listen() {
            Ok(door) => return door,
            // The old door, in the hands of a child that does not run yet: see the module.
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("cannot listen on {address}: {error}"),
        }
    }
}

/// Returns when nobody comes in any more: a door at which another process looks, in `/proc`, is
/// closed by whichever of the two is last.
async fn closed(address: SocketAddr) {
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn accept(door: &Option<TcpListener>) -> (TcpStream, IpAddr) {
    loop {
        match door {
            Some(door) => {
                if let Ok((stream, peer)) = door.accept().await {
                    return (stream, peer.ip());
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// Closes the connections that wait at a door, also those that the runtime has not yet heard of.
fn turn_away(door: &TcpListener) {
    let door = door.as_fd().try_clone_to_owned();
    if let Ok(door) = door.map(std::net::TcpListener::from) {
        while door.accept().is_ok() {}
    }
}
