//! A connection to a server, and the task that reads it.
//!
//! What is sent is written at once by whoever sends it; what the kernel does not take then, the
//! task writes. It alone reads: an answer goes to the oldest request that waits for one, and a
//! push to whoever listens. So between a caller and the server there is one task, and none on the
//! way there. Measured in `docs/adr/08-redis-connections.md`.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use leasehold_store::fork::NotInherited;
use redis::{Cmd, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep, sleep_until};

use super::frames::Frames;
use crate::std_ext::{BackgroundTask, lock};

/// Gets the answer to a request, or why there is none; on the task of the socket.
pub(super) type OnAnswer = Box<dyn FnOnce(RedisResult<Value>) + Send>;

/// Gets the pushes of a connection, the last of which says that it is lost; on its task.
pub(crate) type OnPush = Arc<dyn Fn(&PushInfo, &Arc<Signals>) + Send + Sync>;

/// What the pushes of a connection and its requests both look at.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Zero until the inbox is subscribed on this connection.
    pub(crate) epoch: AtomicU64,
    /// Set when the connection is lost.
    pub(super) dead: watch::Sender<bool>,
}

impl Signals {
    pub(super) async fn died(&self) {
        // The sender lives as long as we do.
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Both directions of a connection, and that forked children do not have it.
pub(super) struct Stream {
    reader: Reader,
    writer: Writer,
    not_inherited: Option<Arc<NotInherited>>,
}

impl Stream {
    pub(super) fn new<R, W>((reader, writer): (R, W), not_inherited: Option<NotInherited>) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            not_inherited: not_inherited.map(Arc::new),
        }
    }

    /// For somebody else, whose children may have it.
    pub(super) fn give_away(self) -> impl AsyncRead + AsyncWrite + Send + Unpin {
        tokio::io::join(self.reader, self.writer)
    }
}

/// How much is read at a time.
const READ_SIZE: usize = 16 * 1024;

/// A connection. Its task ends when this is dropped.
pub(crate) struct Socket {
    pub(super) signals: Arc<Signals>,
    shared: Arc<Shared>,
    _reading: BackgroundTask,
}

struct Shared {
    state: Mutex<State>,
    /// Of the task.
    waker: AtomicWaker,
    /// Somebody wants `between` to be called.
    nudged: AtomicBool,
    /// The task leaves those who got answers their turn, and calls `between` then.
    yields: AtomicBool,
    /// Called on the task after answers, unless it was the only one awaited; where it was nudged, and
    /// at the end.
    between: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    /// Dropped before the last end of the connection is.
    _not_inherited: Option<Arc<NotInherited>>,
    /// Absent while somebody writes: nobody who only adds something waits for the kernel.
    outgoing: Option<Outgoing>,
    unsent: Vec<u8>,
    /// Of all that was sent and not answered, in the order of sending.
    requests: VecDeque<Sent>,
    limit: Duration,
    lost: bool,
}

/// Who writes has this, and looks for more before giving it back.
struct Outgoing {
    writer: Writer,
    bytes: Vec<u8>,
}

struct Sent {
    at: Instant,
    /// `None`: nobody waits for it any more.
    answer: Option<OnAnswer>,
}

impl Socket {
    /// Reads the stream on a task of this runtime. `limit`: how long an answer may take.
    pub(super) fn start(stream: Stream, limit: Duration, push: Option<OnPush>) -> Self {
        let (writer, bytes) = (stream.writer, Vec::new());
        let state = State {
            _not_inherited: stream.not_inherited.clone(),
            outgoing: Some(Outgoing { writer, bytes }),
            unsent: Vec::new(),
            requests: VecDeque::new(),
            limit,
            lost: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            waker: AtomicWaker::new(),
            nudged: AtomicBool::new(false),
            yields: AtomicBool::new(false),
            between: OnceLock::new(),
        });
        let signals = Arc::<Signals>::default();
        let task = Task {
            signals: Arc::clone(&signals),
            shared: Arc::clone(&shared),
            _not_inherited: stream.not_inherited,
            reader: stream.reader,
            frames: Frames::default(),
            expiry: Box::pin(sleep_until(Instant::now() + limit)),
            push,
            error: closed(),
        };
        let reading = BackgroundTask::default();
        reading.start(task.run());
        Self {
            signals,
            shared,
            _reading: reading,
        }
    }

    /// From now on this is called after answers, once those who got them had their turn. The only one
    /// that was awaited leaves nobody behind who could have something to send together.
    pub(super) fn between(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.between.set(Box::new(call));
    }

    /// Calls it soon, and if it is not `urgent`, once all who got answers had their turn; `false`: the
    /// connection is lost, and it is called no more.
    pub(super) fn nudge(&self, urgent: bool) -> bool {
        self.shared.nudged.store(true, Ordering::Release);
        if urgent || !self.shared.yields.load(Ordering::Acquire) {
            self.shared.waker.wake();
        }
        !self.is_lost()
    }

    /// Whether nothing that is sent from now on is answered.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.shared.state).lost
    }

    /// From now on an answer may take so long.
    pub(super) fn set_response_timeout(&self, limit: Duration) {
        lock(&self.shared.state).limit = limit;
        self.shared.waker.wake();
    }

    /// Sends these in one piece. Each gets its answer, whether its caller waits for it or not.
    pub(super) fn send<C: Borrow<Cmd>>(&self, requests: impl IntoIterator<Item = (C, OnAnswer)>) {
        self.add(requests);
        self.write();
    }

    /// Puts these in the order in which all is sent, to go out with the next [`Socket::write`].
    pub(super) fn add<C: Borrow<Cmd>>(&self, requests: impl IntoIterator<Item = (C, OnAnswer)>) {
        let mut state = lock(&self.shared.state);
        if state.lost {
            drop(state);
            for (_, answer) in requests {
                answer(Err(closed()));
            }
            return;
        }
        let at = Instant::now();
        for (command, answer) in requests {
            command.borrow().write_packed_command(&mut state.unsent);
            let answer = Some(answer);
            state.requests.push_back(Sent { at, answer });
        }
    }

    /// Writes what was added, or leaves it to whoever writes.
    pub(super) fn write(&self) {
        // The task writes the rest, and finds out what is wrong.
        let mut nobody = Context::from_waker(Waker::noop());
        if !matches!(self.shared.poll_write(&mut nobody), Poll::Ready(Ok(()))) {
            self.shared.waker.wake();
        }
    }

    /// Sends one command and waits for its answer, which may be an error of the server
    /// ([`Value::ServerError`]). May be dropped at any point.
    pub(crate) async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        let (answer, answered) = oneshot::channel();
        self.send([(command, to(answer))]);
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// The same for several, which are sent in one piece.
    pub(crate) async fn ask_all<'a>(
        &self,
        commands: impl IntoIterator<Item = &'a Cmd>,
    ) -> RedisResult<Vec<Value>> {
        let mut all = Vec::new();
        self.send(commands.into_iter().map(|command| {
            let (answer, answered) = oneshot::channel();
            all.push(answered);
            (command, to(answer))
        }));
        let mut values = Vec::with_capacity(all.len());
        for answered in all {
            values.push(answered.await.unwrap_or_else(|_| Err(closed()))?);
        }
        Ok(values)
    }
}

/// To a caller that waits. One that has left does not mind.
pub(super) fn to(answer: oneshot::Sender<RedisResult<Value>>) -> OnAnswer {
    Box::new(move |value| drop(answer.send(value)))
}

pub(super) fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

impl Shared {
    fn between(&self) {
        self.between.get().iter().for_each(|call| call());
    }

    /// Writes what is to be sent, unless somebody else does; ready when all of it is.
    fn poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = lock(&self.state);
        let Some(mut outgoing) = state.outgoing.take() else {
            return Poll::Ready(Ok(()));
        };
        loop {
            if outgoing.bytes.is_empty() {
                std::mem::swap(&mut outgoing.bytes, &mut state.unsent);
            }
            drop(state);
            let polled = outgoing.poll_write(cx);
            state = lock(&self.state);
            if state.unsent.is_empty() || !matches!(polled, Poll::Ready(Ok(()))) {
                state.outgoing = Some(outgoing);
                return polled;
            }
        }
    }
}

impl Outgoing {
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            match ready!(Pin::new(&mut self.writer).poll_write(cx, &self.bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(self.bytes.drain(..count)),
            }
        }
        Pin::new(&mut self.writer).poll_flush(cx)
    }
}

impl State {
    /// Gives up what was sent too long ago; says when to look again.
    fn expire(&mut self, expired: &mut Vec<OnAnswer>) -> Instant {
        let (now, limit) = (Instant::now(), self.limit);
        for request in &mut self.requests {
            if request.at + limit > now && request.answer.is_some() {
                return request.at + limit;
            }
            expired.extend(request.answer.take());
        }
        now + limit
    }
}

/// Reads the connection.
struct Task {
    signals: Arc<Signals>,
    shared: Arc<Shared>,
    _not_inherited: Option<Arc<NotInherited>>,
    reader: Reader,
    frames: Frames,
    /// When what is not answered has to be looked at.
    expiry: Pin<Box<Sleep>>,
    push: Option<OnPush>,
    /// Why there are no more answers.
    error: RedisError,
}

impl Task {
    async fn run(mut self) {
        loop {
            let read = std::future::poll_fn(|cx| self.poll(cx)).await;
            let answered = read.map_err(RedisError::from);
            match answered.and_then(|nudged| Ok(self.hand_out()? || nudged)) {
                Ok(false) => {}
                Ok(true) => {
                    // Whoever has an answer sends what comes next together with the others.
                    self.shared.yields.store(true, Ordering::Release);
                    tokio::task::yield_now().await;
                    self.shared.yields.store(false, Ordering::Release);
                    self.shared.nudged.store(false, Ordering::Release);
                    self.shared.between();
                }
                Err(error) => {
                    self.error = error;
                    return self.push(PushKind::Disconnection, Vec::new());
                }
            }
        }
    }

    /// Writes and reads; ready when there is something to hand out, or `true` where it was nudged or
    /// has given something up.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.shared.waker.register(cx.waker());
        let written = self.shared.poll_write(cx);
        let nudged = self.shared.nudged.swap(false, Ordering::AcqRel);
        self.frames.arrived.reserve(READ_SIZE);
        let read = pin!(self.reader.read_buf(&mut self.frames.arrived));
        match (read.poll(cx), written) {
            (Poll::Ready(Ok(0)), _) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            (Poll::Ready(read), _) => Poll::Ready(read.map(|_| nudged)),
            // A server that closes the connection may have said why, and that is read first.
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            // So are the answers that came while this process stood still.
            (Poll::Pending, _) if self.give_up(cx) || nudged => Poll::Ready(Ok(true)),
            (Poll::Pending, _) => Poll::Pending,
        }
    }

    /// Gives up what takes too long. Says whether anything did.
    fn give_up(&mut self, cx: &mut Context<'_>) -> bool {
        let mut expired = Vec::new();
        let mut state = lock(&self.shared.state);
        while self.expiry.as_mut().poll(cx).is_ready() {
            self.expiry.as_mut().reset(state.expire(&mut expired));
        }
        drop(state);
        let any = !expired.is_empty();
        for answer in expired {
            answer(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        }
        any
    }

    /// Hands out what has arrived; says whether `between` is to be called.
    fn hand_out(&mut self) -> RedisResult<bool> {
        let (mut answers, mut awaited) = (0, 0);
        let is_answer = |it: &PushKind| matches!(it, PushKind::Subscribe | PushKind::Unsubscribe);
        while let Some(value) = self.frames.next()? {
            match value {
                // That the inbox is open, or not any more, is the answer to a request.
                Value::Push { kind, data } if !is_answer(&kind) => self.push(kind, data),
                value => {
                    let mut state = lock(&self.shared.state);
                    let request = state.requests.pop_front();
                    awaited = state.requests.len();
                    drop(state);
                    if let Some(answer) = request.and_then(|it| it.answer) {
                        answer(Ok(value));
                    }
                    answers += 1;
                }
            }
        }
        Ok(answers > 1 || awaited > 0)
    }

    fn push(&self, kind: PushKind, data: Vec<Value>) {
        if let Some(push) = &self.push {
            push(&PushInfo { kind, data }, &self.signals);
        }
    }
}

impl Drop for Task {
    /// The connection is lost, or nobody needs it, or its runtime ends: nothing is answered any more.
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.lost = true;
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        for answer in requests.into_iter().filter_map(|it| it.answer) {
            answer(Err(self.error.clone()));
        }
        // What waits to be sent finds out too.
        self.shared.between();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex, split};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A socket, the server's end of it, and its pushes.
    fn pair(room: usize) -> (Socket, DuplexStream, mpsc::UnboundedReceiver<PushKind>) {
        let (ours, theirs) = duplex(room);
        let (reader, writer) = split(ours);
        let (sender, pushes) = mpsc::unbounded_channel();
        let push: OnPush = Arc::new(move |info, _| drop(sender.send(info.kind.clone())));
        let stream = Stream::new((reader, writer), None);
        let socket = Socket::start(stream, LIMIT, Some(push));
        (socket, theirs, pushes)
    }

    async fn has_read(server: &mut DuplexStream, expected: &str) {
        let mut read = vec![0; expected.len()];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_go_to_who_asked_and_pushes_elsewhere() {
        let (socket, mut server, mut pushes) = pair(16);
        let (ping, echo) = (redis::cmd("PING"), redis::cmd("ECHO").arg("a").to_owned());
        let sent = async {
            // More than the other side takes at once.
            tokio::join!(socket.ask(&ping), socket.ask_all([&echo, &ping]))
        };
        let serves = async {
            has_read(&mut server, "*1\r\n$4\r\nPING\r\n").await;
            has_read(&mut server, "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n").await;
            has_read(&mut server, "*1\r\n$4\r\nPING\r\n").await;
            let answers = b"+1\r\n>2\r\n+message\r\n:0\r\n$1\r\na\r\n-ERR no\r\n";
            server.write_all(answers).await.unwrap();
        };
        let ((one, several), ()) = tokio::join!(sent, serves);
        assert_eq!(one.unwrap(), Value::SimpleString("1".to_owned()));
        let several = several.unwrap();
        assert_eq!(several[0], Value::BulkString(b"a".to_vec()));
        assert!(matches!(several[1], Value::ServerError(_)));
        assert_eq!(pushes.recv().await, Some(PushKind::Message));
        assert!(pushes.recv().now_or_never().is_none());
    }

    /// What waits to be sent may do so because others are awaited.
    #[tokio::test(start_paused = true)]
    async fn it_calls_between_answers_unless_the_only_one_awaited_has_come() {
        let (socket, mut server, _pushes) = pair(1024);
        let (called, mut calls) = mpsc::unbounded_channel();
        socket.between(move || called.send(()).unwrap_or_default());
        let ping = redis::cmd("PING");
        server.write_all(b"+1\r\n").await.unwrap();
        socket.ask(&ping).await.unwrap();
        // The clock is paused, so this ends when nobody has anything left to do.
        tokio::time::sleep(LIMIT / 10).await;
        assert!(calls.try_recv().is_err());
        // Two in one piece, then one while another is awaited.
        server.write_all(b"+1\r\n+2\r\n").await.unwrap();
        socket.ask_all([&ping, &ping]).await.unwrap();
        timeout(LIMIT, calls.recv()).await.unwrap();
        let both = socket.ask_all([&ping, &ping]);
        let serves = async {
            server.write_all(b"+1\r\n").await.unwrap();
            timeout(LIMIT, calls.recv()).await.unwrap();
            server.write_all(b"+2\r\n").await.unwrap();
        };
        let (answers, ()) = tokio::join!(both, serves);
        assert_eq!(answers.unwrap().len(), 2);
    }

    /// Those who have an answer send what comes next in one piece, whoever of them is first; unless
    /// that is urgent.
    #[tokio::test(start_paused = true)]
    async fn a_nudge_by_who_has_an_answer_makes_no_further_call() {
        assert_eq!(calls_after_three_nudges(false).await, [3]);
        assert_eq!(calls_after_three_nudges(true).await[0], 0);
    }

    /// How many had added something at each call after three answers.
    async fn calls_after_three_nudges(urgent: bool) -> Vec<usize> {
        let (socket, mut server, _pushes) = pair(1024);
        let (called, mut calls) = mpsc::unbounded_channel();
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&asked);
        socket.between(move || {
            let _ = called.send(seen.load(Ordering::Relaxed));
        });
        let socket = Arc::new(socket);
        for _ in 0..3 {
            let (socket, asked) = (Arc::clone(&socket), Arc::clone(&asked));
            tokio::spawn(async move {
                socket.ask(&redis::cmd("PING")).await.unwrap();
                assert!(socket.nudge(urgent));
                // What it asks next takes another turn.
                tokio::spawn(async move { asked.fetch_add(1, Ordering::Relaxed) });
            });
        }
        has_read(&mut server, &"*1\r\n$4\r\nPING\r\n".repeat(3)).await;
        server.write_all(b"+1\r\n+2\r\n+3\r\n").await.unwrap();
        tokio::time::sleep(LIMIT / 10).await;
        let seen = std::iter::from_fn(|| calls.try_recv().ok()).collect();
        // Who has no answer is not left alone.
        assert!(socket.nudge(urgent));
        assert_eq!(calls.recv().await, Some(3));
        seen
    }

    /// Waits in the system until it may go on, like one whose other end is on the same machine.
    struct Slow {
        entered: std::sync::mpsc::Sender<()>,
        released: std::sync::mpsc::Receiver<()>,
        inner: tokio::io::WriteHalf<DuplexStream>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.entered.send(()).unwrap();
            self.released.recv_timeout(LIMIT).unwrap();
            Pin::new(&mut self.inner).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn who_sends_does_not_wait_for_who_writes() {
        let (ours, mut server) = duplex(1024);
        let (reader, inner) = split(ours);
        let (entered, entering) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel();
        let writer = Slow {
            entered,
            released,
            inner,
        };
        let socket = Socket::start(Stream::new((reader, writer), None), LIMIT, None);
        let ask = |text: &str| {
            let command = redis::cmd("ECHO").arg(text).to_owned();
            socket.send([(command, Box::new(|_| {}) as OnAnswer)]);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| ask("a"));
            entering.recv_timeout(LIMIT).unwrap();
            // The other is in the middle of it, and takes this along.
            ask("b");
            release.send(()).unwrap();
            entering.recv_timeout(LIMIT).unwrap();
            release.send(()).unwrap();
        });
        has_read(&mut server, "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n").await;
        has_read(&mut server, "*2\r\n$4\r\nECHO\r\n$1\r\nb\r\n").await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_too_long_gives_up_and_the_late_answer_is_nobodys() {
        let (socket, mut server, _pushes) = pair(1024);
        let ping = redis::cmd("PING");
        let begin = Instant::now();
        assert!(socket.ask(&ping).await.unwrap_err().is_timeout());
        assert_eq!(begin.elapsed(), LIMIT);
        let late = socket.ask(&ping);
        server.write_all(b"+1\r\n+2\r\n").await.unwrap();
        assert_eq!(late.await.unwrap(), Value::SimpleString("2".to_owned()));
    }

    /// As when it has too many clients.
    #[tokio::test(start_paused = true)]
    async fn what_a_server_says_before_it_closes_is_read() {
        let ((ours, mut says), (closed, _)) = (duplex(64), duplex(64));
        says.write_all(b"-ERR full\r\n").await.unwrap();
        let socket = Socket::start(Stream::new((ours, closed), None), LIMIT, None);
        let said = socket.ask(&redis::cmd("PING")).await.unwrap();
        assert!(matches!(said, Value::ServerError(_)), "{said:?}");
        let lost = socket.ask(&redis::cmd("PING")).await.unwrap_err();
        assert!(lost.is_unrecoverable_error());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_connection_ends_all_that_waits() {
        let (socket, server, mut pushes) = pair(1024);
        let socket = Arc::new(socket);
        let (called, mut calls) = mpsc::unbounded_channel();
        socket.between(move || called.send(()).unwrap_or_default());
        let ping = redis::cmd("PING");
        let (asked, ()) = tokio::join!(socket.ask_all([&ping, &ping]), async { drop(server) });
        assert!(asked.unwrap_err().is_unrecoverable_error());
        assert_eq!(pushes.recv().await, Some(PushKind::Disconnection));
        calls.recv().await.unwrap();
        assert!(!socket.nudge(false));
        assert!(
            socket
                .ask(&ping)
                .await
                .unwrap_err()
                .is_unrecoverable_error()
        );
    }
}
