//! A stress test: training clients must not notice hostile ones, which flood, scribble, lie, hoard, stay silent and are
//! killed.
//!
//!     cargo test --package gtd --test storm -- --seconds 600 --clients 8 --seed 7
//!
//! It starts a daemon, or uses the one at `--socket`, and prints a report. The exit status is 1 if a loss differs in a
//! bit from that of an undisturbed run, a seal did not hold, the daemon ended, or a resource is left in it once all
//! clients have gone. Half of the training clients connect by TCP. The attacks are in `attacks`, those by TCP in
//! `tcp`, and those on the page and the metrics in `web`.
//!
//! Where root runs it and the daemon is its own, the hostile clients are of four users, and take all that each of these
//! may have (`greed`); the training clients are of a fifth user; and a sixth, the bystander, computes small things all
//! along (`bystander`). The bystander must be answered, and answered rightly; how long it waited is printed, and a time
//! is no reason to fail. A worker that is a process is stopped again and again.
//!
//! Each client is this program itself in a process of its own, so it has no test harness.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "in place of the harness")]

mod attacks;
mod bystander;
mod greed;
#[expect(dead_code, reason = "the targets of fuzzing need the rest")]
#[path = "../../../fuzz/seeds.rs"]
mod seeds;
#[expect(dead_code, reason = "the targets of fuzzing need the rest")]
mod streams;
#[expect(dead_code, reason = "made for the tests of the daemon")]
#[path = "../daemon/support.rs"]
mod support;
mod tcp;
mod training;
mod users;
mod web;

use bystander::Waits;
use clap::Parser;
use gt_bridge::token::TOKEN_ENV;
use gt_ops::placement::{RequestedLayout, RequestedPlacement};
use gt_ops::{Op, Workers};
use gt_protocol::{Address, Hello, ProtocolError, Role, StatusDocument, UserStatus};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use streams::Dice;

/// The number of different networks: a client that read another's tensors would get other losses.
const SEEDS: u64 = 4;
/// The longest life of a hostile client before it is killed.
const LIFE_MS_MAX: u64 = 900;
/// The same for a greedy client, which takes some time to have all that it may have.
const GREEDY_LIFE_MS_MAX: u64 = 3_000;
/// How long a training client may take: the machine may be slow, but nothing may hang.
const TRAINING_MAX: Duration = Duration::from_secs(120);
/// How long the daemon may take to clean up after clients that have gone.
const SETTLING_MAX: Duration = Duration::from_secs(30);
/// The number of equal observations in a row after which nothing changes any more.
const SETTLED_LOOKS: u32 = 100;
/// The configuration, with quotas by which no client takes the memory that others need.
const CONFIG: &str = "memory: 4G\nlog: info\nlimits: {session_memory: 48M, arena: 64M}\n";
/// The longest time for which a worker's process is stopped: less than that after which it would be replaced.
const STOPPED_MS_MAX: u64 = 2_000;
/// The longest time between two stops.
const STOPPED_EVERY_MS_MAX: u64 = 4_000;
/// The attacks that guess tokens.
const GUESSERS: [&str; 2] = ["tcp-is-nobody", "tcp-guesses-tokens"];
/// The token for TCP of a daemon that this test starts.
const TOKEN: &str = "0123456789abcdef-storm";

fn token() -> String {
    std::env::var(TOKEN_ENV).unwrap_or_else(|_| TOKEN.into())
}

fn workers() -> String {
    std::env::var("GT_WORKERS").unwrap_or_else(|_| "cpu:1,proc-cpu:1".into())
}

/// Runs training clients beside hostile clients, which flood, scribble, lie and are killed.
#[derive(Parser)]
struct Arguments {
    /// The duration of the attacks.
    #[arg(long, default_value_t = 15.0)]
    seconds: f64,
    /// The number of training clients at a time; there are two more hostile clients than that.
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// The seed of all choices; the timing does not follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The daemon's socket; by default a daemon is started, with quotas for each session.
    #[arg(long)]
    socket: Option<PathBuf>,
    /// The TCP address of that daemon, with the token in `GT_TOKEN`; by default no client uses TCP.
    #[arg(long, requires = "socket")]
    tcp: Option<Address>,
    /// Run these attacks only.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave out these attacks; `stops-workers` is the stopping of workers.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Let the daemon and the bystander run before all other processes, as where cores are free for them.
    #[arg(long)]
    first: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// The names of tests to run, as a test harness takes them.
    filters: Vec<String>,
    #[command(flatten)]
    harness: Harness,
}

/// Options of Rust's test harness, which are ignored: `cargo test -- --test-threads=1` passes them to every test.
#[derive(clap::Args)]
struct Harness {
    #[arg(long, visible_alias = "no-capture", hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    show_output: bool,
    #[arg(long, short, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    /// Asks for ignored tests only, of which there are none here.
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    #[arg(long, hide = true)]
    skip: Vec<String>,
    #[arg(long, hide = true)]
    color: Option<String>,
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl Arguments {
    fn is_wanted(&self) -> bool {
        let named = |names: &[String]| names.iter().any(|name| "storm".contains(name.as_str()));
        !self.harness.ignored && !named(&self.harness.skip) && (self.filters.is_empty() || named(&self.filters))
    }
}

fn main() -> ExitCode {
    users::become_user();
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match words[..] {
        ["train", seed, _, address] => match training::train(&address.parse().unwrap(), seed.parse().unwrap(), false) {
            Ok(losses) => println!("{losses:x?}"),
            Err(error) => {
                println!("error: {error}");
                return ExitCode::FAILURE;
            }
        },
        ["watch", _, _, address] => match address.parse().unwrap() {
            Address::Unix(socket) => bystander::watch(&socket),
            address => panic!("{address} is no socket"),
        },
        ["attack", name, seed, address] => {
            let dice = &mut Dice::seeded(seed.parse().unwrap());
            match address.parse().unwrap() {
                Address::Unix(socket) => {
                    found(&[&attacks::ATTACKS[..], &greed::ATTACKS[..]].concat(), name)(&socket, dice);
                }
                address => {
                    let port = tcp::Port { address, token: token() };
                    found(&[&tcp::ATTACKS[..], &web::ATTACKS[..]].concat(), name)(&port, dice);
                }
            }
        }
        _ => {
            let arguments = Arguments::parse();
            return if arguments.is_wanted() { storm(&arguments) } else { ExitCode::SUCCESS };
        }
    }
    ExitCode::SUCCESS
}

fn found<A: Copy>(attacks: &[(&str, A)], name: &str) -> A {
    attacks.iter().find(|(known, _)| *known == name).unwrap().1
}

/// The daemon's resources, which must be the same before and after.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    sessions: usize,
    memory_bytes: u64,
    descriptors: usize,
    segments: usize,
    threads: usize,
    processes: usize,
    shared_memory_files: usize,
    /// The accounts of all users together.
    charged_sessions: u64,
    charged_tensors: u64,
    charged_memory_bytes: u64,
    charged_arena_bytes: u64,
}

impl Held {
    fn by(pid: u32, status: &StatusDocument, users: &[UserStatus]) -> Held {
        let charged = |what: fn(&UserStatus) -> u64| users.iter().map(what).sum();
        let listed = |path: String| std::fs::read_dir(path).map_or(0, Iterator::count);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let shared = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        Held {
            sessions: status.sessions.len(),
            memory_bytes: status.workers.iter().map(|worker| worker.memory_bytes).sum(),
            descriptors: listed(format!("/proc/{pid}/fd")),
            segments: maps.lines().filter(|line| line.contains("/memfd:gt-")).count(),
            threads: listed(format!("/proc/{pid}/task")),
            processes: children(pid).len(),
            shared_memory_files: shared.filter(|file| file.file_name().to_string_lossy().starts_with("gt")).count(),
            charged_sessions: charged(|user| user.sessions.into()),
            charged_tensors: charged(|user| user.tensors),
            charged_memory_bytes: charged(|user| user.memory_bytes),
            charged_arena_bytes: charged(|user| user.arena_bytes),
        }
    }

    /// The differences to `before`, by name.
    fn beyond(&self, before: &Held) -> BTreeMap<&'static str, i64> {
        let more = |now: u64, before: u64| now as i64 - before as i64;
        BTreeMap::from([
            ("sessions", more(self.sessions as u64, before.sessions as u64)),
            ("tensor_bytes", more(self.memory_bytes, before.memory_bytes)),
            ("descriptors", more(self.descriptors as u64, before.descriptors as u64)),
            ("segments", more(self.segments as u64, before.segments as u64)),
            ("threads", more(self.threads as u64, before.threads as u64)),
            ("processes", more(self.processes as u64, before.processes as u64)),
            ("shared_memory_files", more(self.shared_memory_files as u64, before.shared_memory_files as u64)),
            ("charged_sessions", more(self.charged_sessions, before.charged_sessions)),
            ("charged_tensors", more(self.charged_tensors, before.charged_tensors)),
            ("charged_memory_bytes", more(self.charged_memory_bytes, before.charged_memory_bytes)),
            ("charged_arena_bytes", more(self.charged_arena_bytes, before.charged_arena_bytes)),
        ])
    }
}

/// The processes that a process has started, and that have not ended.
fn children(pid: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let started = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    started.flat_map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>()).collect()
}

/// A client in a process of its own.
struct Process {
    child: Child,
    name: String,
    by_tcp: bool,
    /// The seed of the network that the client trains.
    seed: u64,
    /// The time at which the process is killed, if it has not ended.
    until: Instant,
    was_killed: bool,
    begun_us: u64,
}

impl Process {
    /// Starts a client, as the user `uid` if one is named.
    fn start(words: [&str; 3], address: &Address, uid: Option<u32>, seed: u64, life: Duration) -> Process {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(words).arg(address.to_string()).env(TOKEN_ENV, token());
        program.envs(uid.map(|uid| (users::UID_ENV, uid.to_string())));
        // A hostile client may panic, so its standard error is dropped.
        let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let by_tcp = matches!(address, Address::Tcp(_));
        let (name, until, begun_us) = (words[1].into(), Instant::now() + life, bystander::now_us());
        Process { child, name, by_tcp, seed, until, was_killed: false, begun_us }
    }

    fn train(address: &Address, uid: Option<u32>, seed: u64) -> Process {
        let seed = seed % SEEDS;
        Process::start(["train", &seed.to_string(), ""], address, uid, seed, TRAINING_MAX)
    }

    /// True once the process has ended. Kills it if its time is over.
    fn is_over(&mut self) -> bool {
        if self.child.try_wait().unwrap().is_some() {
            return true;
        }
        if Instant::now() < self.until {
            return false;
        }
        self.was_killed = true;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        true
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

#[derive(Default)]
struct Report {
    trainings_right: u64,
    trainings_wrong: u64,
    trainings_by_tcp: u64,
    kills: u64,
    kills_by_tcp: u64,
    /// Clients that connected by TCP, whether they trained or attacked.
    served_by_tcp: u64,
    counts: BTreeMap<String, u64>,
    attacks: BTreeMap<String, u64>,
    /// Attacks and stops of workers, with their begin and end in microseconds since 1970.
    spans: Vec<(String, u64, u64)>,
    /// How long the bystander waited; none if there was none.
    waits: Option<Waits>,
    wrong: Vec<String>,
}

impl Report {
    /// The attacks that ran in the microseconds `us` from `at`, and those that ended in the second before.
    fn during(&self, at: u64, us: u64) -> String {
        let running = |(_, begin, end): &&(String, u64, u64)| *begin <= at + us && at <= *end + 1_000_000;
        let names: BTreeSet<&str> = self.spans.iter().filter(running).map(|(name, ..)| name.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    fn watched(&mut self, mut process: Process) {
        drop(process.child.stdin.take());
        let mut said = String::new();
        process.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let ended_well = process.child.wait().unwrap().success();
        self.wrong.extend(said.lines().filter_map(|line| line.strip_prefix("breach ")).map(str::to_string));
        self.waits = Waits::read(&said).filter(|waits| waits.round_trips > 0 && ended_well);
        if self.waits.is_none() {
            self.wrong.push("the bystander's session ended, or it got no answer".into());
        }
    }

    fn trained(&mut self, mut process: Process, expected: &[String]) {
        let said = process.said();
        self.trainings_by_tcp += u64::from(process.by_tcp);
        self.served_by_tcp += u64::from(process.by_tcp);
        if said == expected[process.seed as usize] {
            self.trainings_right += 1;
        } else {
            self.trainings_wrong += 1;
            let said = if said.is_empty() { "nothing, and was killed or panicked" } else { said.trim() };
            let way = if process.by_tcp { " by TCP" } else { "" };
            self.wrong.push(format!("training {}{way} said: {said}", process.seed));
        }
    }

    fn attacked(&mut self, mut process: Process) {
        self.kills += u64::from(process.was_killed);
        self.kills_by_tcp += u64::from(process.was_killed && process.by_tcp);
        self.served_by_tcp += u64::from(process.by_tcp);
        *self.attacks.entry(process.name.clone()).or_default() += 1;
        self.spans.push((process.name.clone(), process.begun_us, bystander::now_us()));
        for line in process.said().lines() {
            match line.split_once(' ') {
                Some(("count", what @ "honest_rejected")) => self.wrong.push(what.into()),
                Some(("count", what)) => *self.counts.entry(what.into()).or_default() += 1,
                Some(("breach", what)) => self.wrong.push(what.into()),
                _ => {}
            }
        }
    }
}

fn storm(arguments: &Arguments) -> ExitCode {
    let folder = support::Folder::new();
    let own = arguments.socket.is_none().then(|| {
        std::fs::write(folder.0.join("gtd.yaml"), CONFIG).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = ["--config", "gtd.yaml", "--listen", &port.to_string(), "--metrics", "0"];
        let gtd = support::Gtd::start_in(folder, &options, &[(TOKEN_ENV, &token())]);
        (gtd, format!("localhost:{port}").parse().unwrap())
    });
    let socket = arguments.socket.clone().unwrap_or_else(|| own.as_ref().unwrap().0.folder.socket());
    let tcp = arguments.tcp.as_ref().or(own.as_ref().map(|(_, address)| address));
    let by_socket = Address::Unix(socket.clone());
    let addresses: Vec<&Address> = std::iter::once(&by_socket).chain(tcp).collect();
    let control = gt_protocol::connect(&socket, &Hello::new(Role::Control, None)).unwrap();
    let pid = control.welcome.daemon_pid;
    let look = || {
        let status = gt_protocol::ask_status(&control.socket)?;
        Ok::<_, ProtocolError>(Held::by(pid, &status, &gt_protocol::ask_limits(&control.socket)?.users))
    };
    // The users of another daemon are the business of its administrator.
    let as_users = own.is_some() && users::may_become_others();
    if as_users {
        std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    } else if !arguments.json {
        println!(
            "only root can be several users, of a daemon of its own: greedy clients and the bystander are left out"
        );
    }
    let user = |uid: u32| as_users.then_some(uid);

    form_group(&socket, control.welcome.workers.len());
    // The losses of undisturbed training are the reference.
    let alone = |address: &Address, seed| {
        let mut process = Process::train(address, user(users::TRAINER), seed);
        support::eventually("a training ends", || process.child.try_wait().unwrap().is_some());
        process
    };
    let expected: Vec<String> = (0..SEEDS).map(|seed| alone(&by_socket, seed).said()).collect();
    assert!(expected.iter().all(|losses| losses.starts_with('[')), "{expected:?}");
    for address in &addresses {
        assert_eq!(alone(address, 0).said(), expected[0], "{address}");
    }
    // The daemon frees resources some time after a client has gone.
    let (mut before, mut times) = (look().unwrap(), 0);
    support::eventually("nothing is left of those sessions", || {
        let now = look().unwrap();
        times = if now == before { times + 1 } else { 0 };
        before = now;
        times >= SETTLED_LOOKS && (arguments.socket.is_some() || before.sessions == 0)
    });

    let mut report = Report::default();
    let dice = &mut Dice::seeded(arguments.seed);
    let (mut training, mut attacking): (Vec<Process>, Vec<Process>) = (Vec::new(), Vec::new());
    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let page: Option<Address> =
        gt_protocol::ask_status(&control.socket).unwrap().metrics.map(|address| address.parse().unwrap());
    let by_http = web::ATTACKS.iter().filter_map(|(name, _)| page.as_ref().map(|address| (*name, address)));
    let by_tcp = tcp::ATTACKS.iter().filter_map(|(name, _)| tcp.map(|address| (*name, address)));
    let greed = greed::ATTACKS.iter().filter(|_| as_users);
    let mut attacks: Vec<(&str, &Address)> = attacks::ATTACKS
        .iter()
        .chain(greed)
        .map(|(name, _)| (*name, &by_socket))
        .chain(by_tcp)
        .chain(by_http)
        .collect();
    let named = |name: &str, names: &[String]| names.iter().any(|known| known == name);
    let is_wanted =
        |name: &str| (arguments.only.is_empty() || named(name, &arguments.only)) && !named(name, &arguments.without);
    attacks.retain(|(name, _)| is_wanted(name));
    assert!(!attacks.is_empty(), "no attack is called {:?}", arguments.only);
    let mut stopper = Stopper::new(if own.is_some() && is_wanted("stops-workers") { pid } else { 0 });
    let watcher = user(users::BYSTANDER).map(|uid| {
        Process::start(
            ["watch", "", ""],
            &by_socket,
            Some(uid),
            0,
            Duration::from_secs(arguments.seconds as u64) + TRAINING_MAX,
        )
    });
    if arguments.first && as_users {
        [Some(pid), watcher.as_ref().map(|watcher| watcher.child.id())]
            .into_iter()
            .flatten()
            .for_each(users::put_first);
    }
    let mut next_attack = 0;
    while Instant::now() < end {
        while training.len() < arguments.clients {
            training.push(Process::train(dice.pick(&addresses), user(users::TRAINER), dice.word()));
        }
        while attacking.len() < arguments.clients + 2 {
            let ((name, address), seed) = (attacks[next_attack % attacks.len()], dice.word().to_string());
            // Guesses of tokens have a user refused, so attackers who are let in are of other users.
            let uid = if GUESSERS.contains(&name) { users::NOBODY } else { dice.pick(&users::ATTACKERS) };
            next_attack += 1;
            let is_greedy = greed::ATTACKS.iter().any(|(greedy, _)| *greedy == name);
            let life_ms = dice.below(if is_greedy { GREEDY_LIFE_MS_MAX } else { LIFE_MS_MAX });
            let life = Duration::from_millis(life_ms);
            attacking.push(Process::start(["attack", name, &seed], address, user(uid), 0, life));
        }
        stopper.pass(dice, &mut report);
        gather(&mut training, &mut attacking, &mut report, &expected);
        std::thread::sleep(Duration::from_millis(2));
    }
    stopper.resume(&mut report);
    // Training clients run to their end, while hostile ones are killed at random times.
    while !training.is_empty() || !attacking.is_empty() {
        gather(&mut training, &mut attacking, &mut report, &expected);
        std::thread::sleep(Duration::from_millis(2));
    }
    for address in &addresses {
        report.trained(alone(address, 0), &expected);
    }
    if let Some(address) = page
        && web::scrape(&tcp::Port { address, token: token() }).is_none()
    {
        report.wrong.push("the metrics are not read".into());
    }
    if let Some(watcher) = watcher {
        report.watched(watcher);
    }

    let deadline = Instant::now() + SETTLING_MAX;
    let leaks = loop {
        match look() {
            Ok(after) if after == before || Instant::now() > deadline => break Some(after.beyond(&before)),
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => {
                report.wrong.push(format!("the daemon does not answer: {error}"));
                break None;
            }
        }
    };
    for (what, more) in leaks.iter().flatten().filter(|(_, more)| **more != 0) {
        report.wrong.push(format!("{more} {what} more than before"));
    }
    if let Some((mut gtd, _)) = own {
        drop(control);
        gtd.signal(nix::sys::signal::Signal::SIGTERM);
        let status = gtd.wait();
        if !status.success() {
            report.wrong.push(format!("the daemon ended with {status}"));
        }
        let log = gtd.stderr();
        // The end of a worker explains what else is wrong.
        let tells = |line: &&str| ["ERROR", "panic", "WARN gtd::worker"].iter().any(|sign| line.contains(sign));
        report.wrong.extend(log.lines().filter(tells).map(str::to_string));
    }
    print(&report, leaks.unwrap_or_default(), arguments);
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Stops processes of workers again and again, and lets them go on.
struct Stopper {
    /// The daemon's process; 0 to stop nothing.
    daemon: u32,
    stopped: Option<Pid>,
    since_us: u64,
    next: Instant,
}

impl Stopper {
    fn new(daemon: u32) -> Stopper {
        Stopper { daemon, stopped: None, since_us: 0, next: Instant::now() }
    }

    fn pass(&mut self, dice: &mut Dice<'_>, report: &mut Report) {
        if self.daemon == 0 || Instant::now() < self.next {
            return;
        }
        let time_ms = if self.stopped.is_some() {
            self.resume(report);
            dice.below(STOPPED_EVERY_MS_MAX)
        } else {
            let workers = children(self.daemon);
            if workers.is_empty() {
                self.daemon = 0;
                return;
            }
            let worker = Pid::from_raw(dice.pick(&workers));
            if kill(worker, Signal::SIGSTOP).is_ok() {
                (self.stopped, self.since_us) = (Some(worker), bystander::now_us());
            }
            dice.below(STOPPED_MS_MAX)
        };
        self.next = Instant::now() + Duration::from_millis(time_ms);
    }

    fn resume(&mut self, report: &mut Report) {
        if let Some(worker) = self.stopped.take() {
            let _ = kill(worker, Signal::SIGCONT);
            *report.counts.entry("workers_stopped".into()).or_default() += 1;
            report.spans.push(("stops-workers".into(), self.since_us, bystander::now_us()));
        }
    }
}

/// Makes all workers form a group, whose resources stay and must not count as a leak.
fn form_group(socket: &Path, workers: usize) {
    let mut client = support::Client::connect(socket);
    let requested =
        RequestedPlacement { workers: Workers::first_of(workers), layout: RequestedLayout::Sharded { axis: 0 } };
    client.send(&gt_ops::wire::Command::DefineSignal { signal: 1, requested, compile: None });
    client.send(&gt_ops::wire::Command::Signal { signal: 1 });
    let ones = client.full(&[64, 64], 1.0);
    client.send(&gt_ops::wire::Command::DefineSignal {
        signal: 2,
        requested: RequestedPlacement { layout: RequestedLayout::Replicated, ..requested },
        compile: None,
    });
    client.send(&gt_ops::wire::Command::Signal { signal: 2 });
    let product = client.binary(Op::Matmul, ones, ones);
    assert_eq!(client.fetch_f32(product, 64 * 64).unwrap(), [64.0; 64 * 64]);
}

/// Adds the output of processes that have ended to the report.
fn gather(training: &mut Vec<Process>, attacking: &mut Vec<Process>, report: &mut Report, expected: &[String]) {
    for process in training.extract_if(.., Process::is_over) {
        report.trained(process, expected);
    }
    for process in attacking.extract_if(.., Process::is_over) {
        report.attacked(process);
    }
}

fn print(report: &Report, leaks: BTreeMap<&str, i64>, arguments: &Arguments) {
    let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
    let served = report.trainings_right + report.trainings_wrong + report.attacks.values().sum::<u64>();
    let (rejected, accepted, unfinished) =
        (count("mutants_rejected"), count("mutants_accepted"), count("mutants_unfinished"));
    let sent = rejected + accepted + unfinished;
    if arguments.json {
        let document = json!({
            "seed": arguments.seed,
            "clients_served": served,
            "trainings": {"right": report.trainings_right, "wrong": report.trainings_wrong},
            "kills_survived": report.kills,
            "by_tcp": {
                "clients_served": report.served_by_tcp,
                "trainings": report.trainings_by_tcp,
                "kills_survived": report.kills_by_tcp,
                "frames_garbled": count("frames_rejected") + count("frames_accepted") + count("frames_unfinished"),
                "frames_rejected": count("frames_rejected"),
                "strangers_sent_away": count("strangers_refused") + count("strangers_hung_up_on"),
            },
            "mutants": {"sent": sent, "rejected": rejected, "accepted_as_valid": accepted, "unfinished": unfinished},
            "attacks": report.attacks,
            "counts": report.counts,
            "bystander": report.waits.as_ref().map(|waits| json!({
                "round_trips": waits.round_trips,
                "p50_us": waits.p50_us,
                "p99_us": waits.p99_us,
                "longest_us": waits.longest_us,
                "longest": waits.longest.iter().map(|(at, us)| json!([us, report.during(*at, *us), at])).collect::<Vec<_>>(),
            })),
            "leaks": leaks,
            "wrong": report.wrong,
        });
        println!("{document:#}");
        return;
    }
    println!("clients served    {served}");
    println!("trainings         {} right, {} wrong", report.trainings_right, report.trainings_wrong);
    println!("kills survived    {}", report.kills);
    println!("mutants           {sent} sent: {rejected} rejected, {accepted} valid after all, {unfinished} unfinished");
    println!(
        "of these by TCP   {} clients, {} trainings, {} kills; {} sessions with garbled frames rejected, {} strangers sent away",
        report.served_by_tcp,
        report.trainings_by_tcp,
        report.kills_by_tcp,
        count("frames_rejected"),
        count("strangers_refused") + count("strangers_hung_up_on"),
    );
    println!("attacks           {:?}", report.attacks);
    println!("counts            {:?}", report.counts);
    if let Some(waits) = &report.waits {
        let ms = |us: u64| us as f64 / 1e3;
        println!(
            "bystander         {} round trips: {:.2} ms the median, {:.2} ms the 99th percentile, {:.1} ms the longest \
             (where a core is free for the daemon, at most {} ms are wanted)",
            waits.round_trips,
            ms(waits.p50_us),
            ms(waits.p99_us),
            ms(waits.longest_us),
            bystander::WAIT_TARGET.as_millis(),
        );
        for (at, us) in &waits.longest {
            println!("                  {:.1} ms beside {}", ms(*us), report.during(*at, *us));
        }
    }
    println!("leaks             {leaks:?}");
    for what in &report.wrong {
        println!("WRONG             {what}");
    }
}
