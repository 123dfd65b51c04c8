//! A proxy that keeps each byte for a while, in both directions: `delay PORT MICROSECONDS`.
//!
//! It stands between the drivers and a server on the loopback, writes its own port to standard
//! output, and runs until it is killed. Threads and the kernel's own sleep: the timers of a runtime
//! round up to a whole millisecond.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// So many pieces are on their way at most, in one direction of one connection.
const ON_THE_WAY: usize = 4096;
/// The kernel's sleep ends late by about so much.
const SLACK: Duration = Duration::from_micros(60);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().ok_or("usage: delay PORT MICROSECONDS");
    let server: u16 = number()?.parse()?;
    let delay = Duration::from_micros(number()?.parse()?);
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?.port());
    for client in listener.incoming() {
        let (client, server) = (client?, TcpStream::connect(("127.0.0.1", server))?);
        carry(client.try_clone()?, server.try_clone()?, delay)?;
        carry(server, client, delay)?;
    }
    Ok(())
}

/// Carries bytes in one direction, until one side closes.
fn carry(from: TcpStream, to: TcpStream, delay: Duration) -> Result<(), Failure> {
    to.set_nodelay(true)?;
    let (sender, receiver) = sync_channel(ON_THE_WAY);
    spawn(move || read(from, &sender, delay));
    spawn(move || write(to, &receiver));
    Ok(())
}

fn read(mut from: TcpStream, to: &SyncSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let piece = (Instant::now() + delay, buffer[..count].to_vec());
        if to.send(piece).is_err() {
            break;
        }
    }
}

fn write(mut to: TcpStream, pieces: &Receiver<(Instant, Vec<u8>)>) {
    for (due, piece) in pieces {
        let left = due.saturating_duration_since(Instant::now());
        sleep(left.saturating_sub(SLACK));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // Also ends the thread that reads in the other direction.
    let _ = to.shutdown(Shutdown::Both);
}
