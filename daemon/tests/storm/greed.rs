//! Attacks of users who take all they may have: the worker's time, shared memory, records of tensors, sessions,
//! messages and lines of the log. They leave nothing to the user's other clients, so they need users of their own.
//!
//! As in `attacks`, the clients print `count NAME` and `breach WHAT`.

use crate::attacks::{Attack, PATIENCE, breach, connect, count, push};
use crate::streams::{Dice, encoded};
use crate::support::Client;
use gt_ops::wire::Command;
use gt_ops::{Attrs, Inputs, Instruction, Op, Operand, Shape};
use gt_protocol::{ClientMessage, Hello, QuotaChange, Role, Setting};
use gt_shm::{SessionState, Slot, Socket};
use nix::unistd::geteuid;
use std::path::Path;
use std::time::Duration;

pub const ATTACKS: [(&str, Attack); 9] = [
    ("computes-for-ever", computes_for_ever),
    ("fills-arenas", fills_arenas),
    ("makes-tensor-records", makes_tensor_records),
    ("opens-and-closes-sessions", opens_and_closes_sessions),
    ("keeps-sessions", keeps_sessions),
    ("floods-control", floods_control),
    ("reads-no-control", reads_no_control),
    ("floods-the-log", floods_the_log),
    ("ends-others", ends_others),
];

/// The sides of a matrix of a single number: its sum takes some minutes, less than the longest step that is allowed.
const ENDLESS_SIDE: usize = 1_000_000;
/// The arena that a client asks for first; it halves what it asks for when it is refused.
const ARENA_BYTES: u64 = 1 << 30;
/// Tensors that are sent at once.
const RECORDS_AT_ONCE: usize = 256;
/// Messages that are sent at once.
const MESSAGES_AT_ONCE: usize = 16;

/// A sum of 10^12 elements, which goes on until the session is killed, interrupts it, or ends.
fn computes_for_ever(socket: &Path, dice: &mut Dice<'_>) {
    while let Some(mut client) = connect(socket) {
        let one = client.full(&[1, 1], 1.0);
        let shape = Shape::new(&[ENDLESS_SIDE, ENDLESS_SIDE]).expect("two axes");
        let wide = client.op(Op::Expand, &[Operand::Tensor(one)], Attrs::Shape(shape));
        let sum = client.op(Op::Sum, &[Operand::Tensor(wide)], Attrs::Axes { mask: 3, keepdim: false });
        let token = client.token();
        client.send(&Command::Sync { token });
        count("endless_steps");
        std::thread::sleep(Duration::from_millis(dice.below(300)));
        match dice.below(3) {
            0 => std::thread::sleep(Duration::from_secs(10)),
            1 => {
                let interrupt = ClientMessage::Interrupt { below: sum + 1 };
                let _ = gt_protocol::send_client_message(&client.socket, &interrupt, PATIENCE);
                if client.wait_completion().is_some() {
                    count("endless_steps_interrupted");
                }
            }
            // The session ends with its client's end of the socket.
            _ => drop(client),
        }
    }
}

/// Takes as much shared memory as it can get, writes to it, and keeps it.
fn fills_arenas(socket: &Path, _dice: &mut Dice<'_>) {
    let mut held = Vec::new();
    while let Some(client) = connect(socket) {
        let mut bytes = ARENA_BYTES;
        while bytes >= 4096 {
            match gt_protocol::ask_arena(&client.socket, bytes) {
                Ok(arena) => {
                    for page in (0..arena.bytes).step_by(4096) {
                        let _ = rustix::io::pwrite(&arena.fd, b"x", page);
                    }
                    held.push(arena);
                }
                Err(gt_protocol::ProtocolError::Refused(_)) => bytes /= 2,
                Err(_) => break,
            }
        }
        count("arenas_filled");
        std::thread::sleep(PATIENCE);
    }
    std::thread::sleep(Duration::from_secs(10));
}

/// Makes views of one number, which take no memory of a worker, until no more are allowed, and keeps them.
fn makes_tensor_records(socket: &Path, dice: &mut Dice<'_>) {
    let Some(mut client) = connect(socket) else { return };
    let one = client.full(&[1], 1.0);
    let most = dice.below(1 << 21) as usize;
    let mut made = 0;
    while made < most {
        let slots: Vec<Slot> = (0..RECORDS_AT_ONCE)
            .flat_map(|_| {
                let shape = Shape::new(&[1, 1]).expect("two axes");
                let (op, out, inputs) = (Op::Reshape, client.id(), Inputs::from_slice(&[Operand::Tensor(one)]));
                let view = Instruction {
                    op,
                    out,
                    inputs,
                    last_use: 0,
                    attrs: Attrs::Shape(shape),
                    tf32: false,
                    replaces: None,
                };
                encoded(&[Command::Op(view)]).remove(0)
            })
            .collect();
        if !push(&mut client, &slots) {
            return;
        }
        made += RECORDS_AT_ONCE;
    }
    count("tensor_records_made");
    client.sync();
    std::thread::sleep(PATIENCE);
}

fn opens_and_closes_sessions(socket: &Path, dice: &mut Dice<'_>) {
    loop {
        match connect(socket) {
            Some(mut client) => {
                if dice.percent(50) {
                    client.full(&[1], 1.0);
                }
                count("sessions_opened");
            }
            None => count("sessions_refused"),
        }
    }
}

/// Opens sessions until no more are allowed, and keeps them.
fn keeps_sessions(socket: &Path, _dice: &mut Dice<'_>) {
    let mut sessions: Vec<Client> = Vec::new();
    loop {
        match connect(socket) {
            Some(client) => sessions.push(client),
            None => {
                count("session_limits_reached");
                std::thread::sleep(PATIENCE);
            }
        }
    }
}

fn control(socket: &Path) -> Option<Socket> {
    gt_protocol::connect(socket, &Hello::new(Role::Control, None)).ok().map(|connection| connection.socket)
}

/// Questions whose answers are long.
fn questions() -> [ClientMessage; 4] {
    let name = ClientMessage::Name { name: Some("control".into()) };
    [ClientMessage::Status { after: 0 }, ClientMessage::Limits { from: 0 }, ClientMessage::Notice, name]
}

/// Asks by several connections as fast as it can, and reads the answers.
fn floods_control(socket: &Path, dice: &mut Dice<'_>) {
    let controls: Vec<Socket> = (0..1 + dice.below(16)).map_while(|_| control(socket)).collect();
    let mut answer = vec![0; gt_protocol::limits::MESSAGE_BYTES_MAX];
    while !controls.is_empty() {
        for control in &controls {
            for _ in 0..MESSAGES_AT_ONCE {
                let question = &questions()[dice.index(4)];
                if gt_protocol::send_client_message(control, question, Duration::ZERO).is_err() {
                    break;
                }
                count("control_messages");
            }
            while control.recv(&mut answer, 8, Some(Duration::ZERO)).is_ok() {}
        }
        if controls.iter().all(Socket::is_hung_up) {
            return;
        }
    }
}

/// Asks and reads no answer.
fn reads_no_control(socket: &Path, dice: &mut Dice<'_>) {
    while let Some(control) = control(socket) {
        while gt_protocol::send_client_message(&control, &questions()[dice.index(2)], PATIENCE).is_ok() {}
        count("controls_not_read");
    }
}

/// Breaks the rules in session after session, each of which is a line of the log.
fn floods_the_log(socket: &Path, dice: &mut Dice<'_>) {
    loop {
        let Some(mut client) = connect(socket) else { continue };
        // No command has this code.
        push(&mut client, &[[u64::MAX; 8]]);
        count("log_lines_caused");
        if dice.percent(50) {
            while client.port.state() != SessionState::Closed && !client.socket.is_hung_up() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Asks for the end of others' sessions, for other limits, and for the daemon's end, all of which are refused.
fn ends_others(socket: &Path, _dice: &mut Dice<'_>) {
    let own = geteuid().as_raw();
    while let Some(control) = control(socket) {
        let Ok(status) = gt_protocol::ask_status(&control) else { continue };
        for session in status.sessions.iter().filter(|session| session.uid != own) {
            match gt_protocol::ask_kill(&control, session.id) {
                Ok(_) => breach(&format!("user {own} ended session {} of user {}", session.id, session.uid)),
                Err(_) => count("ends_refused"),
            }
        }
        let heavier = QuotaChange { weight: Some(Setting::To(100.0)), ..QuotaChange::default() };
        if gt_protocol::ask_set_limits(&control, Some(own), heavier).is_ok() {
            breach("a user raised the own weight");
        }
        if gt_protocol::ask_drain(&control, true, 0, None).is_ok() || gt_protocol::ask_reload(&control).is_ok() {
            breach("a user drained the daemon or had it read its configuration");
        }
    }
}
