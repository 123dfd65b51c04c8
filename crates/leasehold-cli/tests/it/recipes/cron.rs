//! Crontabs: read as cron reads them, and each job started on several machines.

use leasehold_testkit::process::Process;

use super::{Fleet, Machine, blocks, crash, started};

/// A crontab as `crontab(5)` describes it.
struct Crontab {
    variables: Vec<(String, String)>,
    jobs: Vec<Job>,
}

struct Job {
    command: String,
    /// What follows a `%`.
    input: String,
}

impl Crontab {
    fn parse(text: &str) -> Self {
        let (mut variables, mut jobs) = (Vec::new(), Vec::new());
        for line in text.lines().map(str::trim_start) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once('=') {
                Some((name, value)) if is_name(name.trim()) => {
                    let value = value.trim().trim_matches(['"', '\'']);
                    variables.push((name.trim().to_owned(), value.to_owned()));
                }
                _ => jobs.push(Job::parse(line)),
            }
        }
        Self { variables, jobs }
    }
}

fn is_name(text: &str) -> bool {
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(of_a_name)
}

impl Job {
    fn parse(line: &str) -> Self {
        let mut rest = line;
        for range in [0..=59, 0..=23, 1..=31, 1..=12, 0..=7] {
            let split = rest.split_once([' ', '\t']);
            let (field, others) = split.expect("five fields and a command");
            let numbers = field.split([',', '-', '/', '*']);
            for number in numbers.filter(|it| !it.is_empty()) {
                let number: u8 = number.parse().expect("a number");
                assert!(range.contains(&number), "{number} in {line}");
            }
            rest = others.trim_start();
        }
        let (mut parts, mut escaped) = (vec![String::new()], false);
        for c in rest.chars() {
            match (c, escaped) {
                ('%', true) => {
                    let part = parts.last_mut().expect("there is one");
                    part.pop();
                    part.push('%');
                }
                ('%', false) => parts.push(String::new()),
                _ => parts.last_mut().expect("there is one").push(c),
            }
            escaped = c == '\\';
        }
        let command = parts.remove(0);
        let input = parts.join("\n");
        Self { command, input }
    }

    /// What it runs under the lock.
    fn program(&self) -> &str {
        self.command.rsplit(' ').next().expect("a command")
    }

    /// As cron starts it: by a shell that knows little.
    fn start(&self, machine: &Machine<'_>, crontab: &Crontab) -> Process {
        self.start_with(machine, &crontab.variables)
    }

    fn start_with(&self, machine: &Machine<'_>, variables: &[(String, String)]) -> Process {
        let shell = ["/bin/sh", "-c", &*machine.real(&self.command)].map(str::to_owned);
        let mut command = machine.command(&shell, &[]);
        command.env("PATH", "/usr/bin:/bin");
        command.env("SHELL", "/bin/sh").env("LOGNAME", "cron");
        command.env("HOME", machine.place.path("home"));
        command.envs(machine.real_values(variables));
        Process::spawn_with_input(command, &*self.input)
    }
}

/// Each job of each page, with the machines of its fleet.
async fn with_each_job(case: impl AsyncFn(&Job, &Crontab, [Machine<'_>; 2])) {
    let mut found = 0;
    for block in blocks("crontab") {
        let crontab = Crontab::parse(&block.text);
        for job in &crontab.jobs {
            let fleet = Fleet::of(&block.text);
            let machines = fleet.two_with_job(job.program());
            case(job, &crontab, machines).await;
            found += 1;
        }
    }
    assert!(found > 2);
}

/// Starts it, and expects it to be skipped without a word.
async fn is_skipped(job: &Job, crontab: &Crontab, machine: &Machine<'_>) {
    let skipped = job.start(machine, crontab).ends_printing(0, "").await;
    skipped.has_been_quiet(Some(0));
}

#[tokio::test]
async fn a_job_runs_on_one_machine_and_is_skipped_on_the_others() {
    with_each_job(async |job, crontab, [first, second]| {
        let runs = job.start(&first, crontab);
        started(&runs, job.program()).await;
        is_skipped(job, crontab, &second).await;
        first.release(job.program()).await;
        runs.finish().await.has_been_quiet(Some(0));
        // The other machine's clock is a little behind.
        if job.command.contains("--every") {
            return is_skipped(job, crontab, &second).await;
        }
        let runs = job.start(&second, crontab);
        started(&runs, job.program()).await;
        second.release(job.program()).await;
        runs.finish().await.has_code(Some(0));
    })
    .await;
}

#[tokio::test]
async fn after_the_death_of_a_machine_its_job_is_skipped_for_a_while() {
    with_each_job(async |job, crontab, [first, second]| {
        let runs = job.start(&first, crontab);
        started(&runs, job.program()).await;
        crash(runs).await;
        is_skipped(job, crontab, &second).await;
    })
    .await;
}

#[tokio::test]
async fn without_the_store_cron_has_a_line_to_mail() {
    with_each_job(async |job, crontab, [machine, _]| {
        let mut variables = crontab.variables.clone();
        let nobody = ["LEASEHOLD_STORE", "redis://127.0.0.1:1/"];
        variables.push(nobody.map(str::to_owned).into());
        // Asks for a moment, and not for minutes.
        let job = Job {
            command: job.command.replace("--retry-for 5m", "--retry-for 300ms"),
            input: String::new(),
        };
        let started = job.start_with(&machine, &variables);
        let ended = started.ends_printing(69, "").await;
        ended.has_said_first("leasehold: ");
    })
    .await;
}

#[test]
fn a_percent_sign_ends_a_command_unless_it_is_escaped() {
    let job = Job::parse("*/5 0-7 1,15 * 7 date +\\%F %first%second");
    assert_eq!((&*job.command, &*job.input), ("date +%F ", "first\nsecond"));
    let crontab = Crontab::parse("# none\nA = \"b c\"\n");
    assert_eq!(crontab.variables, [("A".to_owned(), "b c".to_owned())]);
}
