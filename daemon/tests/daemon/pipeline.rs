//! A modifier rewrites a session's stream of steps, and the client's results stay the same.

use crate::support::{Client, Folder};
use gt_bridge::user_tokens::UserTokens;
use gt_cpu::{CpuBackend, CpuOptions};
use gt_ops::wire::Command;
use gt_ops::{Attrs, Inputs, Instruction, Op, Operand};
use gt_protocol::{Hello, Role, WorkerInfo, connect_over};
use gt_shm::Socket;
use gtd::dispatcher::{Dispatcher, DispatcherParts};
use gtd::hot_paths::CompilePolicy;
use gtd::modifiers::links::Links;
use gtd::modifiers::pipeline::{Pipeline, Pipelines};
use gtd::modifiers::stream_modifier::{ModifierStats, Output, StreamModifier};
use gtd::tape::Tape;
use gtd::token_desk::TokenDesk;
use gtd::worker::step::Step;
use gtd::worker::thread::ThreadLink;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A modifier that rewrites `a - b` to `a + (-b)`, with a tensor of its own in between.
struct Subtractions {
    changed: Arc<AtomicU64>,
    seen: u64,
}

impl StreamModifier for Subtractions {
    fn name(&self) -> &'static str {
        "subtractions"
    }

    fn process(&mut self, step: Step, out: &mut Output<'_>) {
        self.seen += 1;
        let (Command::Op(instruction), Some(meta)) = (&step.command, step.out) else { return out.push(step) };
        let [Operand::Tensor(a), Operand::Tensor(b)] = *instruction.inputs.as_slice() else { return out.push(step) };
        if instruction.op != Op::Sub {
            return out.push(step);
        }
        let (id, negated) = out.allocate(meta);
        let op = |op, out, operands: &[Operand]| {
            let inputs = Inputs::from_slice(operands);
            Command::Op(Instruction { op, out, inputs, last_use: 0, attrs: Attrs::None, tf32: false, replaces: None })
        };
        let negated = negated.id();
        out.push(Step { command: op(Op::Neg, negated, &[Operand::Tensor(b)]), ..step.clone() });
        let operands = [Operand::Tensor(a), Operand::Tensor(negated)];
        out.push(Step { command: op(Op::Add, instruction.out, &operands), ..step.clone() });
        out.push(Step { command: Command::Free { ids: [negated, 0, 0, 0, 0, 0, 0] }, out: None, ..step });
        out.release(id);
        self.changed.fetch_add(1, Relaxed);
    }

    fn stats(&self) -> ModifierStats {
        ModifierStats { seen: self.seen, changed: self.changed.load(Relaxed) }
    }
}

#[test]
fn a_modifier_changes_the_steps_and_not_the_values() {
    let folder = Folder::new();
    let changed = Arc::new(AtomicU64::new(0));
    let (ours, theirs) = Socket::pair().unwrap();
    let count = changed.clone();
    let socket = folder.socket();
    let daemon = std::thread::spawn(move || {
        let info = WorkerInfo {
            name: "cpu:0".into(),
            kind: "cpu".into(),
            threads: 1,
            memory_bytes_limit: 1 << 30,
            ..WorkerInfo::default()
        };
        let backend = CpuBackend::new(CpuOptions { threads: 1, memory_bytes_limit: 1 << 30, ..CpuOptions::default() });
        let link = ThreadLink::start(backend, 0, info, (10.0, 10.0), 1000, None).unwrap();
        let parts = DispatcherParts {
            tcp: None,
            nodes: None,
            listener: Some(Socket::listen(&socket).unwrap()),
            client: Some(theirs),
            signals: SignalFd::with_flags(&SigSet::empty(), SfdFlags::SFD_NONBLOCK).unwrap(),
            links: vec![Box::new(link)],
            pipelines: Pipelines::new(move |_, _| {
                let links = Links::new(1.0, Vec::new());
                Pipeline::new(vec![Box::new(Subtractions { changed: count.clone(), seen: 0 })], links)
            }),
            tape: Tape::new().unwrap(),
            log: None,
            quotas: gtd::quota::QuotaConfig::default(),
            arena_bytes_max: 1 << 30,
            reload: None,
            notifier: gtd::systemd::Notifier::silent(),
            ledger: None,
            tokens: TokenDesk::new(Arc::new(UserTokens::open(None))).unwrap(),
            compile: CompilePolicy::Repeated,
            records: None,
            web: None,
            metrics: None,
        };
        Dispatcher::new(parts).unwrap().run().unwrap();
    });
    let mut client = Client::of(connect_over(ours, &Hello::new(Role::Client, None)).unwrap());
    // Small instructions run on the dispatcher's thread, large ones on the worker's.
    for len in [1, 100_000] {
        let (five, two) = (client.full(&[len], 5.0), client.full(&[len], 2.0));
        let difference = client.binary(Op::Sub, five, two);
        let sum = client.binary(Op::Add, difference, two);
        assert_eq!(client.fetch_f32(difference, len).unwrap(), vec![3.0; len]);
        assert_eq!(client.fetch_f32(sum, len).unwrap(), vec![5.0; len]);
        client.free(&[difference, sum]);
    }
    assert_eq!(changed.load(Relaxed), 2);
    drop(client);
    daemon.join().unwrap();
}
