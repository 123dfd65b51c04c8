//! Plain HTTP, as much as the tests of `serve` and of its page take.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request; its headers are lines.
pub(crate) struct Request<'a> {
    pub(crate) address: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

/// An answer, or the beginning of one that goes on.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    reader: BufReader<TcpStream>,
}

impl<'a> Request<'a> {
    pub(crate) fn get(address: &'a str, path: &'a str) -> Self {
        Self {
            address,
            method: "GET",
            path,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(crate) fn post(address: &'a str, path: &'a str, body: &Value) -> Self {
        Self {
            method: "POST",
            body: body.to_string(),
            ..Self::get(address, path)
        }
        .header("Content-Type: application/json")
    }

    /// One of these headers in place of the usual one.
    pub(crate) fn header(mut self, line: &str) -> Self {
        self.headers.push(line.to_owned());
        self
    }

    pub(crate) async fn send(self) -> Answer {
        let answer = timeout(PATIENCE, self.ask()).await;
        answer.expect("an answer in time")
    }

    async fn ask(self) -> Answer {
        let stream = TcpStream::connect(self.address).await;
        let mut stream = stream.expect("somebody listens");
        let mut headers = self.headers;
        if !headers.iter().any(|line| line.starts_with("Host:")) {
            headers.push(format!("Host: {}", self.address));
        }
        if !self.body.is_empty() {
            headers.push(format!("Content-Length: {}", self.body.len()));
        }
        let headers = headers.join("\r\n");
        let (method, path, body) = (self.method, self.path, self.body);
        let text =
            format!("{method} {path} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await.expect("it is read");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).await.expect("an answer") > 2 {}
        let status = head.split(' ').nth(1);
        let status = status.and_then(|status| status.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.to_lowercase(),
            reader,
        }
    }

    /// Sends it, reads the whole answer, and expects this status; answers the body.
    pub(crate) async fn answers(self, status: u16) -> Value {
        let asked = format!("{} {} {:?}", self.method, self.path, self.headers);
        let asked = format!("{asked} {}", self.body);
        let answer = self.send().await;
        let (found, text) = (answer.status, answer.text().await);
        assert_eq!(found, status, "{asked}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{asked}: not JSON: {text}"))
    }
}

impl Answer {
    /// All of it, until the other side closes.
    pub(crate) async fn text(mut self) -> String {
        let mut lines = self.head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length:"));
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().expect("a length"))];
        let read = async {
            match body.len() {
                0 => drop(self.reader.read_to_end(&mut body).await),
                _ => drop(self.reader.read_exact(&mut body).await.expect("all of it")),
            }
        };
        timeout(PATIENCE, read).await.expect("an answer in time");
        String::from_utf8(body).expect("a text")
    }

    /// The next server-sent event of that name for which `fits` holds.
    pub(crate) async fn event(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let reading = async {
            let mut named = false;
            loop {
                let mut line = String::new();
                let read = self.reader.read_line(&mut line).await.expect("an event");
                assert_ne!(read, 0, "the stream has ended");
                let line = line.trim_end();
                if let Some(event) = line.strip_prefix("event: ") {
                    named = event == name;
                } else if let Some(data) = line.strip_prefix("data: ").filter(|_| named) {
                    last = serde_json::from_str(data).expect("JSON");
                    if fits(&last) {
                        return last.clone();
                    }
                }
            }
        };
        let found = timeout(PATIENCE, reading).await;
        found.unwrap_or_else(|_| panic!("no such event came; the last was {last}"))
    }
}
