//! Asks a server at its port for TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, Stream};

use crate::tls::Certificates;

/// A client with a certificate.
#[derive(Debug)]
pub(super) struct Known(Arc<ClientConfig>);

impl Known {
    pub(super) fn of(certificates: &Certificates) -> Self {
        Self(Arc::new(certificates.client_config()))
    }

    /// Sends a four-letter word, and returns the answer.
    pub(super) fn ask(&self, at: SocketAddr, word: &str, limit: Duration) -> io::Result<String> {
        let connection = ClientConnection::new(self.0.clone(), at.ip().into());
        let mut connection = connection.map_err(io::Error::other)?;
        let mut socket = TcpStream::connect_timeout(&at, limit)?;
        socket.set_read_timeout(Some(limit))?;
        let mut stream = Stream::new(&mut connection, &mut socket);
        stream.write_all(word.as_bytes())?;
        let mut answer = Vec::new();
        // The server closes without a word.
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
        String::from_utf8(answer).map_err(io::Error::other)
    }
}
