//! What a daemon that many share answers those who look after it.

use crate::support::{Client, Gtd, eventually};
use gt_protocol::{
    Allowance, Connection, DaemonMessage, Error, Hello, LimitsChange, RefusalCode, Role, Setting, ask_drain, ask_kill,
    ask_limits, ask_session, ask_set_limits,
};
use std::time::Duration;

fn control(gtd: &Gtd) -> Connection {
    gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap()
}

fn me() -> u32 {
    nix::unistd::getuid().as_raw()
}

#[track_caller]
fn code<T>(result: Result<T, Error>) -> RefusalCode {
    match result {
        Err(Error::Refused(refused)) => refused.code,
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
    assert_eq!(detail.user.allowed, Allowance::default());
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
    let weight = |weight| LimitsChange { weight: Some(weight), ..LimitsChange::default() };
    let sessions = LimitsChange { sessions: Some(Setting::To(1)), ..LimitsChange::default() };
    ask_set_limits(&control.socket, Some(me()), weight(Setting::To(2.5))).unwrap();
    let answer = ask_set_limits(&control.socket, Some(me()), sessions).unwrap();
    assert_eq!((answer.users[0].allowed.weight, answer.users[0].allowed.sessions), (2.5, 1));
    let second = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Client, None));
    assert_eq!(code(second), RefusalCode::TooManySessions);
    let limits = ask_limits(&control.socket).unwrap();
    assert_eq!(limits.default, Allowance::default());
    assert_eq!((limits.users.len(), limits.users[0].uid, limits.users[0].own.weight), (1, me(), Some(2.5)));
    assert_eq!(gtd.status().sessions[0].weight, 2.5);
    let back = LimitsChange { sessions: Some(Setting::Default), ..weight(Setting::Default) };
    let answer = ask_set_limits(&control.socket, Some(me()), back).unwrap();
    assert_eq!(answer.users[0].allowed, Allowance::default());
    assert_eq!(code(ask_set_limits(&control.socket, None, weight(Setting::To(0.0)))), RefusalCode::Malformed);
    drop((first, gtd.client()));
}

#[test]
fn a_draining_daemon_takes_no_more_sessions_and_ends_with_its_last() {
    let mut gtd = Gtd::start(&[]);
    let control = control(&gtd);
    let mut client = gtd.client();
    assert_eq!(ask_drain(&control.socket, true).unwrap(), 1);
    assert!(gtd.status().draining);
    let refused = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Client, None));
    assert_eq!(code(refused), RefusalCode::Draining);
    assert_eq!(ask_drain(&control.socket, false).unwrap(), 1);
    let another: Client = gtd.client();
    drop(another);
    eventually("the other session has gone", || gtd.status().sessions.len() == 1);
    ask_drain(&control.socket, true).unwrap();
    let id = client.full(&[2], 3.0);
    assert_eq!(client.fetch_f32(id, 2).unwrap(), [3.0, 3.0]);
    drop(client);
    assert!(gtd.wait().success());
}
