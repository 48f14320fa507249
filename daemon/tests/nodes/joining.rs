//! How a node joins, and how it is refused.

use crate::machines::{Node, client_on, daemon, has_left, invitation, node_info, wait_state};
use crate::support::{Folder, Gtd, eventually, f32s, wait};
use gt_ops::Op;
use gt_protocol::{Hello, NodeState, Role};
use nix::sys::signal::Signal;

/// The arguments of a node with one worker.
const ONE: [&str; 2] = ["--workers", "cpu:1"];

/// The complaint of a node that cannot join.
fn refusal(invitation: &str, arguments: &[&str]) -> String {
    let folder = Folder::new();
    let mut child = Node::process(&folder, invitation, arguments);
    assert_eq!(wait(&mut child).code(), Some(1));
    std::fs::read_to_string(folder.0.join("stderr")).unwrap()
}

#[test]
fn a_nodes_workers_compute_for_the_daemon() {
    let gtd = daemon(&[]);
    let invited = invitation(&gtd, 60, Some(2));
    let mut node = Node::spawn(&invited, "left", "cpu:2");
    let line = node.first_line();
    assert!(line.contains(" as node left with workers left/cpu:0, left/cpu:1; Ctrl-C leaves"), "{line}");
    node.wait_running(&gtd, "left");
    let status = gtd.status();
    let names: Vec<_> = status.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(names, ["cpu:0", "left/cpu:0", "left/cpu:1"]);
    assert_eq!((status.workers[1].node.as_deref(), status.workers[1].process), (Some("left"), None));
    let info = node_info(&gtd, "left");
    assert_eq!((info.state, info.workers, info.address.as_deref()), (NodeState::Up, 2, Some("127.0.0.1")));
    // Operands travel to the node's worker, and the result back.
    let mut client = client_on(&gtd, 1);
    let values: Vec<u8> = (0..300_000).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let uploaded = client.upload(f32s(&[300_000]), &values);
    assert_eq!(client.fetch(uploaded, values.len()).unwrap(), values);
    let doubled = client.binary(Op::Add, uploaded, uploaded);
    assert_eq!(client.fetch_f32(doubled, 300_000).unwrap()[299_999], 599_998.0);
    assert!(node_info(&gtd, "left").received_bytes > 1_200_000);
    // A node that leaves says so, and its tensors are lost.
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
    let failure = client.fetch(doubled, 4).unwrap_err();
    assert_eq!(failure.fault, has_left("left/cpu:0"));
    wait_state(&gtd, "left", NodeState::Away);
    let mut other = gtd.client();
    let one = other.full(&[1], 1.0);
    assert_eq!(other.fetch_f32(one, 1).unwrap(), [1.0]);
}

#[test]
fn the_same_line_works_again_on_the_machine_that_used_it() {
    let gtd = daemon(&[]);
    let invited = invitation(&gtd, 60, None);
    let mut node = Node::spawn(&invited, "left", "cpu:1");
    node.wait_running(&gtd, "left");
    let told = refusal_of_twin(&node, &invited);
    assert!(told.contains("node left has joined already, from 127.0.0.1: end that one first"), "{told}");
    node.child.kill().unwrap();
    node.wait();
    wait_state(&gtd, "left", NodeState::Unreachable);
    node.child = Node::process(&node.folder, &invited, &["--workers", "cpu:1"]);
    wait_state(&gtd, "left", NodeState::Up);
    node.wait_running(&gtd, "left");
    // Another machine cannot use it.
    let told = refusal(&invited, &ONE);
    assert!(told.contains("the secret is wrong, or was used already: make a new invitation"), "{told}");
}

/// The complaint of a second process with a node's certificate.
fn refusal_of_twin(node: &Node, invited: &str) -> String {
    let other = Folder::new();
    std::fs::create_dir(other.0.join("state")).unwrap();
    std::fs::copy(node.folder.0.join("state/tls.pem"), other.0.join("state/tls.pem")).unwrap();
    let mut child = Node::process(&other, invited, &["--workers", "cpu:1"]);
    assert_eq!(wait(&mut child).code(), Some(1));
    std::fs::read_to_string(other.0.join("stderr")).unwrap()
}

#[test]
fn a_node_that_may_not_join_is_told_why() {
    let gtd = daemon(&[]);
    let good = invitation(&gtd, 60, Some(1));
    let (before_secret, _) = good.rsplit_once(':').unwrap();
    let (host_port, fingerprint) = before_secret.rsplit_once(':').unwrap();
    let wrong = refusal(&format!("{before_secret}:{}", "0".repeat(64)), &ONE);
    assert!(wrong.contains("the secret is wrong, or was used already: make a new invitation with gtctl"), "{wrong}");
    let many = refusal(&good, &["--workers", "cpu:2"]);
    assert!(many.contains("the node brings 2 workers, and its invitation allows 1"), "{many}");
    let imposter = refusal(&format!("{host_port}:{}:x", "0".repeat(64)), &ONE);
    assert!(imposter.contains("has another certificate than the invitation says"), "{imposter}");
    let nowhere = refusal(&format!("no-such-host.invalid:1:{fingerprint}:x"), &ONE);
    assert!(
        nowhere.contains("no-such-host.invalid:1 cannot be reached:") && nowhere.contains("name right?"),
        "{nowhere}"
    );
    let nobody = refusal(&format!("127.0.0.1:1:{fingerprint}:x"), &ONE);
    assert!(nobody.contains("nobody listens at 127.0.0.1:1: start the daemon there with --nodes 1"), "{nobody}");
    let long = refusal(&good, &["--workers", "cpu:1", "--name", "much-too-long"]);
    assert!(long.contains("`much-too-long` is no name of a node: write 1 to 8 letters"), "{long}");
    let late = invitation(&gtd, 1, None);
    let mut told = String::new();
    eventually("the invitation expires", || {
        // A node of another name cannot use it up meanwhile.
        told = refusal(&late, &["--workers", "cpu:1", "--name", "much-too-long"]);
        told.contains("expired")
    });
    assert!(told.contains("this invitation has expired: make a new invitation with gtctl invite"), "{told}");
    assert!(gtd.status().nodes.is_empty());
}

#[test]
fn a_daemon_without_nodes_listens_nowhere() {
    let gtd = Gtd::start(&[]);
    assert_eq!(gtd.status().nodes_address, None);
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    let told = gt_protocol::ask_node_invite(&control.socket, 60, None).unwrap_err().to_string();
    assert!(told.contains("this daemon takes no nodes: start it with gtd --nodes HOST:PORT"), "{told}");
}

#[test]
fn a_node_that_is_removed_has_to_be_invited_again() {
    let gtd = daemon(&[]);
    let mut node = Node::start(&gtd, "left", "cpu:1");
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    gt_protocol::ask_node_remove(&control.socket, "left".into()).unwrap();
    assert_eq!(node.wait().code(), Some(1));
    assert!(node.stderr().contains("the daemon has given this node up, has removed it"), "{}", node.stderr());
    assert!(gtd.status().nodes.is_empty());
    let told = gt_protocol::ask_node_remove(&control.socket, "left".into()).unwrap_err().to_string();
    assert!(told.contains("there is no node left: gtctl node list shows them"), "{told}");
}
