//! One connection through the proxy: two sockets, and what is on its way between them.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};

use super::End;
use super::faults::{Conversation, Load, Over, Parcel, Shared};

/// What the proxy asks of a connection, and whom to tell that it is done.
pub(super) struct Order {
    pub(super) what: What,
    pub(super) done: oneshot::Sender<()>,
}

/// What the proxy asks of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Both sockets are closed, or reset.
    Close { reset: bool },
    /// The server's end is closed, and the client is told nothing.
    HalfOpen,
}

/// How long an order waits for a server that does not take the connection.
const CONNECTING: Duration = Duration::from_secs(1);

/// Carries a connection until it is over, or ordered to end; then returns whom to tell.
pub(super) async fn carry(
    (client, peer): (TcpStream, IpAddr),
    upstream: SocketAddr,
    shared: Arc<Shared>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> Option<oneshot::Sender<()>> {
    let reset = Arc::new(AtomicBool::new(false));
    let socket = |stream| Socket {
        stream,
        reset: Arc::clone(&reset),
    };
    let client = socket(client);
    let mut connecting = pin!(TcpStream::connect(upstream));
    let (server, mut early) = tokio::select! {
        server = &mut connecting => (server, None),
        // The server may have it already: finish, unless its queue is full.
        order = orders.recv() => {
            let server = timeout(CONNECTING, connecting).await;
            (server.unwrap_or_else(|late| Err(late.into())), Some(order?))
        }
    };
    let Ok(server) = server.map(socket) else {
        reset.store(true, Ordering::Relaxed);
        return early.map(|order| order.done);
    };

    let (to_server, for_server) = mpsc::unbounded_channel();
    let (to_client, for_client) = mpsc::unbounded_channel();
    let conversation = Conversation::new(peer, shared, [to_server, to_client]);
    let conversation = Arc::new(Mutex::new(conversation));
    let attend = |end, socket, parcels| {
        let conversation = Arc::clone(&conversation);
        Some(Box::pin(attend(end, socket, parcels, conversation)))
    };
    let mut client = attend(End::Client, client, for_client);
    let mut server = attend(End::Server, server, for_server);

    while client.is_some() || server.is_some() {
        let order = tokio::select! {
            biased;
            Some(order) = async { early.take() } => Some(order),
            end = ended(&mut client) => match end {
                Ok(()) => { client = None; continue }
                Err(Over) => return None,
            },
            end = ended(&mut server) => match end {
                Ok(()) => { server = None; continue }
                Err(Over) => return None,
            },
            order = orders.recv() => order,
        };
        // Without a proxy, no connection.
        let Order { what, done } = order?;
        match what {
            What::HalfOpen => server = None,
            What::Close { reset: how } => {
                reset.store(how, Ordering::Relaxed);
                return Some(done);
            }
        }
        let _ = done.send(());
    }
    None
}

async fn ended<F: Future>(end: &mut Option<Pin<Box<F>>>) -> F::Output {
    match end {
        Some(end) => end.await,
        None => pending().await,
    }
}

/// Serves one end of a connection: hears what it says, and delivers what is for it.
async fn attend(
    end: End,
    mut socket: Socket,
    parcels: mpsc::UnboundedReceiver<Parcel>,
    conversation: Arc<Mutex<Conversation>>,
) -> Result<(), Over> {
    let conversation = || conversation.lock().expect("no predicate has panicked");
    let _ = socket.stream.set_nodelay(true);
    let (mut source, sink) = socket.stream.split();
    let hearing = async {
        let mut buffer = vec![0; 64 * 1024];
        // An error is an end as well: a reset.
        while let Ok(length @ 1..) = source.read(&mut buffer).await {
            conversation().came(end, &buffer[..length]);
        }
        conversation().closed(end)
    };
    tokio::try_join!(hearing, deliver(end, sink, parcels)).map(drop)
}

/// Delivers parcels in their order until the other end has closed.
async fn deliver(
    end: End,
    mut sink: WriteHalf<'_>,
    mut parcels: mpsc::UnboundedReceiver<Parcel>,
) -> Result<(), Over> {
    let mut reachable = true;
    while let Some(Parcel { load, due, gate }) = parcels.recv().await {
        if let Some(gate) = gate {
            gate.passed().await;
        }
        if let Some(due) = due {
            sleep_until(due).await;
        }
        match (load, end) {
            (Load::Bytes(bytes), _) => {
                reachable = reachable && sink.write_all(&bytes).await.is_ok();
            }
            // The server may still answer a client that has said all it had to say.
            (Load::Close, End::Server) => {
                let _ = sink.shutdown().await;
                return Ok(());
            }
            (Load::Close, End::Client) => return Err(Over),
        }
    }
    Ok(())
}

/// A socket that is reset instead of closed when its connection says so.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            let _ = self.stream.set_zero_linger();
        }
    }
}
