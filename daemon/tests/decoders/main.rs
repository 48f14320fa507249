//! Runs all decoders of other processes' bytes on invalid input: the bodies of the fuzzing targets, on bytes that are
//! generated from fixed seeds. Some inputs are random, and most are mutations of valid ones.

#[path = "../../../fuzz/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;
#[path = "../storm/streams.rs"]
mod streams;

use bodies::FuzzTarget;
use gt_protocol::InsecureNetwork;
use gtd::nodes::endpoint::{DataHello, DataReply, Endpoint, NetworkRank, UcxOffer};
use gtd::nodes::messages::{MachineRequest, NodeHello, NodeReply, OfferedWorker, ToDaemon, ToNode};
use gtd::worker::process::message::Message;
use seeds::valid_input;
use std::path::Path;
use streams::Dice;

/// The decoders of what nodes and the daemon say to each other.
const NODES: &str = "nodes";
/// The number of inputs per decoder.
const CASES: u64 = 3000;
/// The number of valid inputs for each target of `cargo fuzz`.
const SEEDS: u64 = 100;
/// The environment variable that names the folder to write the valid inputs to; without it none are written.
const SEEDS_ENV: &str = "GT_WRITE_SEEDS";

fn input(name: &str, dice: &mut Dice<'_>) -> Vec<u8> {
    if dice.percent(20) {
        return (0..dice.below(600)).map(|_| dice.below(256) as u8).collect();
    }
    let mut bytes = if name == NODES { node_message(dice) } else { valid_input(name, dice) };
    for _ in 0..dice.below(5) {
        let (at, other) = (dice.index(bytes.len().max(1)), dice.index(bytes.len().max(1)));
        match dice.below(6) {
            _ if bytes.is_empty() => {}
            0 => bytes.truncate(at),
            1 => bytes.swap(at, other),
            2 => bytes[at] ^= 1 << dice.below(8),
            3 => bytes[at] = dice.below(256) as u8,
            4 => bytes.insert(at, dice.pick(b"\"{}[]:,-0 9eE.\n\t#&*!|>%@\\")),
            _ => drop(bytes.drain(at.min(other)..at.max(other))),
        }
    }
    bytes
}

/// Decodes messages of the daemon to its workers, and of nodes. These are no fuzzing targets, as those would have to
/// link the daemon.
fn own_messages(bytes: &[u8]) {
    let _ = serde_json::from_slice::<Message>(bytes);
    let _ = serde_json::from_slice::<MachineRequest>(bytes);
    let _ = serde_json::from_slice::<NodeReply>(bytes);
    let _ = serde_json::from_slice::<ToNode>(bytes);
    let _ = serde_json::from_slice::<ToDaemon>(bytes);
    let _ = serde_json::from_slice::<DataReply>(bytes);
}

/// A valid message of, or to, a node.
fn node_message(dice: &mut Dice<'_>) -> Vec<u8> {
    let endpoint =
        Endpoint { machine: "a".into(), process: "b".into(), fingerprint: "sha256:00".into(), host: None, port: 7 };
    let hello = NodeHello {
        version: "0.1.0".into(),
        link: None,
        received: 3,
        secret: "s".into(),
        name: Some("node7".into()),
        host: "node7".into(),
        workers: vec![OfferedWorker {
            name: "cpu:0".into(),
            device: "cpu".into(),
            threads: 1,
            memory_bytes_limit: 1 << 20,
        }],
    };
    let offer = UcxOffer { version: "1.22.0".into(), address: "5f01".into(), tag: 7 };
    let [from, to, link] = ["a", "b", "c"].map(String::from);
    let data = DataHello { from, to, link, received: 9, plain: true, ucx: Some(offer) };
    let endpoints = vec![endpoint.clone(), endpoint];
    let rank = Box::new(NetworkRank { group: 1, rank: 1, endpoints, by_machine: true });
    let messages = [
        serde_json::to_vec(&MachineRequest::Node(Box::new(hello))),
        serde_json::to_vec(&MachineRequest::Data(data)),
        serde_json::to_vec(&NodeReply::Welcome {
            link: "c".into(),
            name: "node7".into(),
            received: 4,
            insecure_network: InsecureNetwork::Rdma,
        }),
        serde_json::to_vec(&ToNode::Rank { worker: 0, rank }),
        serde_json::to_vec(&ToNode::Cancel { worker: 0, session: 1, below: 9 }),
        serde_json::to_vec(&ToDaemon::Ended { worker: 0, why: "it was killed".into() }),
        serde_json::to_vec(&ToDaemon::LifePort { port: 7 }),
        serde_json::to_vec(&DataReply::Welcome { received: 4, plain: true, ucx: None }),
    ];
    messages[dice.index(messages.len())].as_ref().expect("it is serializable").clone()
}

#[test]
fn nothing_that_can_be_said_makes_who_reads_it_panic() {
    let own: [(&str, FuzzTarget); 2] = [("messages", own_messages), (NODES, own_messages)];
    for (name, body) in bodies::FUZZ_TARGETS.into_iter().chain(own) {
        for case in 0..CASES {
            let bytes = input(name, &mut Dice::seeded(case));
            if std::panic::catch_unwind(|| body(&bytes)).is_err() {
                panic!("{name}, case {case}: {bytes:?}");
            }
        }
    }
}

#[test]
fn what_is_right_is_read() {
    for (name, body) in bodies::FUZZ_TARGETS {
        let folder = std::env::var_os(SEEDS_ENV).map(|folder| Path::new(&folder).join(name));
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).unwrap();
        }
        for seed in 0..SEEDS {
            let bytes = valid_input(name, &mut Dice::seeded(seed));
            body(&bytes);
            if let Some(folder) = &folder {
                std::fs::write(folder.join(format!("seed-{seed}")), &bytes).unwrap();
            }
        }
    }
    for case in 0..200 {
        let commands = streams::valid(&mut Dice::seeded(case));
        for (command, slots) in commands.iter().zip(streams::encoded(&commands)) {
            assert_eq!(gt_ops::wire::decode(&slots).as_ref(), Ok(command));
        }
    }
}
