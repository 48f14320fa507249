//! How tensors travel between machines: encrypted by TCP, or by TCP or UCX without encryption where that is allowed.

use crate::faults::children;
use crate::machines::{Node, Parts, daemon, has_left, invitation};
use crate::support::{Folder, Gtd, eventually, gtd_path};
use crate::together::DIVIDED;
use gt_collectives::ucx::UcxPort;
use gt_ops::failure::Fault;
use gt_protocol::{InsecureNetwork, LinkTransport, NodeLink};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Command as Program;

const LEN: usize = 300_007;

/// The arguments of a daemon that lets tensors travel unencrypted.
fn insecure_network(network: &'static str) -> Vec<&'static str> {
    [&DIVIDED[..], &["--insecure-network", network]].concat()
}

/// Whether this machine has UCX; a test that is skipped says so.
#[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
fn has_ucx() -> bool {
    match UcxPort::library() {
        Ok(_) => true,
        Err(why) if std::env::var_os("GT_UCX_LIBRARY").is_some() => panic!("{why}"),
        Err(why) => {
            println!("skipped: {why}");
            false
        }
    }
}

/// Sums rows of the daemon's worker and those of two nodes, and returns the links that were measured, by their ends.
fn links_after_a_sum(gtd: &Gtd) -> Vec<(String, NodeLink)> {
    let (mut parts, rows) = Parts::new(gtd, 0..3, LEN);
    let sum = parts.sum(rows);
    parts.assert_is_sum(sum);
    eventually("all links are measured", || gtd.status().node_links.len() == 3);
    let ends = |link: &NodeLink| {
        let mut ends = [link.from.as_str(), link.to.as_str()];
        ends.sort_unstable();
        ends.join("-")
    };
    let mut links: Vec<_> = gtd.status().node_links.into_iter().map(|link| (ends(&link), link)).collect();
    links.sort_by(|one, other| one.0.cmp(&other.0));
    links
}

#[test]
fn the_links_between_machines_are_measured_and_encrypted_unless_something_else_is_said() {
    let gtd = daemon(&DIVIDED);
    let _nodes = [Node::start(&gtd, "left", "cpu:1"), Node::start(&gtd, "right", "cpu:1")];
    let links = links_after_a_sum(&gtd);
    let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["-left", "-right", "left-right"]);
    for (name, NodeLink { transport, reason, latency_ns, bytes_per_s, .. }) in &links {
        assert_eq!((*transport, reason), (LinkTransport::Tls, &None), "{name}");
        assert!(*latency_ns > 0 && *bytes_per_s > 0, "{name} was measured: {latency_ns} ns, {bytes_per_s} bytes/s");
    }
    assert_eq!((gtd.status().nodes_ucx, gtd.status().insecure_network), (None, InsecureNetwork::Off));
}

#[test]
fn tensors_travel_unencrypted_by_tcp_where_that_is_allowed() {
    let gtd = daemon(&insecure_network("on"));
    let mut nodes = [Node::start(&gtd, "left", "cpu:1"), Node::start(&gtd, "right", "cpu:1")];
    let first_line = nodes[0].first_line();
    assert!(first_line.contains("tensors travel unencrypted between machines"), "{first_line}");
    for (name, link) in links_after_a_sum(&gtd) {
        assert_eq!((link.transport, link.reason), (LinkTransport::Tcp, None), "{name}");
    }
    assert_eq!(gtd.status().insecure_network, InsecureNetwork::On);
}

#[test]
fn tensors_travel_by_ucx_where_that_is_allowed() {
    if !has_ucx() {
        return;
    }
    let gtd = daemon(&insecure_network("ucx"));
    let mut nodes = [Node::start(&gtd, "left", "cpu:1"), Node::start(&gtd, "right", "cpu:1")];
    let first_line = nodes[0].first_line();
    assert!(first_line.contains("tensors travel unencrypted between machines"), "{first_line}");
    for (name, link) in links_after_a_sum(&gtd) {
        assert_eq!((link.transport, link.reason), (LinkTransport::Ucx, None), "{name}");
    }
    assert!(gtd.status().nodes_ucx.is_some_and(|ucx| ucx.why_not.is_none()));
}

#[test]
fn a_node_that_cannot_use_ucx_exchanges_tensors_by_tcp_and_the_reason_is_shown() {
    let gtd = daemon(&insecure_network("ucx"));
    let folder = Folder::new();
    let mut program = Program::new(gtd_path());
    // There is no such transport, or no UCX at all.
    program.env("UCX_TLS", "none-such");
    let arguments = ["--name", "left", "--workers", "cpu:1"];
    let child = Node::process_of(program, &folder, &invitation(&gtd, 60, None), &arguments);
    let left = Node { child, folder };
    left.wait_running(&gtd, "left");
    let _right = Node::start(&gtd, "right", "cpu:1");
    for (name, link) in links_after_a_sum(&gtd).into_iter().filter(|(name, _)| name.contains("left")) {
        assert_eq!(link.transport, LinkTransport::Tcp, "{name}");
        assert!(link.reason.is_some(), "{name} has a reason");
    }
}

#[test]
fn a_worker_that_is_killed_while_tensors_travel_by_ucx_is_named() {
    if !has_ucx() {
        return;
    }
    let gtd = daemon(&insecure_network("ucx"));
    let nodes = [Node::start(&gtd, "left", "cpu:1"), Node::start(&gtd, "right", "cpu:1")];
    let (mut parts, rows) = Parts::new(&gtd, 0..3, 2_000_003);
    let first = parts.sum(rows);
    parts.assert_is_sum(first);
    let failure = std::thread::scope(|scope| {
        let summing = scope.spawn(|| {
            loop {
                let sum = parts.sum(rows);
                if let Err(failure) = parts.client.fetch_f32(sum, 2_000_003) {
                    return failure;
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        let victim = children(nodes[1].child.id())[0];
        kill(Pid::from_raw(victim as i32), Signal::SIGKILL).unwrap();
        summing.join().unwrap()
    });
    let Fault::WorkerLost { worker, .. } = failure.fault else { panic!("{:?}", failure.fault) };
    let Fault::WorkerLost { worker: right, .. } = has_left("right/cpu:0") else { unreachable!("it is such a fault") };
    assert_eq!(worker, right);
}
