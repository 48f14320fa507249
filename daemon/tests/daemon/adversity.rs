//! Exhausted descriptors and disks, and daemons that end: existing sessions go on or get an error, and no client hangs.

use crate::support::{DEADLINE, Folder, Gtd, eventually, f32s, gtd_path, range};
use gt_client::launch::ConnectOptions;
use gt_client::{ClientError, ClientSession, Tensor};
use gt_ops::wire::Command;
use gt_ops::{Arg, DType, Meta, Op, Scalar, Shape, build};
use gt_protocol::{Address, Hello, ProtocolError, RefusalCode, Role};
use nix::sys::signal::Signal;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

/// A file to which every write fails, as on a full disk.
const FULL_DISK: &str = "/dev/full";

#[test]
fn a_full_disk_ends_the_instruction_log_and_nothing_else() {
    let mut gtd = Gtd::start_with(&[], &[("GT_INSTRUCTION_LOG", FULL_DISK)]);
    let mut client = gtd.client();
    for value in 0..1000 {
        let id = client.full(&[1], value.into());
        assert_eq!(client.fetch_f32(id, 1).unwrap(), [value as f32]);
        client.free(&[id]);
    }
    eventually("it says why", || gtd.stderr().contains("the instruction log cannot be written"));
    assert_eq!(gtd.stderr().lines().count(), 1, "once: {}", gtd.stderr());
    drop(client);
    gtd.signal(Signal::SIGTERM);
    assert!(gtd.wait().success());
}

#[test]
fn a_daemon_that_can_say_nothing_serves_on() {
    let folder = Folder::new();
    let full = std::fs::OpenOptions::new().write(true).open(FULL_DISK).unwrap();
    let child = Program::new(gtd_path())
        .env("GT_WORKERS", crate::workers())
        .arg("--socket")
        .arg(folder.socket())
        .stdin(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    std::fs::write(folder.0.join("stderr"), "").unwrap();
    let mut gtd = Gtd::around(folder, child);
    for _ in 0..3 {
        let mut offender = gtd.client();
        offender.send_slots(&[[u64::MAX; 8]]);
        offender.wait_closed();
    }
    let mut client = gtd.client();
    let id = client.full(&[1], 4.0);
    assert_eq!(client.fetch_f32(id, 1).unwrap(), [4.0]);
    gtd.signal(Signal::SIGTERM);
    assert!(gtd.wait().success());
}

#[test]
fn a_daemon_without_descriptors_refuses_new_connections_and_keeps_its_sessions() {
    let folder = Folder::new();
    let child = Program::new("sh")
        .args(["-c", "ulimit -n 48; exec \"$0\" --socket \"$1\""])
        .arg(gtd_path())
        .arg(folder.socket())
        .env("GT_WORKERS", crate::workers())
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(folder.0.join("stderr")).unwrap())
        .spawn()
        .unwrap();
    let gtd = Gtd::around(folder, child);
    let mut old = gtd.client();
    let kept = old.full(&[2], 3.0);
    let mut connections = Vec::new();
    // Each connection takes descriptors until none are left: a session several, a control connection two.
    for role in [Role::Client, Role::Client, Role::Control, Role::Control, Role::Client] {
        let refused = loop {
            match gt_protocol::connect(&gtd.folder.socket(), &Hello::new(role, None)) {
                Ok(connection) => connections.push(connection),
                Err(ProtocolError::Refused(refused)) => break refused,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(refused.code, RefusalCode::Exhausted, "{refused}");
        let sum = old.binary(Op::Add, kept, kept);
        assert_eq!(old.fetch_f32(sum, 2).unwrap(), [6.0; 2]);
    }
    let descriptors = gtd.descriptors();
    connections.remove(0);
    eventually("its descriptors are free", || gtd.descriptors() < descriptors);
    drop(connections);
    eventually("there is room for another", || {
        gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Client, None)).is_ok()
    });
}

fn open(gtd: &Gtd) -> gt_client::Result<Arc<ClientSession>> {
    let address = Some(Address::Unix(gtd.folder.socket()));
    ClientSession::connect(&ConnectOptions { address, ..ConnectOptions::default() })
}

fn ones(session: &Arc<ClientSession>, size: usize) -> Tensor {
    let bytes: Vec<u8> = (0..size * size).flat_map(|_| 1f32.to_le_bytes()).collect();
    let meta = Meta::new(Shape::new(&[size, size]).unwrap(), DType::F32);
    Tensor::new(session.upload(meta, bytes.as_slice().into()).unwrap(), None)
}

/// Computes and fetches until an error comes, which it returns.
fn compute_until_told(session: &Arc<ClientSession>, mut begun: impl FnMut()) -> ClientError {
    let tensor = ones(session, 64);
    loop {
        let half = |g: &mut dyn gt_ops::Graph, v| {
            let product = build::matmul(g, v, v)?;
            build::elementwise(g, Op::Mul, &[product.into(), Arg::Scalar(Scalar::Float(0.5))])
        };
        let result = tensor.apply(half).and_then(|result| session.download(&*result.value()?));
        match result {
            Ok(_) => begun(),
            Err(error) => return error,
        }
    }
}

/// The errors of clients that compute while the daemon receives `signal`.
fn told_by(signal: Signal) -> (Gtd, Vec<String>) {
    let mut gtd = Gtd::start(&[]);
    let sessions: Vec<_> = (0..4).map(|_| open(&gtd).unwrap()).collect();
    let (begun, beginning) = std::sync::mpsc::channel();
    let mut rounds = vec![0; sessions.len()];
    let clients: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(number, session)| {
            let begun = begun.clone();
            std::thread::spawn(move || {
                compute_until_told(&session, || {
                    let _ = begun.send(number);
                })
            })
        })
        .collect();
    while rounds.contains(&0) || rounds.iter().sum::<u32>() < 40 {
        rounds[beginning.recv_timeout(DEADLINE).unwrap()] += 1;
    }
    gtd.signal(signal);
    let status = gtd.wait();
    assert_eq!(status.success(), signal == Signal::SIGTERM, "{status}");
    let told = clients.into_iter().map(|client| {
        eventually("the client is told", || client.is_finished());
        match client.join().unwrap() {
            ClientError::Disconnected(text) => text,
            other => panic!("{other:?}"),
        }
    });
    let told = told.collect();
    (gtd, told)
}

#[test]
fn a_daemon_that_is_told_to_end_tells_its_clients() {
    let (gtd, told) = told_by(Signal::SIGTERM);
    assert!(told.iter().all(|text| text.contains("daemon")), "{told:?}");
    assert!(!gtd.stderr().contains("panic"), "{}", gtd.stderr());
}

#[test]
fn clients_of_a_daemon_that_is_killed_are_told_and_find_the_next() {
    let (mut gtd, told) = told_by(Signal::SIGKILL);
    let what = "closed the session or is gone: its tensors are lost; create new ones";
    assert!(told.iter().all(|text| text.contains(what)), "{told:?}");
    gtd.child = Gtd::spawn(&gtd.folder, &[], &[]);
    gtd.wait_listening();
    let session = open(&gtd).unwrap();
    let value = ones(&session, 2).value().unwrap();
    let mut bytes = [0; 16];
    session.download(&value).unwrap().read(&mut bytes);
    assert_eq!(bytes, [1f32; 4].map(f32::to_le_bytes).concat()[..]);
}

const PATTERN: u8 = 0xa5;
const SECRET_BYTES: usize = 4 << 20;

#[test]
fn uploaded_bytes_do_not_show_in_a_later_sessions_half_written_tensor() {
    let gtd = Gtd::start(&["--memory", "64M"]);
    let meta = f32s(&[SECRET_BYTES / 4]);
    let mut owner = gtd.client();
    let secret = owner.upload(meta, &[PATTERN; SECRET_BYTES]);
    assert_eq!(owner.fetch(secret, SECRET_BYTES).unwrap()[..8], [PATTERN; 8]);
    drop(owner);
    eventually("the session ends", || gtd.status().sessions.is_empty());

    let mut other = gtd.client();
    let id = other.id();
    other.send(&Command::Allocate { out: id, meta });
    let block = other.block(SECRET_BYTES);
    let token = other.token();
    let from = range(&block, 4096);
    other.send(&Command::Write { token, id, offset_bytes: 0, from });
    other.completion(token).unwrap();
    let token = other.token();
    let to = range(&block, SECRET_BYTES);
    other.send(&Command::Fetch { token, id, offset_bytes: 0, to });
    other.wait_closed();
    let mut seen = vec![1; SECRET_BYTES];
    block.read(&mut seen);
    assert!(seen.iter().all(|byte| *byte == 0), "of a tensor that was not all written");
}
