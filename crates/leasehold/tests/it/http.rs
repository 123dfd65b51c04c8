//! Requests to servers that a test has started.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::soon;

/// Posts nothing but these headers, each with the end of its line. Returns all of the answer.
pub(crate) async fn post(address: &str, path: &str, headers: &str) -> String {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\
         {headers}\r\n"
    );
    let mut answer = String::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_string(&mut answer).await.unwrap();
    };
    soon("an answer", exchange).await;
    answer
}
