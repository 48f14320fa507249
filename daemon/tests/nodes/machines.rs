//! A daemon that takes nodes, nodes, and a relay between them that breaks connections.

use crate::support::{Client, DEADLINE, Folder, Gtd, eventually, gtd_path, wait};
use gt_ops::failure::{Fault, WorkerEnd, WorkerName};
use gt_ops::instruction::Operand;
use gt_ops::placement::{RequestedLayout, RequestedPlacement, Workers};
use gt_ops::wire::Command;
use gt_ops::{Attrs, DType, Meta, Op, Shape, TensorId};
use gt_protocol::{Hello, NodeInfo, NodeState, Role, WorkerState, WorkerTraffic};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, Command as Program, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A daemon that takes nodes at a port of loopback, with one worker of its own.
pub fn daemon(arguments: &[&str]) -> Gtd {
    daemon_at("127.0.0.1:0", arguments)
}

/// A daemon that takes nodes at this address.
pub fn daemon_at(address: &str, arguments: &[&str]) -> Gtd {
    let folder = Folder::new();
    let state = folder.0.join("state");
    let mut all = vec!["--nodes", address, "--state", state.to_str().unwrap()];
    all.extend(arguments);
    Gtd::start_in(folder, &all, &[])
}

/// An invitation, as `gtctl invite` prints it.
pub fn invitation(gtd: &Gtd, lifetime_s: u64, workers_max: Option<u32>) -> String {
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    let (address, fingerprint, secret) =
        gt_protocol::ask_node_invite(&control.socket, lifetime_s, workers_max).unwrap();
    format!("{address}:{}:{secret}", fingerprint.strip_prefix("sha256:").unwrap())
}

/// The invitation with another port.
pub fn through(invitation: &str, relay: SocketAddr) -> String {
    let rest: Vec<&str> = invitation.splitn(3, ':').collect();
    format!("{relay}:{}", rest[2])
}

/// A node, which is killed at the end of the test.
pub struct Node {
    pub child: Child,
    pub folder: Folder,
}

impl Node {
    /// Starts a node with `workers` that calls itself `name`, and waits until its workers run.
    pub fn start(gtd: &Gtd, name: &str, workers: &str) -> Node {
        let node = Node::spawn(&invitation(gtd, 60, None), name, workers);
        node.wait_running(gtd, name);
        node
    }

    pub fn spawn(invitation: &str, name: &str, workers: &str) -> Node {
        let folder = Folder::new();
        let child = Node::process(&folder, invitation, &["--name", name, "--workers", workers]);
        Node { child, folder }
    }

    pub fn process(folder: &Folder, invitation: &str, arguments: &[&str]) -> Child {
        Node::process_of(Program::new(gtd_path()), folder, invitation, arguments)
    }

    /// Starts a node by `program`, which runs `gtd`.
    pub fn process_of(mut program: Program, folder: &Folder, invitation: &str, arguments: &[&str]) -> Child {
        program
            .args(["node", "--join", invitation, "--threads", "1", "--memory", "512M", "--state"])
            .arg(folder.0.join("state"))
            .args(arguments)
            .env_remove("GT_WORKERS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.0.join("stderr")).unwrap())
            .spawn()
            .unwrap()
    }

    pub fn wait_running(&self, gtd: &Gtd, name: &str) {
        let of_node = format!("{name}/");
        eventually("the node's workers run", || {
            let workers = gtd.status().workers;
            let mut own = workers.iter().filter(|worker| worker.name.starts_with(&of_node)).peekable();
            own.peek().is_some() && own.all(|worker| worker.state == WorkerState::Running)
        });
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("stderr")).unwrap()
    }

    /// The first line that the node prints.
    pub fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The failure of whatever only this worker of a node held, after it has left.
pub fn has_left(worker: &str) -> Fault {
    Fault::WorkerLost { worker: WorkerName::new(worker), end: WorkerEnd::Left }
}

/// A client whose tensors are all placed on the worker with this number.
pub fn client_on(gtd: &Gtd, worker: usize) -> Client {
    let mut client = gtd.client();
    let requested = RequestedPlacement { workers: Workers::one(worker), layout: RequestedLayout::Replicated };
    client.send(&Command::DefineSignal { signal: 1, requested, compile: None });
    client.send(&Command::Signal { signal: 1 });
    client
}

/// A client of some workers, each of which holds a row of `len` equal numbers: 1, 2, and so on. Signal 2, which is in
/// force, requests a copy of each result on all of them.
pub struct Parts {
    pub client: Client,
    workers: Vec<usize>,
    len: usize,
}

impl Parts {
    /// Gives each worker its row.
    pub fn new(gtd: &Gtd, workers: Range<usize>, len: usize) -> (Parts, TensorId) {
        Parts::on(gtd, workers.collect(), len)
    }

    /// As [`Parts::new`], for workers with any numbers, in their order.
    pub fn on(gtd: &Gtd, workers: Vec<usize>, len: usize) -> (Parts, TensorId) {
        let mut client = gtd.client();
        let all = workers.iter().fold(Workers::NONE, |all, worker| all.with(Workers::one(*worker)));
        for (signal, layout) in [(1, RequestedLayout::Sharded { axis: 0 }), (2, RequestedLayout::Replicated)] {
            let requested = RequestedPlacement { workers: all, layout };
            client.send(&Command::DefineSignal { signal, requested, compile: None });
        }
        client.send(&Command::Signal { signal: 1 });
        let row = |row: usize| ((row + 1) as f32).to_le_bytes().repeat(len);
        let rows: Vec<u8> = (0..workers.len()).flat_map(row).collect();
        let rows = client.upload(Meta::new(Shape::new(&[workers.len(), len]).unwrap(), DType::F32), &rows);
        client.send(&Command::Signal { signal: 2 });
        (Parts { client, workers, len }, rows)
    }

    /// Sums the rows up by an all-reduce: each worker has the sum of its rows.
    pub fn sum(&mut self, rows: TensorId) -> TensorId {
        self.client.op(Op::Sum, &[Operand::Tensor(rows)], Attrs::Axes { mask: 1, keepdim: false })
    }

    pub fn assert_is_sum(&mut self, sum: TensorId) {
        let workers = self.workers.len();
        let expected = (workers * (workers + 1) / 2) as f32;
        let found = self.client.fetch_f32(sum, self.len).unwrap();
        assert!(found.iter().all(|found| *found == expected), "{:?}, not {expected}", &found[..4]);
    }

    /// How many all-reduces each of the workers took part in.
    pub fn all_reduces(&self) -> Vec<u64> {
        let (traffic, _) = gt_protocol::ask_traffic(&self.client.socket).unwrap();
        let of = |worker: &WorkerTraffic| worker.collectives.get("all_reduce").map_or(0, |traffic| traffic.count);
        self.workers.iter().map(|worker| of(&traffic[*worker])).collect()
    }
}

/// The node called `name`.
pub fn node_info(gtd: &Gtd, name: &str) -> NodeInfo {
    gtd.status().nodes.into_iter().find(|node| node.name == name).unwrap()
}

/// Waits until a node is in this state.
pub fn wait_state(gtd: &Gtd, name: &str, state: NodeState) {
    eventually("the node's state changes", || node_info(gtd, name).state == state);
}

/// A relay before a daemon's port, which can break all connections.
pub struct Relay {
    pub address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// A relay before the port of `invitation`.
    pub fn before(invitation: &str) -> Relay {
        let to: SocketAddr = invitation.splitn(3, ':').take(2).collect::<Vec<_>>().join(":").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay { address: listener.local_addr().unwrap(), open: Arc::default() };
        let open = relay.open.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, Ok(far)) = (near.unwrap(), TcpStream::connect(to)) else { return };
                open.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (mut from, mut to) = (from.unwrap(), to.unwrap());
                    std::thread::spawn(move || {
                        let mut bytes = [0; 65536];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        relay
    }

    /// Breaks all connections. Returns how many there were.
    pub fn reset(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        open.iter().for_each(|tcp| drop(tcp.shutdown(Shutdown::Both)));
        open.len() / 2
    }
}

/// Runs `work` on another thread, and `meanwhile` again and again until it is done.
pub fn while_working<T: Send>(work: impl FnOnce() -> T + Send, mut meanwhile: impl FnMut()) -> T {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            assert!(begun.elapsed() < 3 * DEADLINE, "the work does not end");
            meanwhile();
        }
        working.join().unwrap()
    })
}
