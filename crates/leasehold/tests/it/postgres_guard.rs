//! The programs of `examples/postgres-guard`, as they stand: what a stale holder has begun is not
//! committed. `docs/stores/postgres.md` quotes them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Command};

use leasehold_testkit::process::{self, Signal};
use leasehold_testkit::python::python;

use super::http::post;
use super::postgres_store::*;
use super::sources;

const KEY: &str = "payments";
const REFUSED: &str = "a later holder of 'payments' has been here";

fn examples() -> PathBuf {
    sources::at("examples/postgres-guard")
}

/// A database with orders and with the locks of those who pay them.
struct Shop {
    url: String,
    database: String,
    /// A role that may change the orders and call `guard`, and has no right to the records.
    clerk: String,
    client: Client,
}

impl Shop {
    async fn open() -> Self {
        let server = Postgres::shared();
        let database = server.database();
        let url = server.url_of(&database);
        init(&url).await.expect("a schema");
        let clerk = format!("clerk_of_{database}");
        let orders = format!(
            "create table orders (id bigint primary key, state text not null default 'new'); \
             insert into orders values (1), (2), (3); \
             create role {clerk} login; \
             grant usage on schema leasehold to {clerk}; \
             grant select, update on orders to {clerk}"
        );
        sql_at(&url, &orders);
        let client = leasehold::connect(&url).await.unwrap();
        Self {
            url,
            database,
            clerk,
            client,
        }
    }

    /// A command that finds the database, and is the clerk there.
    fn as_clerk(&self, mut command: Command) -> Command {
        let address = Postgres::shared().address();
        command
            .env("PGHOST", address.ip().to_string())
            .env("PGPORT", address.port().to_string())
            .env("PGUSER", &self.clerk)
            .env("PGDATABASE", &self.database);
        command
    }

    fn states(&self) -> String {
        let states = "select string_agg(state, ' ' order by id) from orders";
        sql_at(&self.url, states)
    }

    async fn lock(&self) -> Lease {
        soon("the lock", lock(&self.client, KEY)).await
    }

    /// Takes the key from whoever has it.
    async fn take_over(&self) -> Lease {
        self.client.break_key(KEY).await.unwrap();
        self.lock().await
    }

    /// A transaction that has called `guard`, changed nothing, and stays open.
    async fn guarded(&self, token: Token) -> Transaction {
        let mut command = psql(&self.url, "begin");
        let guard = format!("select leasehold.guard('{KEY}', {token})");
        command.args(["-c", &guard, "-c", "\\echo guarded", "-f", "-"]);
        let (psql, input) = Process::spawn_to_feed(command);
        psql.prints("guarded").await;
        Transaction { psql, input }
    }

    /// Until the clerk's transaction waits for another.
    async fn clerk_waits(&self) {
        let waits = format!(
            "select count(*) from pg_stat_activity \
             where usename = '{}' and wait_event_type = 'Lock'",
            self.clerk
        );
        until("the clerk waits", async || sql_at(&self.url, &waits) == "1").await;
    }
}

/// One of `psql`.
struct Transaction {
    psql: Process,
    input: ChildStdin,
}

impl Transaction {
    async fn commit(mut self, work: &str) {
        writeln!(self.input, "{work}; commit;").unwrap();
        drop(self.input);
        self.psql.finish().await.has_code(Some(0));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Example {
    Sqlx,
    Psycopg,
    Django,
}

/// A running example that has paid order 1.
struct Payer {
    process: Process,
    /// What it reads the numbers of orders from; the service in Django has requests.
    input: Option<ChildStdin>,
    address: String,
    token: Token,
    /// The lease of what `leasehold run` would run.
    _lease: Option<Lease>,
}

impl Payer {
    async fn start(example: Example, shop: &Shop) -> Self {
        let lease = match example {
            Example::Sqlx => None, // it locks
            Example::Psycopg | Example::Django => Some(shop.lock().await),
        };
        let token = lease.as_ref().map_or(Token::NONE, |lease| lease.token());
        let mut command = shop.as_clerk(match example {
            Example::Sqlx => process::command("postgres-guard"),
            Example::Psycopg | Example::Django => python("psycopg-django"),
        });
        match example {
            Example::Sqlx => command.env("LEASEHOLD_STORE", &shop.url),
            Example::Psycopg => command
                .arg(examples().join("psycopg_job.py"))
                .env("LEASEHOLD_KEY", KEY)
                .env("LEASEHOLD_TOKEN", token.to_string()),
            Example::Django => command.arg(examples().join("django_view.py")).args([
                "runserver",
                "--noreload",
                "127.0.0.1:0",
            ]),
        };
        let (process, input) = Process::spawn_to_feed(command);
        let (mut input, mut address) = (Some(input), String::new());
        if example == Example::Django {
            let line = process.prints("http://127.0.0.1:").await;
            let (_, behind) = line.split_once("http://").expect("an address");
            behind.trim_end_matches('/').clone_into(&mut address);
            input = None;
        }
        let mut payer = Self {
            process,
            input,
            address,
            token,
            _lease: lease,
        };
        payer.pays(1).await;
        payer.token = shop.client.inspect(KEY).await.unwrap().holders[0].token;
        payer
    }

    async fn pays(&mut self, order: u32) {
        if let Some(input) = &mut self.input {
            writeln!(input, "{order}").unwrap();
            self.process.prints(&format!("order {order} is paid")).await;
        } else {
            let answer = self.request(order).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            let paid = format!("order {order} is paid");
            assert!(answer.ends_with(&paid), "{answer}");
        }
    }

    /// It is refused an order, and stops, if it is a job.
    async fn fails_to_pay(mut self, order: u32) {
        let said = format!("order {order} is not paid: ");
        if let Some(mut input) = self.input.take() {
            writeln!(input, "{order}").unwrap();
            drop(input);
            let ended = self.process.ends(1).await;
            ended.has_said(said);
            ended.has_said(REFUSED);
        } else {
            let answer = self.request(order).await;
            assert!(answer.starts_with("HTTP/1.1 409 "), "{answer}");
            assert!(answer.contains(&said), "{answer}");
            assert!(answer.contains(REFUSED), "{answer}");
        }
    }

    async fn request(&self, order: u32) -> String {
        let path = format!("/orders/{order}/pay");
        let token = format!("Lease-Token: {}\r\n", self.token);
        post(&self.address, &path, &token).await
    }

    /// The end of its orders ends a job.
    async fn ends(mut self) {
        if self.input.take().is_some() {
            self.process.finish().await.has_code(Some(0));
        }
    }
}

async fn pays_several_with_one_token(example: Example) {
    let shop = Shop::open().await;
    let mut payer = Payer::start(example, &shop).await;
    payer.pays(2).await;
    assert_eq!(shop.states(), "paid paid new");
    payer.ends().await;
    // Whoever paid need not see who holds what.
    let url = shop.url.replace("postgres@", &format!("{}@", shop.clerk));
    let looked = Process::run(psql(&url, "select * from leasehold.keys")).await;
    looked.has_said("permission denied for table keys");
}

async fn a_paused_holder_is_refused(example: Example) {
    let shop = Shop::open().await;
    let payer = Payer::start(example, &shop).await;
    payer.process.stop();
    let lease = shop.take_over().await;
    let later = shop.guarded(lease.token()).await;
    let cancel = "update orders set state = 'cancelled' where id = 2";
    later.commit(cancel).await;
    payer.process.signal(Signal::CONT);
    payer.fails_to_pay(2).await;
    assert_eq!(shop.states(), "paid cancelled new");
}

/// Another transaction has called `guard` and is not at its end.
async fn waits_for_who_was_first(example: Example) {
    let shop = Shop::open().await;
    let mut payer = Payer::start(example, &shop).await;
    let work = "update orders set state = state || ', packed' where id <> 1";

    let same = shop.guarded(payer.token).await;
    let commit = async |first: Transaction| {
        shop.clerk_waits().await;
        first.commit(work).await;
    };
    tokio::join!(payer.pays(2), commit(same));
    assert_eq!(shop.states(), "paid paid new, packed");

    let lease = shop.take_over().await;
    let later = shop.guarded(lease.token()).await;
    tokio::join!(payer.fails_to_pay(3), commit(later));
    assert_eq!(shop.states(), "paid paid, packed new, packed, packed");
}

macro_rules! cases {
    ($($name:ident: $example:ident)*) => {$(
        mod $name {
            use super::Example;

            crate::support::tests! {
                #[tokio::test]
                fn pays_several_with_one_token() {
                    super::pays_several_with_one_token(Example::$example)
                }
                fn a_paused_holder_is_refused() {
                    super::a_paused_holder_is_refused(Example::$example)
                }
                fn waits_for_who_was_first() { super::waits_for_who_was_first(Example::$example) }
            }
        }
    )*};
}

cases! {
    sqlx: Sqlx
    psycopg: Psycopg
    django: Django
}

// ---- the page ----

/// Each snippet of the section stands in one of the examples, but for the indentation.
#[test]
fn the_page_quotes_the_examples() {
    let squeeze = |text: &str| -> String {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| format!("{line}\n")).collect()
    };
    let files = ["src/main.rs", "psycopg_job.py", "django_view.py"];
    let read = |name: &str| sources::read(&format!("examples/postgres-guard/{name}"));
    let examples = files.map(|name| squeeze(&read(name)));
    let page = sources::read("docs/stores/postgres.md");
    let heading = "## Fencing inside of a transaction";
    let (_, section) = page.split_once(heading).unwrap();
    let section = section.split("\n## ").next().unwrap();
    for (language, examples) in [("rust", &examples[..1]), ("python", &examples[1..])] {
        let fence = format!("```{language}\n");
        let snippets = section.split(&fence).skip(1);
        let snippets = snippets.map(|rest| rest.split("```").next().unwrap());
        let snippets: Vec<_> = snippets.collect();
        assert_eq!(snippets.len(), examples.len(), "of {language}");
        for (snippet, example) in snippets.iter().zip(examples) {
            assert!(example.contains(&squeeze(snippet)), "not run:\n{snippet}");
        }
    }
}

/// A refusal has a code of its own, and is about one key.
#[tokio::test]
async fn a_lower_token_is_refused_by_a_code() {
    let shop = Shop::open().await;
    let refused = "do $$ begin perform leasehold.guard('k', 2); perform leasehold.guard('k', 2); \
                   perform leasehold.guard('k', 1); raise 'it was not refused'; \
                   exception when sqlstate 'LH001' then perform leasehold.guard('l', 1); end $$";
    sql_at(&shop.url, refused);
}

/// A row that no holder has written refuses them, too.
#[tokio::test]
async fn what_is_no_token_fences_nothing() {
    let shop = Shop::open().await;
    for token in ["0", "-1", "null"] {
        let guard = format!("select leasehold.guard('new', {token})");
        let done = psql(&shop.url, &guard).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let is_refused = !done.status.success() && said.contains("no fencing token");
        assert!(is_refused, "{token}: {said}");
    }
    let seen = sql_at(&shop.url, "select count(*) from leasehold.guards");
    assert_eq!(seen, "0");
}
