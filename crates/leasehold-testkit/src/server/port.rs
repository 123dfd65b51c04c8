//! Ports that stay one's own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A free loopback port that nobody else is given, also while nothing listens on it.
///
/// A socket is bound to it and never listens: the kernel hands the port to nobody who asks for a
/// free one, refuses connections to it, and lets a server bind it too, which sets `SO_REUSEADDR` as
/// servers do. (That is so on Linux. Elsewhere the port is merely chosen, and could be taken.)
#[derive(Debug)]
pub(crate) struct Port {
    _reservation: Option<TcpSocket>,
    address: SocketAddr,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let reserve = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            let address = socket.local_addr()?;
            let _reservation = cfg!(target_os = "linux").then_some(socket);
            io::Result::Ok(Self {
                _reservation,
                address,
            })
        };
        reserve().expect("a port can be reserved")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
