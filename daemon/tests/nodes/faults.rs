//! Nodes that die, and workers of nodes that die.

use crate::machines::{Node, Parts, client_on, daemon, has_left, invitation, node_info, wait_state};
use crate::support::eventually;
use crate::together::DIVIDED;
use gt_ops::Op;
use gt_ops::failure::{Fault, WorkerName};
use gt_protocol::{NodeState, WorkerInfo, WorkerState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_node_that_is_killed_and_started_again_loses_its_tensors_alone() {
    let gtd = daemon(&[]);
    let mut nodes = [Node::start(&gtd, "left", "cpu:1"), Node::start(&gtd, "right", "cpu:1")];
    let (mut left, mut right) = (client_on(&gtd, 1), client_on(&gtd, 2));
    let held = [&mut left, &mut right].map(|client| client.full(&[2], 1.0));
    assert_eq!(left.fetch_f32(held[0], 2).unwrap(), [1.0; 2]);
    nodes[0].child.kill().unwrap();
    nodes[0].wait();
    // The daemon does not wait for the grace period, as the node's port is closed. It knows the node's certificate, so
    // the secret does not matter.
    let failure = left.fetch(held[0], 8).unwrap_err();
    assert_eq!(failure.fault, has_left("left/cpu:0"));
    let again = invitation(&gtd, 60, None);
    nodes[0].child = Node::process(&nodes[0].folder, &again, &["--workers", "cpu:1"]);
    let sum = right.binary(Op::Add, held[1], held[1]);
    assert_eq!(right.fetch_f32(sum, 2).unwrap(), [2.0; 2]);
    wait_state(&gtd, "left", NodeState::Up);
    assert_eq!(node_info(&gtd, "right").resumed, 0);
}

#[test]
fn a_node_that_is_stopped_keeps_only_its_own_clients_waiting() {
    let gtd = daemon(&[]);
    let [stopped, _other] = [Node::start(&gtd, "left", "cpu:1"), Node::start(&gtd, "right", "cpu:1")];
    let (mut left, mut right) = (client_on(&gtd, 1), client_on(&gtd, 2));
    let held = [&mut left, &mut right].map(|client| client.full(&[2], 1.0));
    assert_eq!(left.fetch_f32(held[0], 2).unwrap(), [1.0; 2]);
    stopped.signal(Signal::SIGSTOP);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let sum = left.binary(Op::Add, held[0], held[0]);
            left.fetch_f32(sum, 2)
        });
        // The client that waits takes part in nothing that the others do.
        for _ in 0..200 {
            let sum = right.binary(Op::Add, held[1], held[1]);
            assert_eq!(right.fetch_f32(sum, 2).unwrap(), [2.0; 2]);
        }
        assert!(!waiting.is_finished());
        stopped.signal(Signal::SIGCONT);
        assert_eq!(waiting.join().unwrap().unwrap(), [2.0; 2]);
    });
    assert_eq!(node_info(&gtd, "left").state, NodeState::Up);
}

/// The processes that a process has started.
pub fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    children.collect::<String>().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_nodes_worker_that_is_killed_is_replaced() {
    let gtd = daemon(&[]);
    let node = Node::start(&gtd, "left", "cpu:1");
    let mut client = client_on(&gtd, 1);
    let held = client.full(&[2], 1.0);
    client.sync();
    let workers = children(node.child.id());
    assert_eq!(workers.len(), 1);
    kill(Pid::from_raw(workers[0] as i32), Signal::SIGKILL).unwrap();
    let failure = client.fetch(held, 8).unwrap_err();
    assert_eq!(failure.fault, has_left("left/cpu:0"));
    drop(client);
    eventually("another process works", || {
        let workers = gtd.status().workers;
        workers.iter().any(|worker| worker.name == "left/cpu:0" && worker.state == WorkerState::Running)
    });
    assert!(gtd.stderr().contains("worker 0 of node left was killed by signal 9"), "{}", gtd.stderr());
}

#[test]
fn a_worker_that_is_killed_while_its_node_sums_is_named_and_the_others_sum_again() {
    const LEN: usize = 4 << 20;
    let gtd = daemon(&DIVIDED);
    let nodes = [Node::start(&gtd, "left", "cpu:2"), Node::start(&gtd, "right", "cpu:2")];
    let (mut parts, rows) = Parts::new(&gtd, 1..5, LEN);
    let sum = parts.sum(rows);
    parts.assert_is_sum(sum);
    for _ in 0..50 {
        parts.sum(rows);
    }
    let victim = children(nodes[0].child.id())[0];
    kill(Pid::from_raw(victim as i32), Signal::SIGKILL).unwrap();
    let late = parts.sum(rows);
    let failure = parts.client.fetch(late, 4 * LEN).unwrap_err();
    assert!([has_left("left/cpu:0"), has_left("left/cpu:1")].contains(&failure.fault), "{failure:?}");
    drop(parts);
    // The other process has another number, if the session with the lost one was still open.
    let of_nodes = || -> Vec<usize> {
        let workers = gtd.status().workers.into_iter().enumerate();
        let runs = |worker: &WorkerInfo| worker.node.is_some() && worker.state == WorkerState::Running;
        workers.filter(|(_, worker)| runs(worker)).map(|(number, _)| number).collect()
    };
    eventually("another process works", || of_nodes().len() == 4);
    let (mut parts, rows) = Parts::on(&gtd, of_nodes(), LEN);
    let sum = parts.sum(rows);
    parts.assert_is_sum(sum);
}

#[test]
fn a_process_of_the_daemon_that_is_killed_while_it_sums_with_a_node_is_named_and_replaced() {
    const LEN: usize = 4 << 20;
    let gtd = daemon(&[&DIVIDED[..], &["--workers", "proc-cpu:2"]].concat());
    let _node = Node::start(&gtd, "left", "cpu:2");
    let (mut parts, rows) = Parts::new(&gtd, 0..4, LEN);
    let sum = parts.sum(rows);
    parts.assert_is_sum(sum);
    for _ in 0..50 {
        parts.sum(rows);
    }
    let victim = gtd.status().workers[1].clone();
    kill(Pid::from_raw(victim.process.unwrap() as i32), Signal::SIGKILL).unwrap();
    let late = parts.sum(rows);
    let failure = parts.client.fetch(late, 4 * LEN).unwrap_err();
    let named = |fault| matches!(fault, Fault::WorkerLost { worker, .. } if worker == WorkerName::new(&victim.name));
    assert!(named(failure.fault), "{failure:?}");
    drop(parts);
    eventually("another process works", || gtd.status().workers[1].state == WorkerState::Running);
    let (mut parts, rows) = Parts::new(&gtd, 0..4, LEN);
    let sum = parts.sum(rows);
    parts.assert_is_sum(sum);
}
