//! Connections: as many as are needed, up to a limit. Each carries one statement at a time, and
//! nothing of a session, so that a pooler may be between.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::{fmt, iter};

use leasehold_core::Moment;
use leasehold_store::idle::Idle;
use leasehold_store::sync::{Mutex, check_runtime, lock, timeout};
use leasehold_store::{Acknowledged, ErrorKind, StoreError, clock, unavailable};
use tokio::sync::Semaphore;
use tokio_postgres::config::Host;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row};

use super::errors;
use super::hosts::{each_address, hosts_of};
use super::options::PostgresOptions;
use super::tls::{self, Wire};

/// How long a connection is kept that nobody uses, beside one.
const IDLE: Duration = Duration::from_secs(10);

/// How often a statement is repeated that the server has undone.
const TRIES: usize = 8;

/// What begins a transaction that waits for others for less than a client waits for it, as the functions
/// of the schema do. Otherwise each try that the client has given up would go on, with its connection.
pub(crate) const PATIENCE: &str = "begin; set local lock_timeout = '4s';";

/// The pauses before a connection that was refused is tried again: the first, and the longest. A
/// server may count the logins that fail, and lock the role out.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A parameter of a statement. With their types, statements need no names and one round trip.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Parameters: values, each with the name of its type.
macro_rules! params {
    ($($value:expr => $name:ident),+ $(,)?) => {
        [$((
            &$value as &(dyn tokio_postgres::types::ToSql + Sync),
            tokio_postgres::types::Type::$name,
        )),+]
    };
}
pub(crate) use params;

pub(crate) struct Pool {
    pub(crate) options: PostgresOptions,
    pub(crate) schema: String,
    pub(crate) server: String,
    idle: Arc<Idle<Session>>,
    room: Semaphore,
    /// That of statements, and that of the session that listens, if it has another.
    ways: [Way; 2],
    /// Whether a connection was opened with these settings before.
    worked: AtomicBool,
}

leasehold_store::debug!(Pool; |it| server: it.server);

/// A way to the server.
#[derive(Default)]
struct Way {
    /// Which of the hosts was connected to last.
    host: AtomicUsize,
    refused: Mutex<Option<Refusal>>,
}

/// A connection that was refused, as for its login.
struct Refusal {
    /// The hosts, each with what it was tried with: another password is tried at once.
    hosts: Vec<Config>,
    error: StoreError,
    /// When it is tried again, and the pause before that.
    next: Moment,
    pause: Duration,
}

/// A connection that was tried, if there was an answer.
type Tried = Option<Result<(Client, Wire), Error>>;

/// A connection, and the last warning of its server.
type Session = (Client, Arc<Mutex<Option<String>>>);

impl Pool {
    pub(crate) fn new(options: &PostgresOptions) -> Arc<Self> {
        Arc::new(Self {
            options: options.clone(),
            schema: options.quoted_schema(),
            server: server(&options.config),
            idle: Idle::new(IDLE),
            room: Semaphore::new(options.pool as usize),
            ways: <[Way; 2]>::default(),
            worked: AtomicBool::new(false),
        })
    }

    /// Carries out one statement, which has `{schema}` for the name of the schema. A future that is
    /// dropped leaves the outcome unknown. An error of the server may mean something to who asks.
    /// One that names a table is a transaction with [`PATIENCE`], in one round trip.
    pub(crate) async fn query(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Result<Vec<Row>, Error>, StoreError> {
        check_runtime()?;
        // Nobody closes it.
        let _room = self.room.acquire().await;
        let names_table =
            statement.contains("{schema}.keys") || statement.contains("{schema}.about");
        let statement = statement.replace("{schema}", &self.schema);
        let mut left = TRIES;
        loop {
            let (client, warning) = self.session().await?;
            let asked = async {
                let asked = client.query_typed(&statement, params);
                if !names_table {
                    return asked.await;
                }
                let begin = client.batch_execute(PATIENCE);
                let end = client.batch_execute("commit");
                let (begun, answer, ended) = tokio::join!(begin, asked, end);
                begun.and(answer).and_then(|rows| ended.map(|()| rows))
            };
            // What comes later is nobody's any more.
            let answer = self.answer(&self.options.config, asked).await?;
            let warned = lock(&warning).take();
            let code = answer.as_ref().err().and_then(Error::code);
            let is_undone = matches!(
                code,
                Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
            );
            if code == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                // Another host may accept writes: only a new connection finds out.
                self.idle.clear();
            } else if !client.is_closed() {
                self.idle.put((client, warning));
            }
            // It did not wait for its standbys until the end.
            if let Some(warning) = warned.filter(|_| self.acknowledged().is_some()) {
                return Err(
                    unavailable(format!("PostgreSQL at {}: {warning}", self.server))
                        .with_hint("check that its synchronous standbys are running and connected"),
                );
            }
            left -= 1;
            if left == 0 || !is_undone {
                return Ok(answer);
            }
        }
    }

    /// One that is idle, or another.
    async fn session(&self) -> Result<Session, StoreError> {
        let mut idle = iter::from_fn(|| self.idle.take());
        match idle.find(|(client, _)| !client.is_closed()) {
            Some(session) => Ok(session),
            None => self.connect().await,
        }
    }

    /// Carries out statements one after the other, in one session.
    pub(crate) async fn run(&self, statements: &[String]) -> Result<(), StoreError> {
        let _room = self.room.acquire().await;
        let session = self.session().await?;
        for statement in statements {
            let asked = session.0.batch_execute(statement);
            self.told(&self.options.config, asked).await?;
        }
        self.idle.put(session);
        Ok(())
    }

    /// As [`query`](Self::query), for statements about no key or several.
    pub(crate) async fn ask(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let answer = self.query(statement, params).await?;
        answer.map_err(|error| self.meaning(error))
    }

    /// What comes from these hosts within the time that an answer may take.
    pub(crate) async fn answer<T>(
        &self,
        at: &Config,
        asked: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let answer = timeout(self.options.response_timeout, asked).await;
        answer.map_err(|_| late(&server(at), "did not answer"))
    }

    /// The same of a server that may refuse.
    pub(crate) async fn told<T>(
        &self,
        at: &Config,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let answer = self.answer(at, asked).await?;
        answer.map_err(|error| self.meaning_at(at, error))
    }

    /// The acknowledgements of each step that the server answers without a warning.
    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        let (wanted, limit) = (self.options.acknowledge, self.options.response_timeout);
        (wanted > 0).then_some(Acknowledged::new(wanted, wanted, None, limit))
    }

    pub(crate) fn meaning(&self, error: Error) -> StoreError {
        self.meaning_at(&self.options.config, error)
    }

    /// As [`meaning`](Self::meaning), of a connection to these hosts.
    fn meaning_at(&self, config: &Config, error: Error) -> StoreError {
        errors::meaning(error, &self.schema, &server(config))
    }

    /// A connection for one of many statements, or to make the schema.
    pub(crate) async fn connect(&self) -> Result<Session, StoreError> {
        let (client, connection) = self.connect_to(&self.options.config).await?;
        let warning = Arc::new(Mutex::default());
        let warned = warning.clone();
        tokio::spawn(drive(connection, move |message| {
            // One comes before the answer of its statement.
            if let AsyncMessage::Notice(notice) = message
                && notice.parsed_severity() == Some(Severity::Warning)
            {
                *lock(&warned) = Some(notice.message().to_owned());
            }
        }));
        Ok((client, warning))
    }

    /// What has worked before passes, if it may be replaced: files, and a login without a fixed password.
    pub(crate) async fn connect_to(&self, config: &Config) -> Result<(Client, Wire), StoreError> {
        let only_listens = *config != self.options.config;
        let way = &self.ways[usize::from(only_listens)];
        let worked = self.worked.load(Ordering::Relaxed);
        let passes = |error: StoreError| match worked {
            true => error.into_unavailable(),
            false => error,
        };
        let hosts = self.options.each_host(config).await.map_err(passes)?;
        let mut pause = AGAIN.0;
        if let Some(last) = &mut *lock(&way.refused)
            && last.hosts == hosts
        {
            let now = clock::now();
            if now < last.next {
                return Err(last.error.clone());
            }
            // Leases may wait for statements, and must not end meanwhile.
            if only_listens || !worked {
                pause = (2 * last.pause).min(AGAIN.1);
            }
            // Others wait for what comes of this one.
            last.next = now + pause;
        }
        let opened = self.open(config, &hosts, &way.host).await;
        let error = match opened.map_err(passes)? {
            Ok(connected) => {
                self.worked.store(true, Ordering::Relaxed);
                *lock(&way.refused) = None;
                return Ok(connected);
            }
            Err(error) => error,
        };
        let has_own = config.get_password().is_some() && !self.options.access.may_change();
        // Another host may let this client in that cannot be reached just now.
        let may_change = !has_own || hosts.len() > 1;
        // Without a code it is of this side: the file of passwords may be written just now.
        let may_pass = error.code().is_none() || may_change && errors::is_of_login(&error);
        let error = match tls::failure(&error, &server(config)) {
            Some(said) => said.with_source(error),
            None => self.meaning_at(config, error),
        };
        let is_refusal = error.kind() != ErrorKind::Unavailable;
        let error = if may_pass { passes(error) } else { error };
        let refusal = || Refusal {
            hosts,
            error: error.clone(),
            next: clock::now() + pause,
            pause,
        };
        *lock(&way.refused) = is_refusal.then(refusal);
        Err(error)
    }

    async fn open(
        &self,
        config: &Config,
        hosts: &[Config],
        last: &AtomicUsize,
    ) -> Result<Result<(Client, Wire), Error>, StoreError> {
        // One that does not answer leaves time for the others, and they are asked first the next time.
        let each = self.options.connect_timeout / u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let first = last.load(Ordering::Relaxed);
        let mut failure = None;
        for place in (first..first + hosts.len()).map(|place| place % hosts.len()) {
            let mut host = hosts[place].clone();
            tls::apply(&mut host, &self.options);
            let opened = async { self.open_one(&each_address(host).await, each).await };
            match timeout(each, opened).await.unwrap_or(Ok(None))? {
                Some(Ok(connected)) => {
                    last.store(place, Ordering::Relaxed);
                    return Ok(Ok(connected));
                }
                failed => failure = telling(failure, failed.and_then(Result::err)),
            }
        }
        let failure = failure.map(Err);
        failure.ok_or_else(|| late(&server(config), "took no connection"))
    }

    /// At the first of the addresses of a host that lets this client in. Each has its part of the time,
    /// and the last what is left.
    async fn open_one(&self, addresses: &[Config], limit: Duration) -> Result<Tried, StoreError> {
        let each = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut failure = None;
        for (place, address) in addresses.iter().enumerate() {
            let tls = tls::connect(&self.options)?;
            let is_last = place + 1 == addresses.len();
            let limit = if is_last { limit } else { each };
            match timeout(limit, address.connect(tls)).await {
                Ok(Ok(connected)) => return Ok(Some(Ok(connected))),
                failed => failure = telling(failure, failed.ok().and_then(Result::err)),
            }
        }
        Ok(failure.map(Err))
    }
}

/// What is said of several that were tried: that one has refused the login, if one has, and else
/// why the last could not be connected to.
fn telling(before: Option<Error>, failed: Option<Error>) -> Option<Error> {
    before.filter(errors::is_of_login).or(failed)
}

/// Drives a connection until it ends. Whoever waits for an answer is told of that.
pub(crate) async fn drive(mut connection: Wire, mut hear: impl FnMut(AsyncMessage)) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        hear(message);
    }
}

fn late(server: &str, what: &str) -> StoreError {
    unavailable(format!("PostgreSQL at {server} {what} in time"))
        .with_hint("check the server, and a pooler before it, which may wait for the server")
}

/// A column, which is of the type that the schema says unless somebody has changed it.
pub(crate) fn get<'a, T: FromSql<'a>>(
    row: &'a Row,
    column: impl RowIndex + fmt::Display,
) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| {
        let message = "the functions of leasehold's schema are not ours";
        StoreError::new(ErrorKind::Corrupt, message)
            .with_hint("look at the schema; leasehold init makes another, with ?schema=NAME")
            .with_source(error)
    })
}

/// The first column of the first row, if it is there and of that type.
pub(crate) fn first<T: for<'a> FromSql<'a>>(rows: &[Row]) -> Option<T> {
    rows.first().and_then(|row| row.try_get(0).ok())
}

/// The hosts, for messages.
fn server(config: &Config) -> String {
    let hosts = hosts_of(config).map(|(host, port)| match host {
        Host::Tcp(name) => format!("{name}:{port}"),
        Host::Unix(path) => path.display().to_string(),
    });
    hosts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// The session that listens may go another way than statements.
    #[tokio::test]
    async fn who_has_not_answered_in_time_is_named() {
        let options = PostgresOptions::from_url("postgres://h/d?response_timeout=1ms").unwrap();
        let other = "postgres://other/d".parse().unwrap();
        let late = Pool::new(&options).told::<()>(&other, pending()).await;
        let late = late.unwrap_err();
        assert!(late.hint().is_some_and(|hint| hint.contains("pooler")));
        let late = late.to_string();
        assert!(late.contains("at other:5432 did not answer"), "{late}");
    }

    /// The address of a server that refuses a connection once, with this code; who connects after
    /// that is refused by the machine.
    fn refusing(code: &str) -> SocketAddr {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let said = format!("SFATAL\0C{code}\0Mnot like this\0\0");
        thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let _ = stream.read(&mut [0; 512]);
            let length = u32::try_from(4 + said.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&b"E"[..], &length, said.as_bytes()].concat());
        });
        address
    }

    /// Nor do others that need a connection, unless they have another password.
    #[tokio::test]
    async fn who_is_refused_does_not_log_in_again_at_once() {
        for code in ["28P01", "3D000"] {
            let url = format!("postgres://u:wrong@{}/d?sslmode=disable", refusing(code));
            let pool = Pool::new(&PostgresOptions::from_url(&url).unwrap());
            let refused = async || pool.connect().await.err().unwrap().to_string();
            let said = refused().await;
            assert!(said.contains("not like this"), "{said}");
            if let Some(last) = &mut *lock(&pool.ways[0].refused) {
                last.next = clock::now() + Duration::from_secs(3600);
            }
            assert_eq!(refused().await, said);
            if let Some(last) = &mut *lock(&pool.ways[0].refused) {
                last.hosts[0].password("another");
            }
            let other = refused().await;
            assert!(other.contains("cannot be reached"), "{other}");
        }
    }

    /// It can be reached again, and the password stays wrong.
    #[tokio::test]
    async fn a_refused_login_is_said_also_where_another_host_cannot_be_reached() {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let down = nobody.local_addr().unwrap();
        drop(nobody);
        let hosts = format!("{},{down}", refusing("28P01"));
        let url = format!("postgres://u:wrong@{hosts}/d?sslmode=disable");
        let pool = Pool::new(&PostgresOptions::from_url(&url).unwrap());
        let said = pool.connect().await.err().unwrap();
        assert_eq!(said.kind(), ErrorKind::Refused);
        assert!(said.to_string().contains("not like this"), "{said}");
    }

    /// Where a name has several, and the server at one of them is down.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let answers = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = answers.local_addr().unwrap().port();
        let silent = Ipv4Addr::new(127, 0, 0, 2);
        let _silent = TcpListener::bind((silent, port)).unwrap();
        // Asks for a password, as a server does.
        thread::spawn(move || {
            let (mut stream, _) = answers.accept().unwrap();
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3]);
        });
        let url = format!("postgres://u@name:{port}/d?sslmode=disable");
        let pool = Pool::new(&PostgresOptions::from_url(&url).unwrap());
        let addresses = [silent, Ipv4Addr::LOCALHOST].map(|address| {
            let mut host = pool.options.config.clone();
            tls::apply(&mut host, &pool.options);
            host.hostaddr(address.into());
            host
        });
        let opened = pool.open_one(&addresses, Duration::from_secs(2)).await;
        let answer = opened.unwrap().expect("an answer");
        let refused = pool.meaning(answer.err().unwrap()).to_string();
        assert!(refused.contains("wants a password"), "{refused}");
    }
}
