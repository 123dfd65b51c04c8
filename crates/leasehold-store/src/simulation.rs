//! Hooks by which a simulation replaces clocks and sockets.
//!
//! They are per thread: a program built with this feature that sets no world runs as without it.
//! Each hook is called from one place: `clock.rs` for the time, `dial.rs` of `leasehold-redis`
//! for connections, the client's builder for host and process id.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use leasehold_core::Moment;
use tokio::io::{AsyncRead, AsyncWrite};

/// The environment of a client: time, host and network.
pub trait World {
    /// Returns the clock of the current host.
    fn now(&self) -> Moment;

    /// Returns the wall-clock time of the host, since 1970.
    fn wall(&self) -> Duration;

    /// Returns the name of the host, and the process id.
    fn whereabouts(&self) -> (String, u32);

    /// Opens a connection to an address; stays pending while there is no answer.
    fn dial(&self, host: &str, port: u16) -> Dialled;
}

/// A connection that is being opened.
pub type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Both directions of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Removes the world when it is dropped.
pub struct Brought(());

/// Sets the world of this thread.
#[must_use = "it is taken away when this is dropped"]
pub fn bring(world: Rc<dyn World>) -> Brought {
    WORLD.set(Some(world));
    Brought(())
}

impl Drop for Brought {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Brought")
    }
}

/// The world of this thread, if it has one. A thread that is ending has none.
pub fn world() -> Option<Rc<dyn World>> {
    WORLD
        .try_with(|world| world.borrow().clone())
        .ok()
        .flatten()
}
