//! A daemon with many users: its answers to administrators, and its quotas.

use crate::support::{Client, Gtd, eventually, f32s, range};
use gt_ops::failure::{Fault, MemoryScope};
use gt_ops::wire::Command;
use gt_ops::{Op, TensorId};
use gt_protocol::{
    Connection, DaemonMessage, Hello, ProtocolError, Quota, QuotaChange, RefusalCode, Role, Setting, ask_drain,
    ask_kill, ask_limits, ask_session, ask_set_limits,
};
use std::time::Duration;

fn control(gtd: &Gtd) -> Connection {
    gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap()
}

fn me() -> u32 {
    nix::unistd::getuid().as_raw()
}

#[track_caller]
fn code<T>(result: Result<T, ProtocolError>) -> RefusalCode {
    match result {
        Err(ProtocolError::Refused(refused)) => refused.code,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn a_session_can_be_looked_at_and_ended() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let id = client.full(&[1000], 1.0);
    assert_eq!(client.fetch_f32(id, 1).unwrap(), [1.0]);
    let control = control(&gtd);
    let detail = ask_session(&control.socket, client.session()).unwrap();
    assert_eq!((detail.session.id, detail.session.uid, detail.user.uid), (client.session(), me(), me()));
    assert_eq!((detail.session.tensors, detail.user.sessions, detail.out_of_memory), (1, 1, 0));
    assert_eq!(detail.user.allowed, Quota::default());
    assert_eq!(detail.workers.len(), 1);
    assert_eq!(ask_kill(&control.socket, client.session()).unwrap().pid, std::process::id());
    client.wait_closed();
    match gt_protocol::recv_daemon_message(&client.socket, Duration::from_secs(5)).unwrap() {
        (DaemonMessage::Refused(refused), _) => assert_eq!(refused.code, RefusalCode::Killed),
        (other, _) => panic!("{other:?}"),
    }
    assert_eq!(code(ask_kill(&control.socket, client.session())), RefusalCode::NoSession);
    assert_eq!(code(ask_session(&control.socket, client.session())), RefusalCode::NoSession);
}

#[test]
fn limits_are_changed_one_by_one_and_changed_back() {
    let gtd = Gtd::start(&[]);
    let control = control(&gtd);
    let first = gtd.client();
    let weight = |weight| QuotaChange { weight: Some(weight), ..QuotaChange::default() };
    let sessions = QuotaChange { sessions: Some(Setting::To(1)), ..QuotaChange::default() };
    ask_set_limits(&control.socket, Some(me()), weight(Setting::To(2.5))).unwrap();
    let answer = ask_set_limits(&control.socket, Some(me()), sessions).unwrap();
    assert_eq!((answer.users[0].allowed.weight, answer.users[0].allowed.sessions), (2.5, 1));
    let second = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Client, None));
    assert_eq!(code(second), RefusalCode::TooManySessions);
    let limits = ask_limits(&control.socket).unwrap();
    assert_eq!(limits.default, Quota::default());
    assert_eq!((limits.users.len(), limits.users[0].uid, limits.users[0].own.weight), (1, me(), Some(2.5)));
    assert_eq!(gtd.status().sessions[0].weight, 2.5);
    let back = QuotaChange { sessions: Some(Setting::Default), ..weight(Setting::Default) };
    let answer = ask_set_limits(&control.socket, Some(me()), back).unwrap();
    assert_eq!(answer.users[0].allowed, Quota::default());
    assert_eq!(code(ask_set_limits(&control.socket, None, weight(Setting::To(0.0)))), RefusalCode::Malformed);
    drop((first, gtd.client()));
}

#[test]
fn a_draining_daemon_takes_no_more_sessions_and_ends_with_its_last() {
    let mut gtd = Gtd::start(&[]);
    let control = control(&gtd);
    let mut client = gtd.client();
    assert_eq!(ask_drain(&control.socket, true, 0, None).unwrap().0, 1);
    assert!(gtd.status().draining);
    let refused = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Client, None));
    assert_eq!(code(refused), RefusalCode::Draining);
    assert_eq!(ask_drain(&control.socket, false, 0, None).unwrap().0, 1);
    let another: Client = gtd.client();
    drop(another);
    eventually("the other session has gone", || gtd.status().sessions.len() == 1);
    ask_drain(&control.socket, true, 0, None).unwrap();
    let id = client.full(&[2], 3.0);
    assert_eq!(client.fetch_f32(id, 2).unwrap(), [3.0, 3.0]);
    drop(client);
    assert!(gtd.wait().success());
}

const MIB: usize = 1 << 20;

/// The limit that refuses a tensor of `bytes` bytes, and its scope; none if the tensor fits.
fn refused(client: &mut Client, bytes: usize) -> Option<(MemoryScope, u64)> {
    let id = client.full(&[bytes / 4], 1.0);
    let failure = client.fetch(id, 4).err()?;
    match failure.fault {
        Fault::OutOfMemory { requested, limit, scope, .. } => {
            assert!(requested >= bytes as u64);
            Some((scope, limit))
        }
        other => panic!("{other:?}"),
    }
}

fn set(gtd: &Gtd, change: QuotaChange) {
    ask_set_limits(&control(gtd).socket, Some(me()), change).unwrap();
}

#[test]
fn a_session_may_hold_so_much_and_others_do_not_notice() {
    let gtd = Gtd::start(&[]);
    let (mut one, mut two) = (gtd.client(), gtd.client());
    let own = QuotaChange { session_memory_bytes: Some(Setting::To(8 * MIB as u64)), ..QuotaChange::default() };
    set(&gtd, own);
    assert_eq!(refused(&mut one, 5 * MIB), None);
    assert_eq!(refused(&mut one, 5 * MIB), Some((MemoryScope::Session, 8 * MIB as u64)));
    assert_eq!(refused(&mut two, 5 * MIB), None);
    // Freed memory may be used again.
    let id = one.next_id - 1;
    one.free(&[id]);
    assert_eq!(refused(&mut one, 6 * MIB), None);
    let detail = ask_session(&control(&gtd).socket, one.session()).unwrap();
    assert_eq!(detail.out_of_memory, 1);
    assert_eq!(detail.session.memory_bytes_limit, 8 * MIB as u64);
    let held = detail.session.memory_bytes as usize;
    assert!((6 * MIB..8 * MIB).contains(&held), "{held}");
    assert_eq!(detail.workers[0].memory_bytes, detail.session.memory_bytes);
    assert_eq!(detail.user.sessions, 2);
    assert!(detail.user.memory_bytes as usize >= 11 * MIB);
    set(&gtd, QuotaChange { session_memory_bytes: Some(Setting::Default), ..QuotaChange::default() });
    assert_eq!(refused(&mut one, 20 * MIB), None);
}

#[test]
fn the_sessions_of_a_user_may_hold_so_much_together() {
    let gtd = Gtd::start(&[]);
    set(&gtd, QuotaChange { memory_bytes: Some(Setting::To(8 * MIB as u64)), ..QuotaChange::default() });
    let (mut one, mut two) = (gtd.client(), gtd.client());
    assert_eq!(refused(&mut one, 5 * MIB), None);
    assert_eq!(refused(&mut two, 5 * MIB), Some((MemoryScope::User, 8 * MIB as u64)));
    drop(one);
    eventually("what the other held is free", || refused(&mut two, 5 * MIB).is_none());
}

#[test]
fn a_session_of_one_queued_instruction_still_gets_its_results() {
    let gtd = Gtd::start(&[]);
    set(&gtd, QuotaChange { queued: Some(Setting::To(1)), ..QuotaChange::default() });
    let mut client = gtd.client();
    let mut sum = client.full(&[1 << 20], 0.0);
    let one = client.full(&[1 << 20], 1.0);
    for _ in 0..50 {
        let next = client.binary(Op::Add, sum, one);
        client.free(&[sum]);
        sum = next;
    }
    assert_eq!(client.fetch_f32(sum, 1).unwrap(), [50.0]);
}

#[test]
fn arenas_have_a_limit() {
    let gtd = Gtd::start(&[]);
    set(&gtd, QuotaChange { arena_bytes: Some(Setting::To(4 * MIB as u64)), ..QuotaChange::default() });
    let client = gtd.client();
    gt_protocol::ask_arena(&client.socket, 3 * MIB as u64).unwrap();
    match gt_protocol::ask_arena(&client.socket, 2 * MIB as u64) {
        Err(ProtocolError::Refused(refused)) => {
            assert_eq!((refused.code, refused.limit), (RefusalCode::ArenaLimit, 4 * MIB as u64));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_never_sees_what_another_left_in_memory() {
    const SECRET: f64 = 1234.5;
    let gtd = Gtd::start(&[]);
    let sizes = [1, 16, 1000, 100_000, 3 << 18];
    let mut one = gtd.client();
    let secrets: Vec<TensorId> = sizes.iter().map(|n| one.full(&[*n], SECRET)).collect();
    one.sync();
    one.free(&secrets);
    one.sync();
    drop(one);
    eventually("the session is gone", || gtd.status().sessions.is_empty());
    for n in sizes {
        // A tensor whose bytes are not all written cannot be fetched or used by an instruction.
        let mut two = gtd.client();
        let id = two.id();
        two.send(&Command::Allocate { out: id, meta: f32s(&[n]) });
        let block = two.block(4 * n);
        let mut before = vec![1; 4 * n];
        block.read(&mut before);
        assert!(before.iter().all(|byte| *byte == 0), "an arena is not new");
        let token = two.token();
        two.send(&Command::Fetch { token, id, offset_bytes: 0, to: range(&block, 4 * n) });
        two.wait_closed();
        let mut after = vec![1; 4 * n];
        block.read(&mut after);
        assert!(after.iter().all(|byte| *byte == 0), "something was seen");
    }
    assert!(gtd.stderr().contains("before all its bytes were written"), "{}", gtd.stderr());
}
