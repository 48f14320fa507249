//! Nodes in network namespaces of their own, as on other machines. Making these takes root and iproute2.

use crate::machines::{Node, Parts, daemon_at, invitation, node_info, while_working};
use crate::support::{Folder, Gtd, gtd_path};
use crate::together::{DIVIDED, assert_close, train};
use std::process::Command as Program;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How long a node is cut off, and how long the network then works.
const CUT_OFF: Duration = Duration::from_millis(500);
const CONNECTED: Duration = Duration::from_millis(700);

/// A bridge of this machine with namespaces behind it, removed at the end of the test.
struct Network {
    prefix: String,
    subnet: String,
    namespaces: usize,
}

/// Runs `ip` with these arguments.
fn ip(arguments: &str) -> bool {
    let output = Program::new("ip").args(arguments.split_whitespace()).output();
    output.is_ok_and(|output| output.status.success())
}

impl Network {
    /// A network with this many namespaces; none if this user or machine cannot make it.
    fn new(namespaces: usize) -> Option<Network> {
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        // Two tests run at the same time, and so may two runs.
        let number = (std::process::id() * 2 + NETWORKS.fetch_add(1, Relaxed)) % 65_536;
        let prefix = format!("gt{number}");
        let network = Network { subnet: format!("10.{}.{}", 64 + number / 256 % 64, number % 256), prefix, namespaces };
        let Network { prefix, subnet, .. } = &network;
        let mut commands = vec![
            format!("link add {prefix}b type bridge"),
            format!("addr add {subnet}.1/24 dev {prefix}b"),
            format!("link set {prefix}b up"),
        ];
        for node in 0..namespaces {
            let namespace = network.namespace(node);
            commands.extend([
                format!("netns add {namespace}"),
                format!("link add {prefix}v{node} type veth peer name eth0 netns {namespace}"),
                format!("link set {prefix}v{node} master {prefix}b up"),
                format!("-n {namespace} addr add {subnet}.{}/24 dev eth0", 10 + node),
                format!("-n {namespace} link set eth0 up"),
                format!("-n {namespace} link set lo up"),
            ]);
        }
        commands.iter().all(|command| ip(command)).then_some(network)
    }

    fn namespace(&self, node: usize) -> String {
        format!("{}n{node}", self.prefix)
    }

    /// Cuts a namespace off, or connects it again.
    fn set_reachable(&self, node: usize, reachable: bool) {
        assert!(ip(&format!("link set {}v{node} {}", self.prefix, if reachable { "up" } else { "down" })));
    }

    /// Limits what a namespace receives, to this many megabits a second. False if this machine cannot.
    fn limit(&self, node: usize, mbits_per_s: u32) -> bool {
        let limit =
            format!("qdisc add dev {}v{node} root tbf rate {mbits_per_s}mbit burst 32kb latency 1s", self.prefix);
        let output = Program::new("tc").args(limit.split_whitespace()).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// The bytes that a namespace has sent.
    fn sent_bytes(&self, node: usize) -> u64 {
        // They come in at this machine's end of the pair of devices.
        let path = format!("/sys/class/net/{}v{node}/statistics/rx_bytes", self.prefix);
        std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    /// Starts a node in a namespace, and waits until its workers run.
    fn start(&self, gtd: &Gtd, number: usize) -> Node {
        let mut program = Program::new("ip");
        program.args(["netns", "exec", &self.namespace(number)]).arg(gtd_path());
        let (folder, name) = (Folder::new(), format!("node{number}"));
        let arguments = ["--name", &name, "--workers", "cpu:2"];
        let child = Node::process_of(program, &folder, &invitation(gtd, 60, None), &arguments);
        let node = Node { child, folder };
        node.wait_running(gtd, &name);
        node
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in 0..self.namespaces {
            ip(&format!("link del {}v{node}", self.prefix));
            ip(&format!("netns del {}", self.namespace(node)));
        }
        ip(&format!("link del {}b", self.prefix));
    }
}

#[test]
fn nodes_of_other_addresses_train_as_one_worker_does() {
    let Some(network) = Network::new(2) else { return println!("skipped: no network namespaces can be made") };
    let expected = train(&Gtd::start(&[]).folder.socket(), 20).unwrap();
    let gtd = daemon_at(&format!("{}.1:0", network.subnet), &DIVIDED);
    let _nodes = [network.start(&gtd, 0), network.start(&gtd, 1)];
    let addresses: Vec<_> = gtd.status().nodes.into_iter().filter_map(|node| node.address).collect();
    assert_eq!(addresses, [10, 11].map(|host| format!("{}.{host}", network.subnet)));
    assert_close(&train(&gtd.folder.socket(), 20).unwrap(), &expected);
}

#[test]
fn a_node_that_is_cut_off_for_a_while_goes_on_where_it_was() {
    let Some(network) = Network::new(2) else { return println!("skipped: no network namespaces can be made") };
    let expected = train(&Gtd::start(&[]).folder.socket(), 20).unwrap();
    let gtd = daemon_at(&format!("{}.1:0", network.subnet), &DIVIDED);
    let _nodes = [network.start(&gtd, 0), network.start(&gtd, 1)];
    let (socket, cuts) = (gtd.folder.socket(), AtomicU32::new(0));
    while_working(
        || {
            while cuts.load(Relaxed) < 4 {
                assert_close(&train(&socket, 20).unwrap(), &expected);
            }
        },
        || {
            let node = cuts.fetch_add(1, Relaxed) as usize % 2;
            network.set_reachable(node, false);
            std::thread::sleep(CUT_OFF);
            network.set_reachable(node, true);
            std::thread::sleep(CONNECTED);
        },
    );
}

#[test]
fn a_sum_over_nodes_crosses_the_network_once_for_each_node() {
    const LEN: usize = 4 << 20;
    const ROUNDS: u64 = 4;
    let Some(network) = Network::new(2) else { return println!("skipped: no network namespaces can be made") };
    let gtd = daemon_at(&format!("{}.1:0", network.subnet), &DIVIDED);
    let _nodes = [network.start(&gtd, 0), network.start(&gtd, 1)];
    let (mut parts, rows) = Parts::new(&gtd, 1..5, LEN);
    // The first reshard forms the group.
    let sum = parts.sum(rows);
    parts.client.sync();
    let before = [0, 1].map(|node| network.sent_bytes(node));
    for _ in 0..ROUNDS {
        parts.sum(rows);
    }
    parts.client.sync();
    // Each of two nodes sends half of its sum and half of the result: as much as the tensor has. Twice as much would
    // cross if each of a node's two workers took part for itself.
    let whole = 4 * LEN as u64;
    for (node, before) in before.into_iter().enumerate() {
        let sent = (network.sent_bytes(node) - before) / ROUNDS;
        assert!((whole..whole * 5 / 4).contains(&sent), "node {node} sent {sent} bytes for {whole}");
    }
    parts.assert_is_sum(sum);
    assert_eq!(parts.all_reduces(), [1 + ROUNDS; 4]);
}

#[test]
fn a_link_is_measured_when_its_node_joins() {
    const SLOW_MBITS_PER_S: u32 = 80;
    let Some(network) = Network::new(2) else { return println!("skipped: no network namespaces can be made") };
    if !network.limit(1, SLOW_MBITS_PER_S) {
        return println!("skipped: no bandwidth can be limited");
    }
    let gtd = daemon_at(&format!("{}.1:0", network.subnet), &[]);
    let _nodes = [network.start(&gtd, 0), network.start(&gtd, 1)];
    let [fast, slow] = ["node0", "node1"].map(|name| node_info(&gtd, name));
    assert!(fast.latency_ns > 0 && slow.latency_ns > 0, "{fast:?} {slow:?}");
    // The limiter lets a burst pass, and a busy machine is slower than its links.
    let limit = u64::from(SLOW_MBITS_PER_S) * 1_000_000 / 8;
    assert!((1..2 * limit).contains(&slow.bytes_per_s), "{slow:?}, limited to {limit}");
    assert!(fast.bytes_per_s > 2 * slow.bytes_per_s, "{fast:?} {slow:?}");
    // No more than the bursts of one measurement were sent for it.
    assert!(slow.sent_bytes < 1 << 20 && fast.sent_bytes < 16 << 20, "{fast:?} {slow:?}");
}
