//! A client and a daemon on a real socket, and their errors about invalid messages of the other.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gt_protocol::limits::{
    CQ_SLOTS, LINK_REASON_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, SQ_SLOTS, STATUS_NODE_LINKS_MAX,
    STATUS_NODES_MAX, STATUS_SESSIONS_MAX,
};
use gt_protocol::*;
use gt_shm::{Arena, ArenaAllocator, DaemonPort, Slot, Socket, broadcast};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn welcome(session: Option<SessionGrant>) -> Welcome {
    Welcome {
        protocol_version: PROTOCOL_VERSION,
        daemon_version: "0.1.0".into(),
        daemon_pid: std::process::id(),
        session,
        workers: vec![WorkerInfo {
            name: "cpu:0".into(),
            kind: "cpu".into(),
            threads: 2,
            memory_bytes_limit: 1 << 30,
            ..WorkerInfo::default()
        }],
        notice: None,
    }
}

fn grant() -> SessionGrant {
    SessionGrant {
        session_id: 7,
        sq_slots: SQ_SLOTS,
        cq_slots: CQ_SLOTS,
        arena_bytes_max: 1 << 30,
        devices: None,
        daemon_devices: 1,
        returns_arenas: true,
        shares_lines: true,
    }
}

/// A daemon that accepts one client and passes its connection to `serve`.
fn daemon(serve: impl FnOnce(Socket, DaemonPort) + Send + 'static) -> (Socket, JoinHandle<()>) {
    let (client, socket) = Socket::pair().unwrap();
    let thread = std::thread::spawn(move || {
        recv_hello(&socket, PATIENCE).unwrap();
        let (port, fds) = DaemonPort::create(SQ_SLOTS, CQ_SLOTS).unwrap();
        let message = DaemonMessage::Welcome(welcome(Some(grant())));
        send_daemon_message(&socket, &message, &fds.as_array(), Duration::ZERO).unwrap();
        drop(fds);
        serve(socket, port);
    });
    (client, thread)
}

/// A daemon that answers a hello with `bytes`.
fn answering(bytes: &'static [u8]) -> Socket {
    let (client, socket) = Socket::pair().unwrap();
    std::thread::spawn(move || {
        socket.recv(&mut [0; 4096], 0, Some(PATIENCE)).unwrap();
        socket.send(bytes, &[], Some(PATIENCE)).unwrap();
        // Until the client has read the answer and closed the connection.
        let _ = socket.recv(&mut [0; 8], 0, Some(PATIENCE));
    });
    client
}

#[test]
fn a_daemon_that_does_not_know_a_request_is_said_to_be_older() {
    // The refusals of a build of protocol 1, as they were recorded but for their lists of names.
    for (name, text) in [
        ("records", "unknown variant `records`, expected one of `hello`, `grow_arena`"),
        ("set_limits", "unknown field `max_step_s`, expected one of `memory_bytes`, `weight`"),
    ] {
        let (client, socket) = Socket::pair().unwrap();
        let daemon = std::thread::spawn(move || {
            socket.recv(&mut [0; 4096], 0, Some(PATIENCE)).unwrap();
            let text = format!("a message that makes no sense: {text} at line 1 column 50");
            let refused = Refused { protocol_version: 1, ..Refused::new(RefusalCode::Malformed, text) };
            send_daemon_message(&socket, &DaemonMessage::Refused(refused), &[], PATIENCE).unwrap();
        });
        let error = match name {
            "records" => ask_records(&client, RecordQuery::default()).unwrap_err(),
            _ => ask_set_limits(&client, None, QuotaChange::default()).unwrap_err(),
        };
        daemon.join().unwrap();
        let told = error.to_string();
        assert!(matches!(error, ProtocolError::UnknownRequest { daemon: 1, .. }), "{told}");
        let asked = format!("the daemon does not know the request `{name}`: it speaks protocol 1, this program 1 to");
        assert!(told.starts_with(&asked) && told.contains("upgrade the daemon (gtd)"), "{told}");
    }
}

#[test]
fn limits_of_a_later_daemon_are_read() {
    let (client, socket) = Socket::pair().unwrap();
    let daemon = std::thread::spawn(move || {
        socket.recv(&mut [0; 4096], 0, Some(PATIENCE)).unwrap();
        let user =
            br#"{"uid":7,"own":{"weight":2.0,"max_dreams":3},"allowed":{"weight":2.0,"max_dreams":3},"dreams":1}"#;
        let limits = [br#"{"message":"limits","default":{"max_dreams":9},"users":["#.as_slice(), user, b"]}"].concat();
        socket.send(&limits, &[], Some(PATIENCE)).unwrap();
    });
    let limits = ask_limits(&client).unwrap();
    daemon.join().unwrap();
    assert_eq!((limits.users[0].uid, limits.users[0].own.weight, limits.users[0].allowed.weight), (7, Some(2.0), 2.0));
    let change = r#"{"message":"set_limits","change":{"max_dreams":{"to":3}}}"#;
    let error = serde_json::from_str::<ClientMessage>(change).unwrap_err().to_string();
    assert!(
        error.starts_with("unknown field `max_dreams`"),
        "a change that the daemon cannot make is refused: {error}"
    );
}

/// The result of reading these bytes as a hello.
fn as_hello(bytes: &[u8]) -> Result<Hello> {
    let (client, socket) = Socket::pair().unwrap();
    client.send(bytes, &[], Some(PATIENCE)).unwrap();
    recv_hello(&socket, Duration::ZERO)
}

#[test]
fn a_client_connects_and_its_rings_work() {
    let (socket, thread) = daemon(|socket, mut port| {
        let mut buffer = [Slot::default(); 4];
        while port.pop(&mut buffer).unwrap() == 0 {
            std::thread::yield_now();
        }
        port.complete(buffer[0]).unwrap();
        port.flush_completions();
        assert_eq!(recv_client_message(&socket, PATIENCE).unwrap(), ClientMessage::Bye);
    });
    let hello = Hello::new(Role::Client, Some("training".into()));
    let mut connection = connect_over(socket, &hello).unwrap();
    assert_eq!(connection.welcome, welcome(Some(grant())));
    let port = connection.port.as_mut().unwrap();
    port.push_publish(&[[9; 8]]).unwrap();
    assert_eq!(port.wait_completion(Duration::ZERO, PATIENCE), Some([9; 8]));
    send_client_message(&connection.socket, &ClientMessage::Bye, PATIENCE).unwrap();
    thread.join().unwrap();
}

#[test]
fn arenas_are_granted_until_the_limit() {
    let (socket, thread) = daemon(|socket, _port| {
        let asked = recv_client_message(&socket, PATIENCE).unwrap();
        assert_eq!(asked, ClientMessage::GrowArena { bytes: 5000 });
        let (arena, fd) = Arena::create(5000).unwrap();
        let granted = DaemonMessage::ArenaGranted { segment: 0, bytes: arena.len() };
        send_daemon_message(&socket, &granted, &[fd.as_fd()], PATIENCE).unwrap();
        recv_client_message(&socket, PATIENCE).unwrap();
        let refused = Refused::new(RefusalCode::ArenaLimit, "the session holds 8 KB of 10 KB").with_limit(8192, 10_000);
        send_daemon_message(&socket, &DaemonMessage::Refused(refused), &[], PATIENCE).unwrap();
    });
    let connection = connect_over(socket, &Hello::new(Role::Client, None)).unwrap();
    let allocator = ArenaAllocator::new();
    let granted = ask_arena(&connection.socket, 5000).unwrap();
    assert_eq!(allocator.add(granted.fd, granted.bytes).unwrap(), granted.segment);
    assert!(allocator.alloc(5000).is_ok());
    let error = ask_arena(&connection.socket, 1 << 40).err().unwrap();
    let ProtocolError::Refused(refused) = &error else { panic!("{error:?}") };
    assert_eq!((refused.code, refused.held, refused.limit), (RefusalCode::ArenaLimit, 8192, 10_000));
    assert_eq!(error.to_string(), "the session holds 8 KB of 10 KB");
    thread.join().unwrap();
}

#[test]
fn the_tape_and_error_texts_are_handed_out() {
    let (socket, thread) = daemon(|socket, _port| {
        let wanted = ClientMessage::TapeAttach { session: Some(7) };
        assert_eq!(recv_client_message(&socket, PATIENCE).unwrap(), wanted);
        let (mut writer, fd) = broadcast::create("gt-tape", 16).unwrap();
        writer.write(&[3; 7]);
        let tape = DaemonMessage::Tape { records: 16 };
        send_daemon_message(&socket, &tape, &[fd.as_fd()], PATIENCE).unwrap();
        let asked = recv_client_message(&socket, PATIENCE).unwrap();
        assert_eq!(asked, ClientMessage::ErrorDetail { error: 5 });
        let detail = DaemonMessage::ErrorDetail { error: 5, text: "index 9 is out of range".into() };
        send_daemon_message(&socket, &detail, &[], PATIENCE).unwrap();
    });
    let connection = connect_over(socket, &Hello::new(Role::Client, None)).unwrap();
    let first = NumberedRecord { number: 0, record: [3; 7] };
    assert_eq!(attach_tape(&connection.socket, Some(7)).unwrap().read(), Some(first));
    assert_eq!(ask_error_detail(&connection.socket, 5).unwrap(), "index 9 is out of range");
    thread.join().unwrap();
}

#[test]
fn a_status_of_many_sessions_and_nodes_comes_in_parts_that_fit() {
    // The longest names, with characters that JSON writes as six.
    let name = "\u{1}".repeat(NAME_BYTES_MAX);
    // The last sessions fit into one message, but not beside the nodes.
    let sessions: Vec<_> = (0..4 * STATUS_SESSIONS_MAX as u64 - 5)
        .rev()
        .map(|id| SessionStatus {
            id: id + 1,
            name: Some(name.clone()),
            uid: u32::MAX,
            user: Some("a-name-of-thirty-two-characters-".into()),
            pid: u32::MAX,
            from: Some("[2001:0db8:85a3:0000:0000:8a2e:0370:7334%4294967295]:65535".into()),
            // The longest list: all 64 devices would be written `all`.
            devices: Some(DeviceSet::from_bits(u64::MAX - 1)),
            tensors: u64::MAX,
            tensor_bytes: u64::MAX,
            memory_bytes: u64::MAX,
            memory_bytes_limit: u64::MAX,
            arena_bytes: u64::MAX,
            arena_bytes_limit: u64::MAX,
            instructions: u64::MAX,
            queued: u64::MAX,
            queued_limit: u64::MAX,
            weight: 1.0 / 3.0,
            share: 1.0 / 3.0,
            device_s: 1.7e9 + 1.0 / 3.0,
            usage_s: 1.7e9 + 1.0 / 3.0,
            since: 1.7e9 + 1.0 / 3.0,
        })
        .collect();
    let count = sessions.len();
    let node = NodeInfo {
        name: "12345678".into(),
        address: Some("2001:0db8:85a3:0000:0000:8a2e:0370:7334".into()),
        workers: u32::MAX,
        joined_s: u64::MAX,
        sent_bytes: u64::MAX,
        received_bytes: u64::MAX,
        resumed: u64::MAX,
        latency_ns: u64::MAX,
        bytes_per_s: u64::MAX,
        ..NodeInfo::default()
    };
    let link = NodeLink {
        from: "12345678".into(),
        to: "87654321".into(),
        transport: LinkTransport::Tls,
        reason: Some("x".repeat(LINK_REASON_BYTES_MAX)),
        latency_ns: u64::MAX,
        bytes_per_s: u64::MAX,
    };
    let document = StatusDocument {
        pid: 42,
        uptime_s: 1.5,
        sessions,
        nodes: vec![node; STATUS_NODES_MAX + 1],
        node_links: vec![link; STATUS_NODE_LINKS_MAX + 1],
        ..Default::default()
    };
    let (socket, thread) = daemon(move |socket, _port| {
        while let Ok(ClientMessage::Status { after }) = recv_client_message(&socket, PATIENCE) {
            let page = DaemonMessage::Status(document.clone().page(after));
            send_daemon_message(&socket, &page, &[], PATIENCE).unwrap();
        }
    });
    let connection = connect_over(socket, &Hello::new(Role::Client, None)).unwrap();
    let status = ask_status(&connection.socket).unwrap();
    assert_eq!((status.pid, status.more), (42, false));
    let ids: Vec<_> = status.sessions.iter().map(|session| session.id).collect();
    assert_eq!(ids, (1..=count as u64).collect::<Vec<_>>());
    assert_eq!((status.nodes.len(), status.node_links.len()), (STATUS_NODES_MAX, STATUS_NODE_LINKS_MAX));
    drop(connection);
    thread.join().unwrap();
}

#[test]
fn an_observer_gets_no_rings() {
    let (client, socket) = Socket::pair().unwrap();
    let thread = std::thread::spawn(move || {
        assert_eq!(recv_hello(&socket, PATIENCE).unwrap().role, Role::Observer);
        let message = DaemonMessage::Welcome(welcome(None));
        send_daemon_message(&socket, &message, &[], PATIENCE).unwrap();
    });
    let connection = connect_over(client, &Hello::new(Role::Observer, None)).unwrap();
    assert!(connection.port.is_none() && connection.welcome.session.is_none());
    thread.join().unwrap();
}

// ------------------------------------------------------------------------------ what goes wrong

#[test]
fn a_daemon_of_another_version_is_named() {
    // No other field of another version's welcome or refusal has to be valid.
    for answer in [
        &br#"{"message":"welcome","protocol_version":4,"rings":{"new":"shape"}}"#[..],
        br#"{"message":"refused","protocol_version":4,"because":"whatever"}"#,
        br#"{"message":"unheard_of","protocol_version":4}"#,
    ] {
        let error = connect_over(answering(answer), &Hello::new(Role::Client, None)).err().unwrap();
        assert!(matches!(error, ProtocolError::DaemonVersion { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the daemon speaks protocol 4, this gt speaks 1 to 3: upgrade this gt to the version of the daemon"
        );
    }
    // A refusal that can be read says more.
    let answer = br#"{"message":"refused","protocol_version":4,"code":"protocol_version","text":"upgrade this"}"#;
    let error = connect_over(answering(answer), &Hello::new(Role::Client, None)).err().unwrap();
    assert_eq!(error.to_string(), "upgrade this");
}

#[test]
fn a_client_of_another_version_is_told() {
    let error =
        as_hello(br#"{"message":"hello","protocol_version":4,"protocol_version_max":5,"who":"?"}"#).unwrap_err();
    assert!(matches!(error, ProtocolError::ClientVersion { .. }), "{error:?}");
    let refused = link::refusal_for(&error);
    assert_eq!(refused.code, RefusalCode::ProtocolVersion);
    assert_eq!(refused.protocol_version, PROTOCOL_VERSION);
    assert_eq!(
        refused.text,
        "the daemon speaks protocol 1 to 3, this gt speaks 4 to 5: upgrade the daemon (gtd) to the version of this gt"
    );
}

#[test]
fn a_newer_client_that_also_speaks_this_version_is_welcome() {
    let hello = br#"{"message":"hello","protocol_version":2,"protocol_version_max":9,"client_version":"9",
                    "role":"client","unheard_of":1}"#;
    let hello = as_hello(hello).unwrap();
    assert_eq!(hello.versions().common(gt_protocol::VersionRange::OWN), Some(PROTOCOL_VERSION));
    // The hello of this build is also understood where only version 1 is spoken.
    let own = serde_json::to_value(Hello::new(Role::Client, None)).unwrap();
    assert_eq!((&own["protocol_version"], &own["protocol_version_max"]), (&1.into(), &3.into()));
}

#[test]
fn a_hello_that_makes_no_sense_is_refused_with_a_reason() {
    let long = format!(
        r#"{{"message":"hello","protocol_version":1,"client_version":"1","role":"client","name":"{}"}}"#,
        "é".repeat(NAME_BYTES_MAX / 2 + 1)
    );
    for (bytes, reason) in [
        (&b"not json"[..], "makes no sense"),
        (b"[]", "makes no sense"),
        (b"{}", "message"),
        (&[0xFF; 10], "makes no sense"),
        (br#"{"message":"hello","protocol_version":1}"#, "client_version"),
        (br#"{"message":"hello","protocol_version":"1"}"#, "invalid type"),
        (br#"{"message":"hello","protocol_version":-1}"#, "invalid value"),
        (br#"{"message":"status"}"#, "starts with hello"),
        (long.as_bytes(), "66 bytes; 64 are allowed"),
        (
            br#"{"message":"hello","protocol_version":1,"client_version":"1","role":"client","name":"a\u001b[2Jb"}"#,
            "control characters",
        ),
        (br#"{"message":"hello","protocol_version":1,"client_version":"1","role":"king"}"#, "unknown variant `king`"),
    ] {
        let error = as_hello(bytes).unwrap_err();
        assert!(error.to_string().contains(reason), "{error} lacks {reason:?}");
        assert_eq!(link::refusal_for(&error).code, RefusalCode::Malformed);
    }
    let nested = "[".repeat(50_000);
    assert!(as_hello(nested.as_bytes()).is_err(), "no stack is exhausted");
}

#[test]
fn descriptors_from_a_client_are_refused() {
    let (client, socket) = Socket::pair().unwrap();
    let hello = serde_json::to_vec(&ClientMessage::Hello(Hello::new(Role::Client, None))).unwrap();
    client.send(&hello, &[client.as_fd()], Some(PATIENCE)).unwrap();
    let error = recv_hello(&socket, Duration::ZERO).unwrap_err();
    assert!(matches!(error, ProtocolError::Shm(gt_shm::Error::SurplusDescriptors { .. })), "{error:?}");
}

#[test]
fn a_message_beyond_the_limit_is_refused_on_both_sides() {
    let error = as_hello(&vec![b' '; MESSAGE_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(error, ProtocolError::Shm(gt_shm::Error::MessageTooLong { .. })), "{error:?}");
    let (client, _socket) = Socket::pair().unwrap();
    let hello = Hello::new(Role::Client, Some("x".repeat(MESSAGE_BYTES_MAX)));
    let error = connect_over(client, &hello).err().unwrap();
    assert!(error.to_string().contains("65536 are allowed"), "{error}");
}

#[test]
fn silence_and_hang_ups_are_told_apart() {
    let (client, socket) = Socket::pair().unwrap();
    assert!(matches!(recv_hello(&socket, Duration::ZERO), Err(ProtocolError::TimedOut(_))));
    assert!(matches!(recv_client_message(&socket, Duration::from_millis(1)), Err(ProtocolError::TimedOut(_))));
    drop(client);
    assert!(matches!(recv_hello(&socket, PATIENCE), Err(ProtocolError::HungUp)));
    let (client, socket) = Socket::pair().unwrap();
    drop(socket);
    assert!(matches!(ask_status(&client), Err(ProtocolError::HungUp)));
}

#[test]
fn a_daemon_that_hands_out_nonsense_is_not_believed() {
    for (answer, reason) in [
        (&br#"{"message":"bye","protocol_version":1}"#[..], "unknown variant"),
        (br#"{"message":"tape","records":1}"#, "instead of welcome"),
        (br#"{"message":"welcome","protocol_version":1,"daemon_version":"1","daemon_pid":1}"#, "without a session"),
        (
            br#"{"message":"welcome","protocol_version":1,"daemon_version":"1","daemon_pid":1,
                "session":{"session_id":1,"sq_slots":4096,"cq_slots":512,"arena_bytes_max":0}}"#,
            "0 of 3 descriptors",
        ),
    ] {
        let error = connect_over(answering(answer), &Hello::new(Role::Client, None)).err().unwrap();
        assert!(error.to_string().contains(reason), "{error} lacks {reason:?}");
    }
    for (sq_slots, cq_slots) in [(0, 512), (4095, 512), (4096, 1 << 30)] {
        let (client, socket) = Socket::pair().unwrap();
        let (_port, fds) = DaemonPort::create(64, 64).unwrap();
        let grant = SessionGrant { sq_slots, cq_slots, ..grant() };
        let message = DaemonMessage::Welcome(welcome(Some(grant)));
        send_daemon_message(&socket, &message, &fds.as_array(), PATIENCE).unwrap();
        let error = connect_over(client, &Hello::new(Role::Client, None)).err().unwrap();
        assert!(error.to_string().contains("a ring of"), "{error}");
    }
}

#[test]
fn a_refusal_of_an_unknown_kind_still_says_why() {
    let answer = br#"{"message":"refused","protocol_version":1,"code":"full_moon","text":"tonight is a full moon"}"#;
    let error = connect_over(answering(answer), &Hello::new(Role::Client, None)).err().unwrap();
    assert_eq!(error.to_string(), "tonight is a full moon");
    assert!(matches!(error, ProtocolError::Refused(Refused { code: RefusalCode::Other, .. })));
}

fn placement() -> PlacementInfo {
    let workers = vec!["cpu:0".into(), "cpu:2".into()];
    PlacementInfo { layout: PlacementLayout::Sharded, workers, axis: Some(1), join: None, within_rows: None }
}

#[test]
fn a_session_is_told_of_its_traffic_and_of_the_places_of_its_tensors() {
    let (socket, thread) = daemon(|socket, _port| {
        assert_eq!(recv_client_message(&socket, PATIENCE).unwrap(), ClientMessage::Traffic);
        let worker = WorkerTraffic { name: "cpu:0".into(), ..WorkerTraffic::default() };
        send_daemon_message(
            &socket,
            &DaemonMessage::Traffic { workers: vec![worker], sequences: SequenceCounts::default() },
            &[],
            PATIENCE,
        )
        .unwrap();
        assert_eq!(recv_client_message(&socket, PATIENCE).unwrap(), ClientMessage::Placement { id: 7 });
        send_daemon_message(&socket, &DaemonMessage::Placement(placement()), &[], PATIENCE).unwrap();
    });
    let connection = connect_over(socket, &Hello::new(Role::Client, None)).unwrap();
    let (traffic, _) = ask_traffic(&connection.socket).unwrap();
    assert_eq!((traffic[0].name.as_str(), traffic[0].collectives.len()), ("cpu:0", 0));
    assert_eq!(ask_placement(&connection.socket, 7).unwrap(), placement());
    thread.join().unwrap();
}

#[test]
fn a_daemon_that_is_not_there_is_named_with_its_socket() {
    let path = PathBuf::from("/nonexistent/gtd.sock");
    let error = connect(&path, &Hello::new(Role::Control, None)).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("/nonexistent/gtd.sock") && text.contains("there is no such socket"), "{text}");
}

#[test]
fn every_message_survives_the_journey() {
    let client = [
        ClientMessage::Hello(Hello::new(Role::Observer, Some("näme".into()))),
        ClientMessage::GrowArena { bytes: u64::MAX },
        ClientMessage::Name { name: Some("näme".into()) },
        ClientMessage::Name { name: None },
        ClientMessage::TapeAttach { session: None },
        ClientMessage::TapeAttach { session: Some(7) },
        ClientMessage::ShareLines,
        ClientMessage::Tensors { after: 1 },
        ClientMessage::LinesAttach { session: 1 },
        ClientMessage::Status { after: 3 },
        ClientMessage::ErrorDetail { error: 9 },
        ClientMessage::Traffic,
        ClientMessage::Placement { id: 42 },
        ClientMessage::Bye,
    ];
    let collectives = [("all_reduce".to_owned(), CollectiveTraffic { count: 3, bytes: 1 << 40 })].into();
    let done = OperationCount { count: 7, time_ns: u64::MAX, bytes: 448, errors: 1 };
    let operations = [("matmul".to_owned(), done)].into();
    let daemon = [
        DaemonMessage::Welcome(welcome(Some(grant()))),
        DaemonMessage::Refused(Refused::new(RefusalCode::Exhausted, "no memory").with_limit(1, 2)),
        DaemonMessage::ArenaGranted { segment: 3, bytes: u64::MAX },
        DaemonMessage::Tape { records: 1 << 16 },
        DaemonMessage::Lines { bytes: 1 << 20 },
        DaemonMessage::Tensors { tensors: vec![(1, "float32[2]".into())], more: true },
        DaemonMessage::Status(StatusDocument::default()),
        DaemonMessage::ErrorDetail { error: 1, text: "\"quoted\"\n".into() },
        DaemonMessage::Traffic {
            workers: vec![WorkerTraffic { name: "cpu:1".into(), collectives, operations }],
            sequences: SequenceCounts { hits: u64::MAX, ..SequenceCounts::default() },
        },
        DaemonMessage::Placement(placement()),
    ];
    let (a, b) = Socket::pair().unwrap();
    for message in client {
        send_client_message(&a, &message, PATIENCE).unwrap();
        assert_eq!(recv_client_message(&b, PATIENCE).unwrap(), message);
    }
    for message in daemon {
        send_daemon_message(&b, &message, &[], PATIENCE).unwrap();
        assert_eq!(recv_daemon_message(&a, PATIENCE).unwrap().0, message);
    }
}
