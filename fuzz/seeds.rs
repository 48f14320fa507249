//! Valid inputs of every fuzz target: the seeds that mutations start from.

use crate::streams::{self, Dice};
use gt_bridge::frame::{push_data, push_message, push_records, push_slots};
use gt_bridge::frame_assembly::LENT_HEAD_BYTES;
use gt_bridge::handshake::{ConnectionPurpose, HandshakeReply, HandshakeRequest, TcpWelcome};
use gt_bridge::link_frame::push_shared_slots;
use gt_protocol::message::{OnBehalf, SessionDetail, SessionGrant, TokenInfo, WorkerInfo, WorkerOffer};
use gt_protocol::tape::{NumberedRecord, TapeCopy};
use gt_protocol::{
    ClientMessage, DaemonMessage, Hello, Notice, PROTOCOL_VERSION, QuotaChange, QuotaDocument, RecordPage, RecordQuery,
    RefusalCode, Refused, Role, SessionRecord, SessionStatus, Setting, StatusDocument, Welcome,
};
use serde::Serialize;

/// Messages of clients, none of which affects other sessions.
pub fn client_messages() -> Vec<ClientMessage> {
    let unchanged = QuotaChange { queued: Some(Setting::Default), ..QuotaChange::default() };
    vec![
        ClientMessage::Hello(Hello::new(Role::Client, Some("garbled".into()))),
        ClientMessage::Hello(Hello::new(Role::Observer, None)),
        ClientMessage::GrowArena { bytes: 4096 },
        ClientMessage::ReturnArena { segment: 0 },
        ClientMessage::TapeAttach { session: None },
        ClientMessage::TapeAttach { session: Some(1) },
        ClientMessage::ShareLines,
        ClientMessage::Tensors { after: 1 },
        ClientMessage::LinesAttach { session: 1 },
        ClientMessage::Status { after: 3 },
        ClientMessage::ErrorDetail { error: 1 },
        ClientMessage::Traffic,
        ClientMessage::Placement { id: 1 },
        ClientMessage::Session { id: 1 },
        ClientMessage::Limits { from: 0 },
        // The session and the user do not exist, and the change sets no value.
        ClientMessage::Kill { session: u64::MAX },
        ClientMessage::SetLimits { uid: Some(u32::MAX - 5), change: unchanged },
        ClientMessage::Records(RecordQuery { uid: Some(7), ..RecordQuery::default() }),
        ClientMessage::Notice,
        ClientMessage::Drain { on: false, in_s: 1, text: Some("x".into()) },
        ClientMessage::Reload,
        ClientMessage::TokenCreate { uid: Some(7), lifetime_s: 60, administrator: true },
        ClientMessage::TokenList { after: 0 },
        ClientMessage::TokenRevoke { id: 1 },
        ClientMessage::Interrupt { below: 9 },
        ClientMessage::Name { name: Some("x".into()) },
        ClientMessage::Bye,
    ]
}

fn welcome() -> Welcome {
    let session = Some(SessionGrant {
        session_id: 1,
        sq_slots: 64,
        cq_slots: 64,
        arena_bytes_max: 1 << 20,
        devices: None,
        daemon_devices: 1,
        returns_arenas: true,
        shares_lines: true,
    });
    let workers = vec![WorkerInfo { name: "cpu:0".into(), ..WorkerInfo::default() }];
    let daemon_version = "0.1.0".into();
    Welcome { protocol_version: PROTOCOL_VERSION, daemon_version, daemon_pid: 3, session, workers, notice: None }
}

fn refused() -> Refused {
    Refused::new(RefusalCode::Exhausted, "no")
}

fn daemon_messages() -> Vec<DaemonMessage> {
    let (name, sessions) = ("ana", vec![SessionStatus::default()]);
    vec![
        DaemonMessage::Welcome(welcome()),
        DaemonMessage::Refused(refused()),
        DaemonMessage::ArenaGranted { segment: 0, bytes: 4096 },
        DaemonMessage::ArenaReturned { segment: 0 },
        DaemonMessage::Tape { records: 64 },
        DaemonMessage::Lines { bytes: 4096 },
        DaemonMessage::Tensors { tensors: vec![(1, "float32[2]".into())], more: false },
        DaemonMessage::Status(StatusDocument { sessions, ..StatusDocument::default() }),
        DaemonMessage::ErrorDetail { error: 1, text: name.into() },
        DaemonMessage::Traffic { workers: vec![], sequences: Default::default() },
        DaemonMessage::Session(Box::<SessionDetail>::default()),
        DaemonMessage::Killed(Box::<SessionStatus>::default()),
        DaemonMessage::Limits(QuotaDocument::default()),
        DaemonMessage::Records(RecordPage { records: vec![SessionRecord::default()], next: None }),
        DaemonMessage::Reloaded { path: "gtd.yaml".into(), changed: vec!["log".into()], restart: vec![] },
        DaemonMessage::TokenCreated { text: "gt-1-00".into(), token: token(), lasting: true },
        DaemonMessage::Tokens { tokens: vec![token()], more: false },
        DaemonMessage::TokenRevoked { token: token(), sessions: 1 },
        DaemonMessage::Draining { on: true, sessions: 2, notice: None },
        DaemonMessage::Notice { notice: Some(Notice { number: 1, ..Notice::default() }) },
        DaemonMessage::NewNotice { number: 2 },
    ]
}

fn token() -> TokenInfo {
    TokenInfo { id: 1, uid: 7, administrator: false, created_unix_s: 1, expires_unix_s: 2 }
}

/// Handshakes of clients and daemons, by socket and by TCP.
fn first_words() -> Vec<Vec<u8>> {
    let on_behalf = Some(OnBehalf { uid: 7, pid: 8, from: "127.0.0.1:9".into(), administrator: true, token: Some(3) });
    let offer = Some(WorkerOffer {
        pid: 8,
        threads: 2,
        memory_bytes_limit: 1 << 30,
        device: Some("cuda:0".into()),
        node: None,
    });
    let hellos = [
        Hello::new(Role::Client, Some("ana".into())),
        Hello { on_behalf, ..Hello::new(Role::Client, None) },
        Hello { offer, ..Hello::new(Role::Worker, None) },
    ];
    let token = "0123456789abcdef".to_owned();
    let request = |hello: &Hello| HandshakeRequest {
        protocol_version: PROTOCOL_VERSION,
        protocol_version_max: Some(PROTOCOL_VERSION),
        token: token.clone(),
        purpose: ConnectionPurpose::Session,
        pid: 3,
        hello: hello.clone(),
    };
    let socket = HandshakeReply::Socket { path: "/run/gt/gtd.sock".into(), protocol_version: PROTOCOL_VERSION };
    let begun = Box::new(TcpWelcome { welcome: welcome(), interrupt_key: Some("0123456789abcdef".into()) });
    let interrupted = HandshakeReply::Interrupted { protocol_version: PROTOCOL_VERSION };
    let answers = [HandshakeReply::Welcome(begun), socket, interrupted, HandshakeReply::Refused(refused())];
    let mut words: Vec<Vec<u8>> = hellos.iter().map(|hello| json(&ClientMessage::Hello(hello.clone()))).collect();
    words.extend(hellos.iter().map(|hello| json(&request(hello))));
    words.extend([json(&DaemonMessage::Welcome(welcome())), json(&DaemonMessage::Refused(refused()))]);
    words.extend(answers.iter().map(json));
    let addresses = ["localhost:12345", "unix:/run/gt/gtd.sock", "[::1]:7", "private", "gt://box:1"];
    words.extend(addresses.map(Vec::from));
    words
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("it is serializable")
}

/// The installed configuration, the same with every key set, and syntax that it does not use.
fn configurations() -> Vec<Vec<u8>> {
    let installed = include_str!("../systemd/gtd.yaml");
    let is_key = |line: &&str| line.trim_start().strip_prefix('#').is_some_and(|rest| !rest.starts_with([' ', '-']));
    let whole: Vec<String> =
        installed.lines().map(|line| if is_key(&line) { line.replacen('#', "", 1) } else { line.to_owned() }).collect();
    let texts = [
        installed,
        &whole.join("\n"),
        "workers: [cpu:2, proc-cpu:1]\nthreads: 3\nmemory: 64M\nlimits: {sessions: 5, weight: 2}\nusers:\n  0: {arena: 1G}\n",
        "&a log: !!str \"info\"\nusers: {ana: {weight: 2.5}, *a : ~}\n--- |\n  x\n",
    ];
    texts.map(Vec::from).into()
}

/// A valid input of the target called `name`.
pub fn valid_input(name: &str, dice: &mut Dice<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let one = |texts: Vec<Vec<u8>>, dice: &mut Dice<'_>| texts[dice.index(texts.len())].clone();
    match name {
        "slots" => {
            let words = streams::mutated(&streams::valid(dice), dice).concat().concat();
            bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        }
        // The bytes are choices of a generator, all of which are valid.
        "stream" => bytes.extend((0..50 + dice.below(400)).map(|_| dice.below(256) as u8)),
        "frames" => {
            push_slots(&mut bytes, &streams::encoded(&streams::valid(dice)).concat());
            push_data(&mut bytes, 0, 64, 100, |to| to.fill(7));
            push_message(&mut bytes, &json(&client_messages()[dice.index(8)]));
            let mut copy = TapeCopy::default();
            let mut records = Vec::new();
            for number in 0..50 + dice.below(50) {
                let gap = u64::from(dice.below(9) == 0) * 7;
                let numbered = NumberedRecord { number: number + gap, record: [number; 7] };
                copy.add(&numbered, |record| records.push(*record));
            }
            push_records(&mut bytes, &records);
        }
        "links" => {
            for _ in 0..1 + dice.below(5) {
                let slots = streams::encoded(&streams::valid(dice)).concat();
                if dice.below(4) == 0 {
                    let lent = 1 + dice.index(300);
                    bytes.extend((lent as u32 | 1 << 31).to_le_bytes());
                    bytes.extend(vec![dice.below(3) as u8; LENT_HEAD_BYTES + lent]);
                    continue;
                }
                if dice.below(4) == 0 {
                    let mut shared = vec![3];
                    for workers in 1..2 + dice.index(3) {
                        push_shared_slots(
                            &mut shared,
                            [workers as u64, 1],
                            &streams::encoded(&streams::valid(dice)).concat(),
                        );
                    }
                    bytes.extend((shared.len() as u32).to_le_bytes());
                    bytes.extend(shared);
                    continue;
                }
                let payload = match dice.below(3) {
                    0 => json(&client_messages()[dice.index(8)]),
                    1 => slots.iter().take(9).flatten().flat_map(|word| word.to_le_bytes()).collect(),
                    _ => vec![7; 20 + dice.index(200)],
                };
                // The kind of a frame, and the worker of one that is no message.
                let head: &[u8] = if payload[0] == b'{' { &[0] } else { &[1 + u8::from(payload[0] == 7), 0, 0, 0, 0] };
                bytes.extend(((head.len() + payload.len()) as u32).to_le_bytes());
                bytes.extend([head, &payload].concat());
            }
        }
        "messages" => {
            let all = client_messages().iter().map(json).chain(daemon_messages().iter().map(json)).collect();
            bytes = one(all, dice);
        }
        "handshake" => bytes = one(first_words(), dice),
        "config" => bytes = one(configurations(), dice),
        _ => {}
    }
    bytes
}
