//! Clients that break the rules: each loses its session, and other sessions go on.

use crate::support::{Client, Gtd, eventually, f32s};
use gt_bridge::token::{TOKEN_ENV, Token};
use gt_ops::instruction::{LossReduction, LossSpec, SliceSpec};
use gt_ops::placement::{Placement, RequestedLayout, RequestedPlacement, Workers};
use gt_ops::row::{AttrKind, ROWS};
use gt_ops::wire::{ArenaRange, Command, Reshard, Slot};
use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Scalar, Shape, WindowSpec};
use gt_protocol::address::{TcpAddress, TcpSecurity};
use gt_protocol::limits::{CQ_SLOTS, SQ_SLOTS};
use gt_protocol::{ClientMessage, DaemonMessage, Hello, Role};
use gt_shm::port::segment_c_bytes;
use gt_shm::{Access, Segment, Socket};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// Runs `offence` in a session of its own, which must be closed, while another session goes on.
fn offend(what: &str, offence: impl FnOnce(&mut Client)) {
    offend_with(&[], what, offence);
}

/// As [`offend`], with a daemon that is started with `arguments`.
fn offend_with(arguments: &[&str], what: &str, offence: impl FnOnce(&mut Client)) {
    let gtd = Gtd::start(arguments);
    let mut witness = gtd.client();
    let kept = witness.full(&[2], 3.0);
    let mut offender = gtd.client();
    let session = offender.session();
    offence(&mut offender);
    offender.wait_closed();
    eventually("the session is gone", || gtd.status().sessions.iter().all(|s| s.id != session));
    let sum = witness.binary(Op::Add, kept, kept);
    assert_eq!(witness.fetch_f32(sum, 2).unwrap(), [6.0; 2]);
    eventually("the reason is logged", || gtd.stderr().contains(what));
}

fn instruction(op: Op, out: u64, operands: &[Operand], attrs: Attrs) -> Command {
    Command::Op(Instruction {
        op,
        out,
        inputs: Inputs::from_slice(operands),
        last_use: 0,
        attrs,
        tf32: false,
        replaces: None,
    })
}

#[test]
fn an_id_may_not_be_used_twice() {
    offend("ids must grow", |client| {
        let a = client.full(&[1], 1.0);
        client.next_id = 0;
        client.binary(Op::Add, a, a);
    });
}

#[test]
fn an_id_may_not_be_zero() {
    offend("ids must grow", |client| client.send(&Command::Allocate { out: 0, meta: f32s(&[1]) }));
}

#[test]
fn an_id_stays_below_those_of_the_daemon() {
    offend("below 2^63", |client| client.send(&Command::Allocate { out: 1 << 63, meta: f32s(&[1]) }));
}

#[test]
fn a_tensor_that_does_not_exist_cannot_be_used() {
    offend("named tensor 7, which does not exist", |client| {
        client.binary(Op::Add, 7, 7);
    });
}

#[test]
fn a_tensor_is_freed_once() {
    offend("named tensor 1, which does not exist", |client| {
        let a = client.full(&[1], 1.0);
        client.free(&[a]);
        client.free(&[a]);
    });
}

#[test]
fn a_tensor_is_gone_after_its_last_use() {
    offend("named tensor 1, which does not exist", |client| {
        let a = client.full(&[1], 1.0);
        let out = client.id();
        let inputs = Inputs::from_slice(&[Operand::Tensor(a)]);
        client.send(&Command::Op(Instruction {
            op: Op::Neg,
            out,
            inputs,
            last_use: 1,
            attrs: Attrs::None,
            tf32: false,
            replaces: None,
        }));
        client.binary(Op::Add, a, a);
    });
}

#[test]
fn shapes_are_checked_again() {
    offend("should have refused", |client| {
        let (a, b) = (client.full(&[2], 1.0), client.full(&[3], 1.0));
        client.binary(Op::Add, a, b);
    });
}

#[test]
fn a_tensor_is_not_used_before_it_is_written() {
    for op in [Op::Add, Op::Neg] {
        offend("before all its bytes were written", |client| {
            let out = client.id();
            client.send(&Command::Allocate { out, meta: f32s(&[4]) });
            let operands = [Operand::Tensor(out), Operand::Tensor(out)];
            let next = client.id();
            client.send(&instruction(op, next, &operands[..op.row().operands as usize], Attrs::None));
        });
    }
    offend("before all its bytes were written", |client| {
        let out = client.id();
        client.send(&Command::Allocate { out, meta: f32s(&[4]) });
        client.fetch_unanswered(out, 16);
    });
}

#[test]
fn an_upload_comes_in_order_and_once() {
    for (offset_bytes, len) in [(4, 4), (0, 20), (8, 8), (u64::MAX - 3, 4)] {
        offend("it wrote", |client| client.write_unanswered(&[4], offset_bytes, len));
    }
    offend("it wrote", |client| {
        let id = client.upload(f32s(&[1]), &[0; 4]);
        let from = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: 4 };
        client.send(&Command::Write { token: 9, id, offset_bytes: 0, from });
    });
    offend("parts of elements", |client| client.write_unanswered(&[4], 0, 3));
}

#[test]
fn a_fetch_stays_inside_its_tensor() {
    for (offset_bytes, len_bytes) in [(0, 8), (4, 4), (u64::MAX, 4), (4, u64::MAX)] {
        offend("it ", |client| {
            let id = client.full(&[1], 1.0);
            let _ = client.block(8);
            let to = ArenaRange { segment: 0, offset_bytes: 0, len_bytes };
            client.send(&Command::Fetch { token: 1, id, offset_bytes, to });
        });
    }
}

#[test]
fn only_granted_bytes_of_arenas_can_be_named() {
    for (segment, offset_bytes) in [(1, 0), (u64::MAX, 0), (1 << 32, 0), (0, 1 << 40), (0, u64::MAX - 3), (0, u64::MAX)]
    {
        offend("of arena", |client| {
            let id = client.full(&[1], 1.0);
            let _ = client.block(8);
            let to = ArenaRange { segment, offset_bytes, len_bytes: 4 };
            client.send(&Command::Fetch { token: 1, id, offset_bytes: 0, to });
        });
    }
}

#[test]
fn completions_must_be_read() {
    offend("more completions than its ring holds", |client| {
        for token in 0..=CQ_SLOTS as u64 {
            client.send(&Command::Sync { token });
        }
    });
}

#[test]
fn where_tensors_lie_is_asked_by_signals_only() {
    let (from, to) = (Placement::on(0), Placement::on(1));
    for workers in ["cpu:1", "cpu:2"] {
        offend_with(&["--workers", workers], "in the words of a worker's stream", |client| {
            let input = client.full(&[2], 1.0);
            let meta = f32s(&[2]);
            client.send(&Command::Reshard(Reshard { out: 99, input, meta, from, to }));
        });
    }
}

#[test]
fn a_completion_is_asked_for_once_at_a_time_where_several_workers_have_a_part_in_it() {
    offend_with(&["--workers", "cpu:2"], "again before it came", |client| {
        // The sort takes much longer than the daemon needs to read two commands.
        let numbers = client.id();
        let create = Attrs::Create { shape: Shape::new(&[1 << 18]).unwrap(), dtype: DType::F32 };
        let down = [Operand::Scalar(Scalar::Float(0.0)), Operand::Scalar(Scalar::Float(-1.0))];
        client.send(&instruction(Op::Arange, numbers, &down, create));
        let sorted = client.id();
        client.send(&instruction(Op::Argsort, sorted, &[Operand::Tensor(numbers)], Attrs::Axis(0)));
        client.send(&Command::Sync { token: 5 });
        client.send(&Command::Sync { token: 5 });
    });
}

#[test]
fn signals_that_request_impossible_placements_change_nothing() {
    let gtd = Gtd::start(&["--workers", "cpu:2"]);
    let mut client = gtd.client();
    for (signal, workers, axis) in [(1, u128::MAX, i8::MAX), (2, 1 << 127, 0), (3, 2, i8::MIN), (4, 0, -1)] {
        let requested =
            RequestedPlacement { workers: Workers::from_bits(workers), layout: RequestedLayout::Sharded { axis } };
        client.send(&Command::DefineSignal { signal, requested, compile: None });
        client.send(&Command::Signal { signal });
        let three = client.full(&[3], 3.0);
        let six = client.binary(Op::Add, three, three);
        assert_eq!(client.fetch_f32(six, 3).unwrap(), [6.0; 3]);
    }
}

#[test]
fn slots_that_are_no_command_end_the_session() {
    for slot in [[0; 8], [9, 0, 0, 0, 0, 0, 0, 0], [0xffff, 1, 0, 0, 0, 0, 0, 0], [u64::MAX; 8]] {
        offend("slots that are no command", |client| client.send_slots(&[slot]));
    }
}

#[test]
fn a_cursor_that_cannot_be_ends_the_session() {
    let gtd = Gtd::start(&[]);
    let mut witness = gtd.client();
    let socket = Socket::connect(&gtd.folder.socket()).unwrap();
    let hello = ClientMessage::Hello(Hello::new(Role::Client, None));
    gt_protocol::send_client_message(&socket, &hello, Duration::from_secs(5)).unwrap();
    let (answer, mut fds) = gt_protocol::recv_daemon_message(&socket, Duration::from_secs(5)).unwrap();
    assert!(matches!(answer, DaemonMessage::Welcome(_)));
    let doorbell = gt_shm::Doorbell::from(fds.remove(2));
    let c = Segment::map_peer(fds.remove(0), segment_c_bytes(SQ_SLOTS), Access::ReadWrite).unwrap();
    // SAFETY: the mapping `c` begins with the ring's tail, which both sides access atomically, and outlives `tail`.
    let tail = unsafe { &*c.as_ptr().cast::<std::sync::atomic::AtomicU32>() };
    tail.store(SQ_SLOTS + 1, std::sync::atomic::Ordering::Relaxed);
    doorbell.ring();
    eventually("the daemon hangs up", || socket.is_hung_up());
    assert!(gtd.stderr().contains("ring is corrupt"));
    // A bell that rings after its session has ended must not wake the dispatcher.
    for _ in 0..1000 {
        doorbell.ring();
    }
    let one = witness.full(&[1], 1.0);
    assert_eq!(witness.fetch_f32(one, 1).unwrap(), [1.0]);
}

#[test]
fn an_arena_has_a_limit_that_is_refused_and_not_fatal() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    for bytes in [u64::MAX, u64::MAX - 4095, gt_protocol::limits::ARENA_BYTES_PER_UID_MAX + 1] {
        let Err(gt_protocol::ProtocolError::Refused(refused)) = gt_protocol::ask_arena(&client.socket, bytes) else {
            panic!("{bytes} bytes were not refused");
        };
        assert_eq!(refused.code, gt_protocol::RefusalCode::ArenaLimit);
        // The machine's own limit may be lower.
        assert!((1..=gt_protocol::limits::ARENA_BYTES_PER_UID_MAX).contains(&refused.limit));
    }
    let one = client.full(&[1], 1.0);
    assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
}

#[test]
fn nonsense_on_the_control_socket_ends_the_connection() {
    let gtd = Gtd::start(&[]);
    let long = vec![b'x'; 60_000];
    let messages: [&[u8]; 6] = [b"x", b"{}", b"{\"message\":\"bye\"}", b"[[[[[[", &long, b"{\"protocol_version\":-1}"];
    for message in messages {
        let socket = Socket::connect(&gtd.folder.socket()).unwrap();
        socket.send(message, &[], None).unwrap();
        eventually("the daemon hangs up before a hello", || socket.is_hung_up());
        let client = gtd.client();
        if message != b"{\"message\":\"bye\"}" {
            client.socket.send(message, &[], None).unwrap();
            client.wait_closed();
        }
    }
    let client = gtd.client();
    let gift = std::fs::File::open("/dev/null").unwrap();
    client.socket.send(b"{\"message\":\"status\"}", &[gift.as_fd(); 3], None).unwrap();
    client.wait_closed();
    gtd.client();
}

#[test]
fn silent_connections_do_not_keep_clients_out() {
    let gtd = Gtd::start(&[]);
    let mut crowd: Vec<_> = (0..150).map(|_| Socket::connect(&gtd.folder.socket()).unwrap()).collect();
    let mut client = gtd.client();
    let one = client.full(&[1], 1.0);
    assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
    eventually("all of them are sent away", || {
        crowd.retain(|socket| !socket.is_hung_up());
        crowd.is_empty()
    });
}

#[test]
fn silent_tcp_connections_do_not_keep_clients_out() {
    let (port, text) = (TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(), "0123456789abcdef");
    let gtd = Gtd::start_with(&["--listen", &port.to_string()], &[(TOKEN_ENV, text)]);
    let mut crowd: Vec<_> = (0..400).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let hello = Hello::new(Role::Client, None);
    let address = TcpAddress { host: "127.0.0.1".into(), port, security: TcpSecurity::ThisMachine };
    let session = gt_bridge::client_end::connect(&address, &Token::new(text, "").unwrap(), hello).unwrap();
    let mut client = Client::of(session.connection);
    let one = client.full(&[1], 1.0);
    assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
    crowd.iter().for_each(|tcp| tcp.set_nonblocking(true).unwrap());
    eventually("all of them are sent away", || {
        crowd.retain_mut(|tcp| tcp.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        crowd.is_empty()
    });
    drop(client);
    eventually("all sessions have ended", || gtd.status().sessions.is_empty());
}

#[test]
fn enormous_shapes_are_only_poisoned() {
    let gtd = Gtd::start(&["--memory", "16M"]);
    let mut client = gtd.client();
    let one = client.full(&[1], 1.0);
    for _ in 0..17_000 {
        client.op(Op::Expand, &[Operand::Tensor(one)], Attrs::Shape(Shape::new(&[1 << 48]).unwrap()));
    }
    let huge = client.full(&[1 << 47, 2], 1.0);
    let product = client.binary(Op::Mul, huge, huge);
    assert!(client.fetch(product, 4).is_err());
    let out = client.id();
    client.send(&Command::Allocate { out, meta: Meta::new(Shape::new(&[1 << 48]).unwrap(), DType::F64) });
    client.free(&[out]);
    assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
    assert_eq!(gtd.status().sessions[0].tensor_bytes, u64::MAX);
}

/// Random slots, some of which are nearly valid commands.
fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let id = || prop_oneof![4 => 0u64..40, 1 => any::<u64>()];
    let word0 = prop_oneof![
        3 => (1u64..6).prop_map(|control| control),
        4 => (16u64..120, 0u64..5, 0u64..3).prop_map(|(op, count, slots)| op | count << 40 | slots << 16),
        1 => any::<u64>(),
        1 => (16u64..120, any::<u64>()).prop_map(|(op, rest)| op | rest << 16),
    ];
    let slot = (word0, proptest::array::uniform7(id()))
        .prop_map(|(word0, [a, b, c, d, e, f, g])| [word0, a, b, c, d, e, f, g]);
    prop::collection::vec(slot, 1..60)
}

fn attrs(kind: AttrKind) -> BoxedStrategy<Attrs> {
    let shape = || prop::collection::vec(0usize..4, 0..=3).prop_map(|dims| Shape::new(&dims).unwrap());
    let dtype = || (0u8..10).prop_map(|code| DType::from_code(code).unwrap());
    match kind {
        AttrKind::None => Just(Attrs::None).boxed(),
        AttrKind::DType => dtype().prop_map(Attrs::DType).boxed(),
        AttrKind::Shape => shape().prop_map(Attrs::Shape).boxed(),
        AttrKind::Permutation => prop_oneof![Just([0, 1, 2, 3, 4, 5, 6, 7]), Just([1, 0, 2, 3, 4, 5, 6, 7])]
            .prop_map(Attrs::Permutation)
            .boxed(),
        AttrKind::Axis => (0u8..3).prop_map(Attrs::Axis).boxed(),
        AttrKind::Axes => (0u8..4, any::<bool>()).prop_map(|(mask, keepdim)| Attrs::Axes { mask, keepdim }).boxed(),
        AttrKind::Slice => (prop::array::uniform8(-1i64..3), prop::array::uniform8(-2i64..3), shape())
            .prop_map(|(start, step, sizes)| Attrs::Slice(Box::new(SliceSpec { start, step, sizes })))
            .boxed(),
        AttrKind::Window => {
            let sizes = |least: usize, most: usize| prop::array::uniform3(least..=most);
            let windows = (sizes(0, 3), sizes(0, 2), sizes(0, 2), sizes(0, 2), sizes(0, 2), sizes(0, 2));
            (0u8..5, 0usize..3, windows)
                .prop_map(|(rank, groups, (input, kernel, stride, dilation, low, high))| {
                    // Valid instructions have neutral sizes in the dimensions that the rank does not use.
                    let fit = |sizes: [usize; 3], neutral| {
                        std::array::from_fn(|i| if i + (rank as usize) < 3 { neutral } else { sizes[i] })
                    };
                    Attrs::Window(Box::new(WindowSpec {
                        rank,
                        groups,
                        input: fit(input, 1),
                        kernel: fit(kernel, 1),
                        stride: fit(stride, 1),
                        dilation: fit(dilation, 1),
                        low: fit(low, 0),
                        high: fit(high, 0),
                    }))
                })
                .boxed()
        }
        AttrKind::Create => (shape(), dtype()).prop_map(|(shape, dtype)| Attrs::Create { shape, dtype }).boxed(),
        AttrKind::Random => (shape(), dtype(), any::<(u64, u64)>())
            .prop_map(|(shape, dtype, (seed, stream))| Attrs::Random { shape, dtype, seed, stream, first: seed })
            .boxed(),
        AttrKind::Loss => (0u8..3, -2i64..3, any::<f64>())
            .prop_map(|(code, ignore_index, smoothing)| {
                let reduction = LossReduction::from_code(code).unwrap();
                Attrs::Loss(LossSpec { reduction, ignore_index, smoothing })
            })
            .boxed(),
        AttrKind::Attention => {
            any::<(bool, f64)>().prop_map(|(causal, scale)| Attrs::Attention { causal, scale }).boxed()
        }
    }
}

/// Well-formed instructions, many of them valid, on 64 tensors that exist.
fn instructions() -> impl Strategy<Value = Instruction> {
    (0..ROWS.len()).prop_flat_map(|row| {
        let row = &ROWS[row];
        let operand = prop_oneof![
            8 => (1u64..=TENSORS).prop_map(Operand::Tensor),
            1 => any::<i64>().prop_map(|n| Operand::Scalar(Scalar::Int(n))),
            1 => any::<f64>().prop_map(|x| Operand::Scalar(Scalar::Float(x))),
            1 => any::<bool>().prop_map(|b| Operand::Scalar(Scalar::Bool(b))),
        ];
        let operands = prop::collection::vec(operand, row.operands as usize);
        (attrs(row.attrs), operands).prop_map(move |(attrs, mut operands)| {
            // The wire has numbers among the first four operands alone.
            operands.iter_mut().skip(4).filter(|operand| operand.tensor().is_none()).for_each(|operand| {
                *operand = Operand::Tensor(1);
            });
            Instruction {
                op: row.op,
                out: 0,
                inputs: Inputs::from_slice(&operands),
                last_use: 0,
                attrs,
                tf32: row.multiplies(),
                replaces: None,
            }
        })
    })
}

const TENSORS: u64 = 64;

/// Makes [`TENSORS`] tensors of all dtypes in several shapes.
fn zoo(client: &mut Client) {
    for n in 0..TENSORS {
        let dtype = DType::from_code((n % 10) as u8).unwrap();
        let shape = Shape::new([&[][..], &[3], &[2, 3], &[3, 3], &[0, 3], &[1, 2, 3], &[2, 1, 3]][n as usize % 7]);
        let attrs = Attrs::Create { shape: shape.unwrap(), dtype };
        client.op(Op::Full, &[Operand::Scalar(Scalar::Int(n as i64 % 3))], attrs);
    }
}

#[test]
fn well_formed_instructions_compute_or_fail_but_break_nothing() {
    let gtd = Gtd::start(&["--memory", "64M"]);
    let mut witness = gtd.client();
    let kept = witness.full(&[2], 3.0);
    let mut runner = TestRunner::new(Config::default());
    let instructions = instructions();
    let (mut accepted, mut refused) = (0, 0);
    while accepted < CASES {
        let mut client = gtd.client();
        zoo(&mut client);
        // The session ends with the first instruction that the daemon refuses.
        loop {
            let mut next = instructions.new_tree(&mut runner).unwrap().current();
            next.out = client.id();
            let encoded = client.encoder.instruction(&next).to_vec();
            if client.port.push_publish(&encoded).is_err() {
                break;
            }
            let token = client.token();
            if client.port.push_publish(&[[5, token, 0, 0, 0, 0, 0, 0]]).is_err() || client.wait_completion().is_none()
            {
                refused += 1;
                break;
            }
            accepted += 1;
        }
    }
    assert!(refused > 0);
    let sum = witness.binary(Op::Add, kept, kept);
    assert_eq!(witness.fetch_f32(sum, 2).unwrap(), [6.0; 2]);
    assert!(!gtd.stderr().contains("ERROR"), "{}", gtd.stderr());
}

/// The number of batches of random slots, and of random instructions that the daemon accepts.
const CASES: usize = 1000;

#[test]
fn random_slots_hurt_no_other_session() {
    let mut gtd = Gtd::start(&["--memory", "64M"]);
    let mut witness = gtd.client();
    let kept = witness.full(&[2], 3.0);
    let mut runner = TestRunner::new(Config::default());
    let socket = gtd.folder.socket();
    let mut client = Client::connect(&socket);
    for _ in 0..CASES {
        let slots = slots().new_tree(&mut runner).unwrap().current();
        if client.port.state() != gt_shm::SessionState::Running || client.next_id > 30 {
            client = Client::connect(&socket);
            let _ = client.block(64);
        }
        // These tensors have ids that the slots may name.
        client.next_id = client.next_id.max(1);
        for dims in [&[2, 2][..], &[1], &[0, 3]] {
            if client.port.state() == gt_shm::SessionState::Running {
                let id = client.id();
                let attrs = Attrs::Create { shape: Shape::new(dims).unwrap(), dtype: DType::F32 };
                let full = instruction(Op::Full, id, &[Operand::Scalar(Scalar::Int(1))], attrs);
                let encoded = client.encoder.encode(&full).to_vec();
                let _ = client.port.push_publish(&encoded);
            }
        }
        let _ = client.port.push_publish(&slots);
        while client.port.pop_completion().is_some() {}
        let sum = witness.binary(Op::Add, kept, kept);
        assert_eq!(witness.fetch_f32(sum, 2).unwrap(), [6.0; 2], "after {slots:?}");
        witness.free(&[sum]);
    }
    drop(client);
    eventually("only the witness is left", || gtd.status().sessions.len() == 1);
    assert!(gtd.child.try_wait().unwrap().is_none());
    assert!(!gtd.stderr().contains("panic"), "{}", gtd.stderr());
}

impl Client {
    fn fetch_unanswered(&mut self, id: u64, bytes: usize) {
        let block = self.block(bytes);
        let token = self.token();
        self.send(&Command::Fetch { token, id, offset_bytes: 0, to: crate::support::range(&block, bytes) });
    }

    fn write_unanswered(&mut self, dims: &[usize], offset_bytes: u64, len: usize) {
        let id = self.id();
        self.send(&Command::Allocate { out: id, meta: f32s(dims) });
        let block = self.block(len);
        let token = self.token();
        self.send(&Command::Write { token, id, offset_bytes, from: crate::support::range(&block, len) });
    }
}
