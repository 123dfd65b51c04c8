//! Ports that stay one's own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A free loopback port that nobody else is given, also while nothing listens on it.
///
/// A socket is bound to it and never listens: the kernel hands the port to nobody who asks for a
/// free one, refuses connections to it, and lets a server bind it too, which sets `SO_REUSEADDR` as
/// servers do. (That is so on Linux. Elsewhere the port is merely chosen, and could be taken.)
///
/// A server of a Cluster has a second port for its peers, 10,000 above.
#[derive(Debug)]
pub(crate) struct Port {
    _reservations: Vec<TcpSocket>,
    address: SocketAddr,
}

/// How far the port for the peers is above the port for the clients.
const BUS: u16 = 10_000;

impl Port {
    pub(crate) fn reserve() -> Self {
        let socket = reserve(0).expect("a port can be reserved");
        Self::of(vec![socket])
    }

    /// Two ports, the second of them 10,000 above the first.
    pub(crate) fn reserve_with_bus() -> Self {
        let pairs = (0..1_000).filter_map(|_| {
            let socket = reserve(0).expect("a port can be reserved");
            let port = socket.local_addr().ok()?.port();
            let bus = reserve(port.checked_add(BUS)?).ok()?;
            Some(Self::of(vec![socket, bus]))
        });
        let mut pairs = pairs;
        pairs.next().expect("a pair of ports can be reserved")
    }

    fn of(sockets: Vec<TcpSocket>) -> Self {
        let address = sockets[0].local_addr().expect("a bound socket has one");
        let linux = cfg!(target_os = "linux");
        Self {
            _reservations: if linux { sockets } else { Vec::new() },
            address,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The second of two.
    pub(crate) fn bus(&self) -> SocketAddr {
        (self.address.ip(), self.address.port() + BUS).into()
    }
}

/// Binds a port, or with 0 any free one.
///
/// `SO_REUSEADDR` comes afterwards: with it, a port that somebody else has reserved could be bound
/// as well.
fn reserve(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(false)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_pair_is_nobody_elses_and_can_be_listened_on() {
        let pair = Port::reserve_with_bus();
        let port = pair.address().port();
        for port in [port, port + BUS] {
            assert!(reserve(port).is_err());
            // As servers do it, with SO_REUSEADDR.
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
        let others: Vec<_> = (0..50).map(|_| Port::reserve_with_bus()).collect();
        let taken = |it: &Port| [port, port + BUS].contains(&it.address().port());
        assert!(!others.iter().any(taken));
    }
}
