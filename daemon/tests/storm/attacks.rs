//! Attacks, each by a client in a process of its own, which may be killed at any instant.
//!
//! The clients print their findings: `count NAME` for an event to be counted, `breach WHAT` for one that must never
//! happen.

use crate::seeds::client_messages;
use crate::streams::{Dice, encoded, mutated, valid};
use crate::support::{Client, f32s, range};
use crate::training;
use gt_ops::Op;
use gt_ops::wire::Command;
use gt_protocol::limits::{CQ_SLOTS, SQ_SLOTS};
use gt_protocol::{Address, ClientMessage, DaemonMessage, Hello, Role};
use gt_shm::port::{segment_c_bytes, segment_d_bytes};
use gt_shm::{Access, ClientPort, PortFds, Segment, SessionState, Slot, Socket};
use nix::sys::resource::{Resource, setrlimit};
use rustix::fs::{FallocateFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The token of the last command of a stream.
pub const LAST_TOKEN: u64 = 0x1a57;
/// How long a client waits for an answer that may never come.
pub const PATIENCE: Duration = Duration::from_millis(200);
/// The most sessions of one greedy client, which leaves some to its user's other clients.
const SESSIONS_HOARDED: usize = 24;

pub type Attack = fn(&Path, &mut Dice<'_>);

pub const ATTACKS: [(&str, Attack); 12] = [
    ("trains-until-killed", trains),
    ("floods-with-small", floods_with_small),
    ("floods-with-large", floods_with_large),
    ("says-nothing", says_nothing),
    ("never-finishes-a-command", half_says),
    ("reads-no-completion", reads_nothing),
    ("hoards", hoards),
    ("has-no-descriptors", has_no_descriptors),
    ("scribbles", scribbles),
    ("truncates-and-punches", punches),
    ("sends-mutants", sends_mutants),
    ("says-nonsense", says_nonsense),
];

#[expect(clippy::print_stdout, reason = "whoever started this process reads it")]
pub fn count(what: &str) {
    println!("count {what}");
}

#[expect(clippy::print_stdout, reason = "whoever started this process reads it")]
pub fn breach(what: &str) {
    println!("breach {what}");
}

fn must_fail<T, E>(what: &str, result: Result<T, E>) {
    if result.is_ok() {
        breach(what);
    }
}

pub fn connect(socket: &Path) -> Option<Client> {
    let hello = Hello::new(Role::Client, Some("attacker".into()));
    gt_protocol::connect(socket, &hello).ok().map(Client::of)
}

/// Sends slots, after a wait for room in the ring. False once the session is over.
pub fn push(client: &mut Client, slots: &[Slot]) -> bool {
    while client.port.push_publish(slots).is_err() {
        if client.port.state() == SessionState::Closed || client.socket.is_hung_up() {
            return false;
        }
        client.port.wait_space(slots.len() as u32, Duration::from_millis(5));
    }
    client.port.state() == SessionState::Running
}

fn trains(socket: &Path, dice: &mut Dice<'_>) {
    let _ = training::train(&Address::Unix(socket.into()), dice.below(4), true);
}

fn floods_with_small(socket: &Path, _dice: &mut Dice<'_>) {
    let Some(mut client) = connect(socket) else { return };
    let one = client.full(&[1], 1.0);
    while client.port.state() == SessionState::Running {
        let slots = [gt_ops::wire::binary_slot(Op::Add, client.id(), one, one)];
        if !push(&mut client, &slots) {
            return;
        }
        if client.next_id % 64 == 0 {
            // Only a few of the tensors are ever freed.
            let ids = [client.next_id, client.next_id - 1, client.next_id - 2, client.next_id - 3, 0, 0, 0];
            let free = encoded(&[Command::Free { ids }]).remove(0);
            push(&mut client, &free);
        }
    }
}

fn floods_with_large(socket: &Path, dice: &mut Dice<'_>) {
    let Some(mut client) = connect(socket) else { return };
    let size = 128 << dice.below(4);
    let a = client.full(&[size, size], 0.5);
    for round in 0.. {
        // Results are never freed, so that after a while nothing fits.
        let product = client.binary(Op::Matmul, a, a);
        client.binary(Op::Add, product, a);
        if round % 8 == 7 && client.fetch(product, 4).is_err() {
            let bytes = vec![1; 4 << 20];
            client.upload(f32s(&[1 << 20]), &bytes);
        }
    }
}

fn says_nothing(socket: &Path, dice: &mut Dice<'_>) {
    let sockets: Vec<_> = (0..1 + dice.below(90)).filter_map(|_| Socket::connect(socket).ok()).collect();
    for socket in &sockets {
        // Some send the beginning of a message or a message without fields; most send nothing at all.
        if dice.percent(30) {
            let said = dice.pick(&[b"{\"message\":".as_slice(), b"{\"message\":\"hello\"}", b" "]);
            let _ = socket.send(said, &[], Some(PATIENCE));
        }
    }
    std::thread::sleep(PATIENCE * 3);
}

fn half_says(socket: &Path, dice: &mut Dice<'_>) {
    while let Some(mut client) = connect(socket) {
        let stream = encoded(&valid(dice));
        let Some(long) = stream.iter().position(|command| command.len() > 1) else { continue };
        for command in &stream[..long] {
            push(&mut client, command);
        }
        push(&mut client, &stream[long][..1]);
        std::thread::sleep(Duration::from_millis(dice.below(40)));
    }
}

fn reads_nothing(socket: &Path, dice: &mut Dice<'_>) {
    while let Some(mut client) = connect(socket) {
        let asked = CQ_SLOTS as u64 - 1 + dice.below(3);
        for token in 0..asked {
            push(&mut client, &encoded(&[Command::Sync { token }])[0]);
        }
        let deadline = Instant::now() + PATIENCE;
        while client.port.state() == SessionState::Running && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        count(if client.port.state() == SessionState::Running { "deaf_tolerated" } else { "deaf_ended" });
    }
}

fn hoards(socket: &Path, dice: &mut Dice<'_>) {
    let mut sessions: Vec<_> = (0..SESSIONS_HOARDED).map_while(|_| connect(socket)).collect();
    for client in &mut sessions {
        for _ in 0..1 + dice.below(40) {
            match gt_protocol::ask_arena(&client.socket, 1 << dice.below(37)) {
                Ok(_) => {}
                Err(gt_protocol::ProtocolError::Refused(_)) => count("arenas_refused"),
                Err(_) => break,
            }
        }
    }
    let gift = std::fs::File::open("/dev/null").expect("it is there");
    for client in &sessions {
        let _ = client.socket.send(b"{\"message\":\"status\"}", &[gift.as_fd(); 8], Some(PATIENCE));
    }
    std::thread::sleep(PATIENCE);
}

/// A client without free descriptors, so that those which the daemon sends are lost on the way.
fn has_no_descriptors(socket: &Path, dice: &mut Dice<'_>) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(8, Iterator::count) as u64;
    let most = open + dice.below(4);
    if setrlimit(Resource::RLIMIT_NOFILE, most, most).is_err() {
        return;
    }
    let deadline = Instant::now() + PATIENCE * 3;
    while Instant::now() < deadline {
        match connect(socket) {
            Some(client) => drop(gt_protocol::ask_arena(&client.socket, 1 << 20)),
            None => count("connections_without_descriptors"),
        }
    }
}

/// A session's socket, welcome and descriptors.
fn raw_session(path: &Path) -> Option<(Socket, gt_protocol::Welcome, [OwnedFd; 3])> {
    let socket = Socket::connect(path).ok()?;
    let hello = ClientMessage::Hello(Hello::new(Role::Client, Some("attacker".into())));
    gt_protocol::send_client_message(&socket, &hello, PATIENCE).ok()?;
    match gt_protocol::recv_daemon_message(&socket, Duration::from_secs(10)).ok()? {
        (DaemonMessage::Welcome(welcome), fds) => Some((socket, welcome, fds.try_into().ok()?)),
        _ => None,
    }
}

fn copy(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().expect("a descriptor is free")
}

fn scribbles(socket: &Path, dice: &mut Dice<'_>) {
    let c_bytes = segment_c_bytes(SQ_SLOTS);
    while let Some((socket, welcome, fds)) = raw_session(socket) {
        let writable = Segment::map_peer(copy(&fds[1]), segment_d_bytes(CQ_SLOTS), Access::ReadWrite);
        must_fail("segment D can be mapped for writing", writable);
        let Ok(c) = Segment::map_peer(copy(&fds[0]), c_bytes, Access::ReadWrite) else { return };
        let Ok(port) = ClientPort::connect(PortFds::from_array(fds), SQ_SLOTS, CQ_SLOTS) else { return };
        let mut client = Client::of(gt_protocol::Connection { socket, welcome, port: Some(port) });
        // An upload is in flight while its source changes.
        let mut block = client.block(1 << 20);
        let id = client.id();
        let token = client.token();
        push(&mut client, &encoded(&[Command::Allocate { out: id, meta: f32s(&[1 << 18]) }])[0]);
        let from = range(&block, 1 << 20);
        push(&mut client, &encoded(&[Command::Write { token, id, offset_bytes: 0, from }])[0]);
        block.write(&vec![0xff; 1 << 20]);
        let whole = dice.percent(30);
        for _ in 0..400 {
            // SAFETY: the offsets lie in `c`, a mapping of `c_bytes` bytes that outlives the writes; the writes are
            // volatile, and no Rust reference to the bytes exists. The daemon must accept any bytes there.
            unsafe {
                if whole {
                    for at in (0..c_bytes as usize).step_by(8) {
                        c.as_ptr().add(at).cast::<u64>().write_volatile(dice.word());
                    }
                } else {
                    // The cursors and the flag are overwritten more often than the slots.
                    let end = if dice.percent(50) { 256 } else { c_bytes };
                    let at = dice.below(end / 4) as usize * 4;
                    c.as_ptr().add(at).cast::<u32>().write_volatile(dice.below(10_000) as u32);
                }
            }
            client.port.publish();
            if client.port.state() == SessionState::Closed || client.socket.is_hung_up() {
                count("scribblers_ended");
                break;
            }
            if whole {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn punches(socket: &Path, dice: &mut Dice<'_>) {
    while let Some((socket, _welcome, fds)) = raw_session(socket) {
        let Ok(arena) = gt_protocol::ask_arena(&socket, 1 << 20) else { return };
        let [c, d, bell] = fds;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (name, fd) in [("C", &c), ("D", &d), ("an arena", &arena.fd)] {
            must_fail(&format!("segment {name} can be truncated"), rustix::fs::ftruncate(fd, 0));
            must_fail(&format!("segment {name} can be shortened"), rustix::fs::ftruncate(fd, 4096));
            must_fail(&format!("segment {name} can be lengthened"), rustix::fs::ftruncate(fd, 1 << 30));
            must_fail(&format!("segment {name} can be sealed"), rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE));
        }
        must_fail("segment D can be written", rustix::io::pwrite(&d, &[1; 64], 0));
        must_fail("segment D can be punched", rustix::fs::fallocate(&d, punch, 0, 4096));
        let Ok(mut port) = ClientPort::connect(PortFds::from_array([copy(&c), copy(&d), bell]), SQ_SLOTS, CQ_SLOTS)
        else {
            return;
        };
        // Holes are punched into commands on their way, and read as zeros.
        for command in encoded(&valid(dice)) {
            let _ = port.push_publish(&command);
            let _ = rustix::fs::fallocate(&c, punch, dice.below(64) * 4096, 4096);
            let _ = rustix::fs::fallocate(&arena.fd, punch, 0, 1 << 20);
        }
        count("segments_punched");
    }
}

fn sends_mutants(socket: &Path, dice: &mut Dice<'_>) {
    while let Some(mut client) = connect(socket) {
        let commands = valid(dice);
        // Some streams are left unchanged: they must be accepted, so that mutants are refused for their mutations.
        let honest = dice.percent(10);
        let stream = if honest { encoded(&commands) } else { mutated(&commands, dice) };
        let _block = client.block(64);
        for command in &stream {
            push(&mut client, command);
        }
        push(&mut client, &encoded(&[Command::Sync { token: LAST_TOKEN }])[0]);
        let deadline = Instant::now() + PATIENCE;
        let outcome = loop {
            match client.port.wait_completion(Duration::ZERO, Duration::from_millis(20)) {
                Some(slot) if slot[0] == LAST_TOKEN => break "accepted",
                Some(_) => {}
                None if client.port.state() == SessionState::Closed || client.socket.is_hung_up() => break "rejected",
                // The daemon may read the last slots as the rest of a command.
                None if Instant::now() > deadline => break "unfinished",
                None => {}
            }
        };
        count(&format!("{}_{outcome}", if honest { "honest" } else { "mutants" }));
    }
}

/// A mutated message.
pub fn garbled(mut bytes: Vec<u8>, dice: &mut Dice<'_>) -> Vec<u8> {
    match dice.below(8) {
        0 => bytes.truncate(dice.index(bytes.len())),
        1 => bytes.extend_from_within(..),
        2 => bytes.resize(bytes.len() + dice.index(70_000), b' '),
        3 => bytes = [b"[".repeat(1 + dice.index(60_000)), bytes].concat(),
        4 => {
            let text = String::from_utf8_lossy(&bytes);
            let number = dice.pick(&["-1", "1e999", "18446744073709551616", "null", "[]", "\"\\u0000\""]);
            bytes = text.replacen(dice.pick(&["0", "1", "3", "4096"]), number, 1).into_bytes();
        }
        _ => {
            for _ in 0..1 + dice.below(4) {
                let at = dice.index(bytes.len());
                bytes[at] = dice.below(256) as u8;
            }
        }
    }
    bytes
}

fn says_nonsense(path: &Path, dice: &mut Dice<'_>) {
    let hello = serde_json::to_vec(&client_messages()[0]).expect("it is serializable");
    while let Ok(socket) = Socket::connect(path) {
        if dice.percent(70) {
            let _ = socket.send(&hello, &[], Some(PATIENCE));
        }
        for _ in 0..1 + dice.below(6) {
            let message = &client_messages()[dice.index(client_messages().len())];
            let bytes = serde_json::to_vec(message).expect("it is serializable");
            if socket.send(&garbled(bytes, dice), &[], Some(PATIENCE)).is_err() {
                break;
            }
            count("messages_garbled");
        }
        let mut answer = vec![0; 1 << 16];
        while socket.recv(&mut answer, 8, Some(Duration::from_millis(dice.below(30)))).is_ok() {}
    }
}
