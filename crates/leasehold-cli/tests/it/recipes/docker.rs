//! Entrypoints of images, run as process 1 of a PID namespace with the variables of the image.

use leasehold_testkit::process::{Process, Signal};
use rustix::process::kill_process;

use super::{Fleet, Machine, blocks, started};
use crate::descendants::only_child_of;

/// What a Dockerfile says about the process that is started.
#[derive(Default)]
struct Image {
    variables: Vec<(String, String)>,
    programs: Vec<String>,
    entrypoint: Vec<String>,
    command: Vec<String>,
}

impl Image {
    fn parse(text: &str) -> Self {
        let mut image = Self::default();
        let lines = text.lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (instruction, rest) = line.split_once(' ').expect("an instruction");
            let words = || serde_json::from_str(rest).expect("the form with brackets");
            match instruction {
                "FROM" => {}
                "STOPSIGNAL" => assert_eq!(rest, "SIGTERM"),
                "COPY" => {
                    let from = rest.strip_suffix(" /usr/local/bin/");
                    let from = from.expect("to the programs");
                    let copied = from.split(' ').filter(|word| !word.starts_with("--from="));
                    let names = copied.filter_map(|path| path.rsplit('/').next());
                    image.programs.extend(names.map(str::to_owned));
                }
                "ENV" => {
                    let (name, value) = rest.split_once('=').expect("NAME=VALUE");
                    let value = value.trim_matches('"');
                    image.variables.push((name.to_owned(), value.to_owned()));
                }
                "ENTRYPOINT" => image.entrypoint = words(),
                "CMD" => image.command = words(),
                other => panic!("a new instruction: {other}"),
            }
        }
        image
    }

    /// `docker run` with these variables.
    fn start(&self, machine: &Machine<'_>, variables: &[(&str, &str)]) -> Process {
        let apart = "unshare --fork --pid --mount-proc --kill-child".split(' ');
        let user = "--user --map-root-user".split(' ');
        let user = user.filter(|_| !rustix::process::geteuid().is_root());
        let words = apart.chain(user).map(str::to_owned);
        let words = words.chain([self.entrypoint.clone(), self.command.clone()].concat());
        let given = variables.iter();
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: Vec<_> = self.variables.iter().cloned().chain(given).collect();
        Process::spawn(machine.command(&words.collect::<Vec<_>>(), &variables))
    }
}

const STORE: (&str, &str) = ("LEASEHOLD_STORE", "redis://host/");

fn images() -> Vec<Image> {
    let blocks = blocks("dockerfile");
    let images = blocks.iter().map(|block| Image::parse(&block.text));
    let images: Vec<_> = images.collect();
    for image in &images {
        for program in [&image.entrypoint[0], &image.command[0]] {
            assert!(image.programs.contains(program), "{program} is in it");
        }
    }
    images
}

#[tokio::test]
async fn an_entrypoint_is_process_1_and_passes_signals_on() {
    for image in images() {
        let (fleet, name) = (Fleet::of(STORE.1), &image.command[0]);
        let machines = fleet.two_with_job(name);
        let first = image.start(&machines[0], &[STORE]);
        let token = started(&first, name).await;
        let second = image.start(&machines[1], &[STORE]);
        second.says("(position 1)").await;
        // To process 1 of the container.
        kill_process(only_child_of(&first), Signal::TERM).unwrap();
        assert!(started(&second, name).await > token);
        first.finish().await.has_code(Some(143));
        machines[1].release(name).await;
        second.finish().await.has_code(Some(0));
    }
}

#[tokio::test]
async fn what_a_program_leaves_behind_is_reaped() {
    let script = "#!/bin/sh\ncat /proc/1/comm\norphan=$(sh -c ': & echo $!')\n\
                  while [ -e /proc/$orphan ]; do sleep 0.02; done\necho reaped\n";
    for image in images() {
        let fleet = Fleet::of(STORE.1);
        let machine = fleet.machine();
        machine.install(&image.command[0], script);
        let started = image.start(&machine, &[STORE]);
        started.ends_printing(0, "leasehold\nreaped\n").await;
    }
}

#[tokio::test]
async fn a_container_without_a_store_does_not_run() {
    for image in images() {
        let fleet = Fleet::of(STORE.1);
        let machine = fleet.machine();
        machine.install_job(&image.command[0]);
        let ended = image.start(&machine, &[]).ends_printing(64, "").await;
        ended.has_said("the store is empty");
    }
}
