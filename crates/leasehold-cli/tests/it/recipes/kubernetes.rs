//! Manifests of Kubernetes: read, and their containers run as the kubelet would.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use leasehold_testkit::process::{PATIENCE, Process, Signal};
use tokio::time::{sleep, timeout};
use yaml_rust2::{Yaml, YamlLoader};

use super::{Fleet, Machine, blocks, crash, started};

/// The fields of the recipes: another name may be a slip, which a cluster would refuse or ignore.
const FIELDS: &str = "\
    apiVersion app args backoffLimit command concurrencyPolicy containers emptyDir env image \
    initContainers jobTemplate kind labels matchLabels medium metadata mountPath name readOnly \
    replicas restartPolicy schedule selector spec startingDeadlineSeconds strategy template \
    terminationGracePeriodSeconds timeZone type value volumeMounts volumes";

/// What a manifest makes pods of.
struct Manifest {
    kind: String,
    grace: u64,
    containers: Vec<Container>,
    text: String,
}

struct Container {
    name: String,
    is_sidecar: bool,
    command: Vec<String>,
    variables: Vec<(String, String)>,
    mounts: Vec<String>,
}

fn text(yaml: &Yaml) -> String {
    let text = yaml.as_str().map(str::to_owned);
    text.unwrap_or_else(|| panic!("a text: {yaml:?}"))
}

fn list(yaml: &Yaml) -> Vec<Yaml> {
    yaml.as_vec().cloned().unwrap_or_default()
}

impl Manifest {
    fn parse(manifest: &str) -> Self {
        let documents = YamlLoader::load_from_str(manifest).expect("YAML");
        let [document] = &*documents else {
            panic!("one object in a block")
        };
        check_fields(document);
        let kind = text(&document["kind"]);
        let spec = &document["spec"];
        let (version, template) = match &*kind {
            "CronJob" => ("batch/v1", &spec["jobTemplate"]["spec"]["template"]),
            "Deployment" => ("apps/v1", &spec["template"]),
            other => panic!("a new kind: {other}"),
        };
        assert_eq!(text(&document["apiVersion"]), version);
        if kind == "Deployment" {
            let labels = &template["metadata"]["labels"];
            assert_eq!(spec["selector"]["matchLabels"], *labels);
        }
        let pod = &template["spec"];
        let volumes = list(&pod["volumes"]);
        let volumes: Vec<_> = volumes.iter().map(|it| text(&it["name"])).collect();
        let both = ["initContainers", "containers"].map(|name| list(&pod[name]));
        let both = both.concat();
        let containers: Vec<_> = both.iter().map(|it| Container::of(it, &volumes)).collect();
        let grace = pod["terminationGracePeriodSeconds"].as_i64();
        Self {
            kind,
            grace: grace.expect("a time to stop").cast_unsigned(),
            containers,
            text: manifest.to_owned(),
        }
    }

    /// The container whose command is leasehold, or a shell that starts it.
    fn guarded(&self) -> &Container {
        let mut guarded = self.containers.iter().filter(|it| it.guards());
        guarded.next().expect("a container under a lock")
    }
}

/// All names of fields are known.
fn check_fields(yaml: &Yaml) {
    match yaml {
        Yaml::Hash(fields) => fields.iter().for_each(|(name, value)| {
            let name = text(name);
            let mut known = FIELDS.split_whitespace();
            assert!(known.any(|known| known == name), "{name}");
            check_fields(value);
        }),
        Yaml::Array(items) => items.iter().for_each(check_fields),
        _ => {}
    }
}

impl Container {
    fn of(yaml: &Yaml, volumes: &[String]) -> Self {
        let words = |name: &str| list(&yaml[name]).iter().map(text).collect::<Vec<_>>();
        let mounts = list(&yaml["volumeMounts"]);
        let mounts = mounts.iter().map(|mount| {
            assert!(volumes.contains(&text(&mount["name"])), "{mount:?}");
            text(&mount["mountPath"])
        });
        let variables = list(&yaml["env"]);
        let variables = variables.iter();
        let variables = variables.map(|it| (text(&it["name"]), text(&it["value"])));
        Self {
            name: text(&yaml["name"]),
            is_sidecar: yaml["restartPolicy"].as_str() == Some("Always"),
            command: [words("command"), words("args")].concat(),
            variables: variables.collect(),
            mounts: mounts.collect(),
        }
    }

    fn guards(&self) -> bool {
        self.command.iter().any(|word| word.contains("leasehold"))
    }

    /// What follows an option of leasehold, in a script too.
    fn option(&self, name: &str) -> Option<String> {
        let line = self.command.join(" ");
        let mut words = line.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).map(str::to_owned)
    }

    /// Starts it in a pod, whose volumes are directories of the machine.
    fn start(&self, pod: &Machine<'_>) -> Process {
        let words = self.command.iter();
        let words = words.map(|word| pod.real(&self.mounted(pod, word)));
        Process::spawn(pod.command(&words.collect::<Vec<_>>(), &self.variables))
    }

    fn mounted(&self, pod: &Machine<'_>, text: &str) -> String {
        self.mounts.iter().fold(text.to_owned(), |text, mount| {
            let volume = pod.place.path(mount.trim_matches('/'));
            fs::create_dir_all(&volume).expect("a directory can be made");
            text.replace(&format!("{mount}/"), &format!("{}/", volume.display()))
        })
    }
}

fn manifests(kind: &str, sidecar: bool) -> Vec<Manifest> {
    let all = blocks("yaml").into_iter();
    let all = all.map(|block| Manifest::parse(&block.text));
    let wanted = |it: &Manifest| it.kind == kind && it.guarded().is_sidecar == sidecar;
    let wanted: Vec<_> = all.filter(wanted).collect();
    assert!(!wanted.is_empty(), "{kind}");
    wanted
}

#[test]
fn pods_have_more_time_to_stop_than_the_lock_gives() {
    for block in blocks("yaml") {
        let manifest = Manifest::parse(&block.text);
        let seconds = |text: String| text.trim_end_matches('s').parse::<u64>().expect("seconds");
        let grace = manifest.guarded().option("--grace").map_or(5, seconds);
        assert!(manifest.grace > grace, "{}:{}", block.page, block.line);
    }
}

#[tokio::test]
async fn the_second_pod_of_a_cron_job_waits_for_the_first() {
    for manifest in manifests("CronJob", false) {
        let (fleet, container) = (Fleet::of(&manifest.text), manifest.guarded());
        let pods = fleet.two_with_job(&container.name);
        let first = container.start(&pods[0]);
        let token = started(&first, &container.name).await;
        let second = container.start(&pods[1]);
        second.says("(position 1)").await;
        pods[0].release(&container.name).await;
        first.finish().await.has_code(Some(0));
        assert!(started(&second, &container.name).await > token);
        // The pod is deleted.
        second.ends_by(Signal::TERM).await.has_signal(Signal::TERM);
    }
}

#[tokio::test]
async fn one_pod_of_a_deployment_leads_and_another_follows_it() {
    for manifest in manifests("Deployment", false) {
        let (fleet, container) = (Fleet::of(&manifest.text), manifest.guarded());
        let pods = fleet.two_with_job(&container.name);
        let leader = container.start(&pods[0]);
        let term = started(&leader, &container.name).await;
        let next = container.start(&pods[1]);
        next.says("(position 1)").await;
        leader.signal(Signal::TERM);
        assert!(started(&next, &container.name).await > term);
        leader.finish().await.has_signal(Signal::TERM);
    }
}

/// A pod with a sidecar, and what its main container looks at.
struct Shop<'a> {
    pod: Machine<'a>,
    sidecar: &'a Container,
}

impl<'a> Shop<'a> {
    fn new(fleet: &'a Fleet, sidecar: &'a Container) -> Self {
        let pod = fleet.machine();
        let leads = super::program("kubernetes.md", "leads");
        pod.install("leads", &sidecar.mounted(&pod, &leads));
        Self { pod, sidecar }
    }

    fn file(&self) -> PathBuf {
        self.pod.place.path("lease/token")
    }

    /// What the main container is told: the token, if the pod leads.
    async fn leads(&self) -> Option<u64> {
        let asked = self.pod.command(&["leads".to_owned()], &[]);
        let asked = Process::run(asked).await;
        let token = asked.stdout.trim().parse().ok();
        assert_eq!(asked.code() == Some(0), token.is_some(), "{asked:?}");
        token
    }

    /// Waits until it leads with a token that is higher; for what no process reports.
    async fn until_it_leads(&self, last: u64) -> u64 {
        let asking = async {
            loop {
                match self.leads().await {
                    Some(token) if token > last => return token,
                    _ => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        timeout(PATIENCE, asking).await.expect("it leads in time")
    }

    /// As if it had been written so long ago.
    fn age(&self, by: Duration) {
        let file = File::options().write(true).open(self.file());
        let file = file.expect("the file is there");
        let set = file.set_modified(SystemTime::now() - by);
        set.expect("the time can be set");
    }
}

#[tokio::test]
async fn a_sidecar_tells_its_pod_whether_it_leads() {
    for manifest in manifests("Deployment", true) {
        let (fleet, sidecar) = (Fleet::of(&manifest.text), manifest.guarded());
        let shops = [Shop::new(&fleet, sidecar), Shop::new(&fleet, sidecar)];
        let first = shops[0].sidecar.start(&shops[0].pod);
        let term = shops[0].until_it_leads(0).await;
        let second = shops[1].sidecar.start(&shops[1].pod);
        second.says("(position 1)").await;
        assert_eq!(shops[1].leads().await, None);

        // The pod is deleted: the file goes first, then the lock.
        first.signal(Signal::TERM);
        shops[1].until_it_leads(term).await;
        assert!(!shops[0].file().exists());
        first.finish().await.has_code(Some(0));
    }
}

#[tokio::test]
async fn the_file_of_a_dead_sidecar_does_not_count() {
    for manifest in manifests("Deployment", true) {
        let (fleet, sidecar) = (Fleet::of(&manifest.text), manifest.guarded());
        let shop = Shop::new(&fleet, sidecar);
        let first = sidecar.start(&shop.pod);
        shop.until_it_leads(0).await;
        crash(first).await;
        shop.age(Duration::from_secs(2));
        assert!(shop.leads().await.is_some(), "the lock is still valid");
        shop.age(Duration::from_secs(5));
        assert_eq!(shop.leads().await, None);
        // It is started again, and stands in line behind itself.
        shop.age(Duration::ZERO);
        let again = sidecar.start(&shop.pod);
        again.says("(position 1)").await;
        assert!(!shop.file().exists());
    }
}

#[tokio::test]
async fn a_sidecar_whose_lock_was_broken_takes_its_file_away() {
    for manifest in manifests("Deployment", true) {
        let (fleet, sidecar) = (Fleet::of(&manifest.text), manifest.guarded());
        let shop = Shop::new(&fleet, sidecar);
        let running = sidecar.start(&shop.pod);
        let term = shop.until_it_leads(0).await;
        let broken = Process::run(shop.pod.leasehold("break --yes shop-leader")).await;
        broken.has_code(Some(0));
        running.says("lost").await;
        // It stands again.
        shop.until_it_leads(term).await;
    }
}
