//! Interrupts: what a session has issued is cancelled, wherever it is, and what it issues then is done.

use crate::support::{Client, Gtd, eventually, f32s, range};
use gt_bridge::client_end::TcpSession;
use gt_bridge::token::{TOKEN_ENV, Token};
use gt_ops::failure::Fault;
use gt_ops::wire::Command;
use gt_ops::{Attrs, Inputs, Instruction, Op, Operand, Shape, TensorId};
use gt_protocol::address::{TcpAddress, TcpSecurity};
use gt_protocol::limits::SQ_SLOTS;
use gt_protocol::{ClientMessage, Hello, Role};
use gt_shm::ArenaBlock;
use std::net::TcpListener;
use std::time::Duration;

/// A daemon whose worker is busy for hours unless a session is interrupted.
fn daemon(arguments: &[&str], environment: &[(&str, &str)]) -> Gtd {
    let folder = crate::support::Folder::new();
    std::fs::write(folder.0.join("gtd.yaml"), "limits: {max_step: 0}\n").unwrap();
    let options = [&["--config", "gtd.yaml"], arguments].concat();
    Gtd::start_in(folder, &options, environment)
}

/// Begins a sum that takes hours.
fn endless(client: &mut Client) -> TensorId {
    let one = client.full(&[1, 1], 1.0);
    let shape = Attrs::Shape(Shape::new(&[1 << 24, 1 << 24]).unwrap());
    let all = client.op(Op::Expand, &[Operand::Tensor(one)], shape);
    client.op(Op::Sum, &[Operand::Tensor(all)], Attrs::Axes { mask: 0b11, keepdim: false })
}

/// Sends the fetch of a tensor of one element, and does not wait for it.
fn begin_fetch(client: &mut Client, id: TensorId) -> (u64, ArenaBlock) {
    let (block, token) = (client.block(4), client.token());
    client.send(&Command::Fetch { token, id, offset_bytes: 0, to: range(&block, 4) });
    (token, block)
}

/// Adds `by` to `to`, in place.
fn add_in_place(client: &mut Client, to: TensorId, by: TensorId) -> TensorId {
    let (out, inputs) = (client.id(), Inputs::from_slice(&[to, by].map(Operand::Tensor)));
    let (op, attrs) = (Op::Add, Attrs::None);
    client.send(&Command::Op(Instruction { op, out, inputs, last_use: 1, attrs, tf32: false, replaces: Some(0) }));
    out
}

fn interrupt(client: &Client) {
    let message = ClientMessage::Interrupt { below: client.next_id + 1 };
    gt_protocol::send_client_message(&client.socket, &message, Duration::ZERO).unwrap();
}

fn runs_a_sum(gtd: &Gtd) -> bool {
    gtd.status().workers[0].running.as_ref().is_some_and(|running| running.step == "sum")
}

fn is_interrupted(result: Result<(), gt_ops::failure::Failure>) -> bool {
    result.is_err_and(|failure| failure.fault == Fault::Interrupted)
}

#[test]
fn an_interrupt_by_tcp_passes_by_the_stream() {
    let (port, text) = (TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(), "0123456789abcdef");
    let gtd = daemon(&["--listen", &port.to_string()], &[(TOKEN_ENV, text)]);
    let address = TcpAddress { host: "127.0.0.1".into(), port, security: TcpSecurity::ThisMachine };
    let (token, hello) = (Token::new(text, "").unwrap(), Hello::new(Role::Client, None));
    let TcpSession { connection, interrupter } = gt_bridge::client_end::connect(&address, &token, hello).unwrap();
    let mut client = Client::of(connection);
    let before = client.full(&[1], 3.0);
    assert_eq!(client.fetch_f32(before, 1).unwrap(), [3.0]);
    let long = endless(&mut client);
    eventually("the worker computes", || runs_a_sum(&gtd));
    // More than the daemon's ring takes: the rest is in the connection and in the client's ring.
    let mut last = before;
    for _ in 0..2 * SQ_SLOTS {
        let next = client.binary(Op::Add, last, before);
        if last != before {
            client.free(&[last]);
        }
        last = next;
    }
    assert!(runs_a_sum(&gtd));
    interrupter.unwrap().interrupt(client.next_id + 1);
    let after = client.binary(Op::Add, before, before);
    let (lost, _lost) = begin_fetch(&mut client, last);
    let (sum, _sum) = begin_fetch(&mut client, long);
    assert!(is_interrupted(client.completion(lost)));
    assert!(is_interrupted(client.completion(sum)));
    assert_eq!(client.fetch_f32(after, 1).unwrap(), [6.0]);
    client.free(&[last, long]);
    assert_eq!(client.fetch_f32(before, 1).unwrap(), [3.0]);
}

#[test]
fn a_key_of_no_session_interrupts_nothing() {
    use gt_bridge::handshake::{ConnectionPurpose, HandshakeRequest};
    use std::io::{Read, Write};
    let (port, text) = (TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(), "0123456789abcdef");
    let gtd = daemon(&["--listen", &port.to_string()], &[(TOKEN_ENV, text)]);
    let mut client = gtd.client();
    endless(&mut client);
    eventually("the worker computes", || runs_a_sum(&gtd));
    // Neither the token nor a guess is a key.
    for token in [text.to_owned(), "0".repeat(64)] {
        let request = HandshakeRequest {
            protocol_version: 1,
            protocol_version_max: None,
            token,
            purpose: ConnectionPurpose::Interrupt { below: u64::MAX },
            pid: 1,
            hello: Hello::new(Role::Client, None),
        };
        let mut out = gt_bridge::frame::MAGIC.to_vec();
        gt_bridge::frame::push_message(&mut out, &serde_json::to_vec(&request).unwrap());
        let mut tcp = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        tcp.write_all(&out).unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("there is no session with this key"));
    }
    assert!(runs_a_sum(&gtd));
}

#[test]
fn an_interrupt_drops_what_waits_for_a_full_worker() {
    let gtd = daemon(&[], &[]);
    let (mut other, mut client) = (gtd.client(), gtd.client());
    let uploaded = client.upload(f32s(&[1]), &2.0f32.to_le_bytes());
    let written = client.full(&[1], 7.0);
    assert_eq!(client.fetch_f32(written, 1).unwrap(), [7.0]);
    endless(&mut other);
    eventually("the worker computes", || runs_a_sum(&gtd));
    // The worker is overdue, and does not begin a second heavy step beside the first. So what follows that is held.
    let heavy = endless(&mut client);
    let operand = client.full(&[1], 5.0);
    let mut sums = vec![operand];
    let mut written = add_in_place(&mut client, written, operand);
    for _ in 0..1500 {
        sums.push(client.binary(Op::Add, *sums.last().unwrap(), uploaded));
        if sums.len() % 100 == 0 {
            written = add_in_place(&mut client, written, *sums.last().unwrap());
        }
    }
    let fetches: Vec<_> = sums[1400..].iter().map(|sum| begin_fetch(&mut client, *sum)).collect();
    let session = client.session();
    let queued = || gtd.status().sessions.iter().find(|status| status.id == session).map_or(0, |status| status.queued);
    let mut last = u64::MAX;
    eventually("the worker takes no more", || std::mem::replace(&mut last, queued()) == last);
    interrupt(&client);
    // The worker still computes for the other session, and has not seen these.
    for (token, _block) in &fetches {
        assert!(is_interrupted(client.completion(*token)));
    }
    assert!(runs_a_sum(&gtd));
    // An instruction after the interrupt waits its turn, and finds the tensors from before.
    let after = client.binary(Op::Add, uploaded, uploaded);
    let written = add_in_place(&mut client, written, uploaded);
    client.free(&sums);
    client.free(&[heavy - 2, heavy - 1, heavy]);
    let (token, block) = begin_fetch(&mut client, after);
    interrupt(&other);
    client.completion(token).unwrap();
    let mut bytes = [0; 4];
    block.read(&mut bytes);
    assert_eq!(f32::from_le_bytes(bytes), 4.0);
    // Interrupted in-place operations have changed nothing, wherever they were.
    assert_eq!(client.fetch_f32(written, 1).unwrap(), [9.0]);
    let tensors = || gtd.status().sessions.iter().find(|status| status.id == session).map(|status| status.tensors);
    eventually("the dropped tensors are gone", || tensors() == Some(3));
}
