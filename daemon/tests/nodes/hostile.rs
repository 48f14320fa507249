//! A machine that was invited and does its daemon harm: it lies about its workers, sends frames that no node sends, and
//! says that its workers end and come again. The daemon and its own worker go on.

use crate::machines::{daemon, invitation};
use crate::streams::Dice;
use crate::support::{Folder, Gtd, eventually};
use gt_bridge::lasting_link::{LastingLink, LinkEnd, LinkOptions, LinkRole};
use gt_bridge::link_frame::LinkFrame;
use gt_bridge::machine_port::dial;
use gt_bridge::tls::Certificate;
use gt_ops::Op;
use gt_protocol::{NodeState, WorkerState};
use gtd::nodes::messages::{MachineRequest, NodeHello, NodeReply, OfferedWorker, ToNode};
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long the node waits for the daemon to start its worker, or to take a farewell.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long its link lasts without a connection.
const GRACE: Duration = Duration::from_millis(50);
/// The kinds of frames: messages, slots, bytes of an arena.
const KINDS: [u8; 3] = [0, 1, 2];

/// The node's end of its link.
struct Hostile {
    link: LastingLink,
    started: Receiver<u32>,
}

impl Hostile {
    /// Joins with the certificate in `folder`, and with what `change` makes of an honest node's first message.
    fn join(gtd: &Gtd, folder: &Folder, change: impl FnOnce(&mut NodeHello)) -> Result<Hostile, String> {
        let invited = invitation(gtd, 60, None);
        let [secret, fingerprint, port, host] = invited.rsplitn(4, ':').collect::<Vec<_>>().try_into().unwrap();
        let own = Certificate::own(&folder.0).unwrap();
        let worker =
            OfferedWorker { name: "cpu:0".into(), device: "cpu".into(), threads: 1, memory_bytes_limit: 1 << 20 };
        let mut hello = NodeHello {
            version: env!("CARGO_PKG_VERSION").into(),
            link: None,
            received: 0,
            secret: secret.into(),
            name: Some("liar".into()),
            host: "liar".into(),
            workers: vec![worker],
        };
        change(&mut hello);
        let fingerprint = format!("sha256:{fingerprint}").parse().unwrap();
        let request = MachineRequest::Node(Box::new(hello));
        let (connection, reply) =
            dial((host, port.parse().unwrap()), fingerprint, &own, &request).map_err(|error| error.to_string())?;
        if let NodeReply::Refused { why } = reply {
            return Err(why);
        }
        let (starts, started) = channel();
        let taken = move |frame: &mut Vec<u8>| {
            if let Ok(LinkFrame::Message(text)) = LinkFrame::decode(frame)
                && let Ok(ToNode::Start { worker, .. }) = serde_json::from_slice(text)
            {
                let _ = starts.send(worker);
            }
            Ok(())
        };
        let options = LinkOptions { name: "the daemon".into(), grace: GRACE };
        let gives_up = |_| Err(gt_bridge::lasting_link::DialFailure::Final(LinkEnd::ClosedThere));
        let link = LastingLink::start(options, LinkRole::Dials(Box::new(gives_up)), Some(connection), taken, |_| ());
        Ok(Hostile { link: link.unwrap(), started })
    }

    fn message(&self, message: &Value) -> Result<(), LinkEnd> {
        self.link.send(&[&[0], message.to_string().as_bytes()])
    }

    fn slots(&self, worker: u32, words: &[u64]) -> Result<(), LinkEnd> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.link.send(&[&[1], &worker.to_le_bytes(), &bytes])
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.link.close(PATIENCE);
    }
}

/// A worker's answer to its description.
fn ready(memory: Value, gflops: Value) -> Value {
    let able = json!({"Ok": {"memory_bytes_limit": memory, "gflops": gflops, "gbytes_per_s": 10.0}});
    json!({"message": "ready", "worker": 0, "ready": {"version": env!("CARGO_PKG_VERSION"), "able": able}})
}

/// Asserts that the daemon's own worker computes.
fn assert_works(gtd: &Gtd) {
    let mut client = gtd.client();
    let three = client.full(&[5], 3.0);
    let six = client.binary(Op::Add, three, three);
    assert_eq!(client.fetch_f32(six, 5).unwrap(), [6.0; 5]);
}

/// Whether all workers of nodes have left.
fn own_works_alone(gtd: &Gtd) -> bool {
    gtd.status().workers.iter().all(|worker| worker.node.is_none() || worker.state == WorkerState::Left)
}

fn threads_of(gtd: &Gtd) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", gtd.child.id())).unwrap().count()
}

#[test]
fn a_node_that_lies_about_its_workers_harms_only_what_is_placed_there() {
    let (gtd, folder) = (daemon(&[]), Folder::new());
    let huge = json!(u64::MAX);
    for (memory, gflops) in
        [(huge.clone(), json!(1.0)), (json!(0), json!(0.0)), (json!(1), json!(-1.0)), (huge, json!(1e308))]
    {
        let node = Hostile::join(&gtd, &folder, |_| ()).unwrap();
        assert_eq!(node.started.recv_timeout(PATIENCE), Ok(0));
        node.message(&ready(memory, gflops)).unwrap();
        assert_works(&gtd);
        drop(node);
        eventually("the node has left", || own_works_alone(&gtd));
    }
    for change in [
        (|hello: &mut NodeHello| hello.workers.clear()) as fn(&mut NodeHello),
        |hello| hello.workers = vec![hello.workers[0].clone(); 200],
        |hello| hello.workers[0].name = "x".repeat(60_000),
        |hello| hello.workers[0].device = "cuda:99".into(),
        |hello| hello.workers[0].threads = u32::MAX,
        |hello| hello.name = Some("../../etc".into()),
        |hello| hello.host = "\0".repeat(1000),
        |hello| hello.link = Some("none of yours".into()),
        |hello| hello.received = u64::MAX,
    ] {
        drop(Hostile::join(&gtd, &folder, change));
        assert_works(&gtd);
    }
}

#[test]
fn frames_that_no_node_sends_end_its_link_alone() {
    let (gtd, folder) = (daemon(&[]), Folder::new());
    assert_works(&gtd);
    let before = threads_of(&gtd);
    for seed in 0..20 {
        let dice = &mut Dice::seeded(seed);
        let node = Hostile::join(&gtd, &folder, |_| ()).unwrap();
        assert_eq!(node.started.recv_timeout(PATIENCE), Ok(0), "seed {seed}");
        if dice.percent(70) {
            node.message(&ready(json!(1 << 20), json!(10.0))).unwrap();
        }
        for _ in 0..1 + dice.below(12) {
            let worker = dice.pick(&[0, 0, 0, 1, u32::MAX]);
            let sent = match dice.below(6) {
                0 => node.slots(worker, &(0..8 * dice.below(40)).map(|_| dice.word()).collect::<Vec<_>>()),
                1 => node.slots(worker, &vec![dice.below(3); 8 * 1024]),
                2 => {
                    let (session, offset) = (dice.below(4).to_le_bytes(), dice.pick(&[0, 64, u64::MAX]).to_le_bytes());
                    let arena = (dice.below(3) as u32).to_le_bytes();
                    let bytes = vec![0xff; dice.below(1 << 16) as usize];
                    node.link.send(&[&[2], &worker.to_le_bytes(), &session, &arena, &offset, &bytes])
                }
                3 => {
                    let bytes: Vec<u8> = (0..dice.below(300)).map(|_| dice.below(256) as u8).collect();
                    node.link.send(&[&[dice.pick(&KINDS)], &bytes])
                }
                4 => node.message(&json!({"message": "ended", "worker": worker, "why": "\u{1b}[31m\n".repeat(2000)})),
                _ => node.message(&json!({"message": "again", "worker": worker})),
            };
            if sent.is_err() {
                break;
            }
        }
        assert_works(&gtd);
        drop(node);
        eventually("the node has left", || gtd.status().nodes.iter().all(|node| node.state == NodeState::Away));
    }
    eventually("nothing of the node is left", || own_works_alone(&gtd) && threads_of(&gtd) <= before);
}

#[test]
fn a_worker_that_ends_and_comes_again_without_end_takes_no_more_than_one_place() {
    let (gtd, folder) = (daemon(&[]), Folder::new());
    let before = threads_of(&gtd);
    let node = Hostile::join(&gtd, &folder, |_| ()).unwrap();
    assert_eq!(node.started.recv_timeout(PATIENCE), Ok(0));
    let mut most = 0;
    for _ in 0..2000 {
        let ended = node.message(&json!({"message": "ended", "worker": 0, "why": "was killed"}));
        if ended.and_then(|()| node.message(&json!({"message": "again", "worker": 0}))).is_err() {
            break;
        }
        most = most.max(threads_of(&gtd));
    }
    assert_works(&gtd);
    assert!(most < before + 32, "{most} threads, of {before} before");
}
