//! One end of a connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::net::{Ended, Net};

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Dialler = 0,
    Dialled = 1,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Dialled,
            Self::Dialled => Self::Dialler,
        }
    }
}

/// One end of a connection; the other side is told when it is dropped.
pub(crate) struct End {
    net: Net,
    pair: u64,
    side: Side,
}

impl End {
    pub(super) fn new(net: Net, pair: u64, side: Side) -> Self {
        Self { net, pair, side }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "End({}, {:?})", self.pair, self.side)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.net.drop_end(self.pair, self.side);
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.net.inner();
        let Some(pair) = inner.pairs.get_mut(&self.pair) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let half = &mut pair.sides[self.side as usize];
        if !half.arrived.is_empty() {
            let (first, _) = half.arrived.as_slices();
            let some = first.len().min(buffer.remaining());
            buffer.put_slice(&first[..some]);
            half.arrived.drain(..some);
            return Poll::Ready(Ok(()));
        }
        match half.ended {
            Some(Ended::Finished) => Poll::Ready(Ok(())),
            Some(Ended::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {
                half.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(
            self.net
                .write(self.pair, self.side, bytes)
                .map(|()| bytes.len()),
        )
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
