//! A fake Sentinel with configured answers.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, broadcast};
use tokio::task::{JoinHandle, JoinSet};

/// What it says: the primary's port and the epoch; none: it knows no such name.
type Says = Option<(u16, u64)>;

pub(crate) struct FakeSentinel {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    says: Mutex<Says>,
    /// It refuses to be listened to, and says this from then on.
    refuses: Mutex<Says>,
    /// What it says once it has answered one question more.
    next: Mutex<Says>,
    switched: broadcast::Sender<()>,
    /// One permit for each question that was asked.
    asked: Semaphore,
}

impl FakeSentinel {
    pub(crate) async fn start(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            says: Mutex::new(says),
            refuses: Mutex::default(),
            next: Mutex::default(),
            switched: broadcast::Sender::new(16),
            asked: Semaphore::new(0),
        });
        let of_clients = shared.clone();
        let task = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                clients.spawn(serve(client, of_clients.clone()));
            }
        });
        Self { port, shared, task }
    }

    /// Says something else from now on; `aloud` tells all who listen.
    pub(crate) fn say(&self, says: Says, aloud: bool) {
        *self.shared.says.lock().unwrap() = says;
        if aloud {
            let _ = self.shared.switched.send(());
        }
    }

    /// Nobody may listen to it; whoever wants to makes it say something else.
    pub(crate) fn refuse(&self, then: (u16, u64)) {
        *self.shared.refuses.lock().unwrap() = Some(then);
    }

    /// Says something else as soon as it has answered one question more.
    pub(crate) fn say_next(&self, says: (u16, u64)) {
        *self.shared.next.lock().unwrap() = Some(says);
    }

    /// Waits until it was asked so many times more.
    pub(crate) async fn asked(&self, times: u32) {
        let asked = self.shared.asked.acquire_many(times).await;
        asked.unwrap().forget();
    }
}

impl Drop for FakeSentinel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let mut switched = shared.switched.subscribe();
    let (reader, mut writer) = client.into_split();
    let mut reader = BufReader::new(reader);
    let mut listens = false;
    loop {
        let request = tokio::select! {
            request = read(&mut reader) => request,
            Ok(()) = switched.recv() => {
                if listens {
                    let push = format!(">3\r\n{}{}{}", bulk("message"), bulk("+switch-master"), bulk("-"));
                    writer.write_all(push.as_bytes()).await.unwrap();
                }
                continue;
            }
        };
        let Some(request) = request else { return };
        let words: Vec<_> = request.iter().map(String::as_str).collect();
        let says = *shared.says.lock().unwrap();
        let refuses = *shared.refuses.lock().unwrap();
        let answer = match (words.as_slice(), says) {
            (["HELLO", ..], _) => format!("%1\r\n{}:3\r\n", bulk("proto")),
            (["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"], Some((port, _))) => {
                shared.asked.add_permits(1);
                format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port.to_string()))
            }
            (["SENTINEL", "MASTER", "mymaster"], Some((_, epoch))) => {
                format!("%1\r\n{}{}", bulk("config-epoch"), bulk(&epoch.to_string()))
            }
            (["SENTINEL", "MASTERS"], Some(_)) => {
                format!("*1\r\n%1\r\n{}{}", bulk("name"), bulk("mymaster"))
            }
            (["SENTINEL", "MASTERS"], None) => "*0\r\n".to_owned(),
            (["SENTINEL", "GET-MASTER-ADDR-BY-NAME", _], _) => {
                shared.asked.add_permits(1);
                "_\r\n".to_owned()
            }
            (["SUBSCRIBE", _], _) if refuses.is_some() => {
                *shared.says.lock().unwrap() = refuses;
                "-NOPERM User bob has no permissions to run the 'subscribe' command\r\n".to_owned()
            }
            (["SUBSCRIBE", channel], _) => {
                listens = true;
                format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(channel))
            }
            _ => "-ERR unknown\r\n".to_owned(),
        };
        let next = match words.first() {
            Some(&"SENTINEL") => shared.next.lock().unwrap().take(),
            _ => None,
        };
        if next.is_some() {
            *shared.says.lock().unwrap() = next;
        }
        if writer.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One request: an array of bulk strings.
async fn read(reader: &mut BufReader<tokio::net::tcp::OwnedReadHalf>) -> Option<Vec<String>> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    let count: usize = line.trim().strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        line.clear();
        reader.read_line(&mut line).await.ok()?;
        let size: usize = line.trim().strip_prefix('$')?.parse().ok()?;
        let mut bytes = vec![0; size + 2];
        reader.read_exact(&mut bytes).await.ok()?;
        words.push(String::from_utf8_lossy(&bytes[..size]).into_owned());
    }
    Some(words)
}
