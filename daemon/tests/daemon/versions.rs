//! Clients of the protocol version before: the bytes that their build sent still open a session and compute.

use crate::support::{Client, Gtd};
use gt_ops::Op;
use gt_protocol::{Connection, Hello, PROTOCOL_VERSION, ProtocolError, RefusalCode, Role, Welcome};
use gt_shm::port::PortFds;
use gt_shm::{ClientPort, Socket};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// The hello of a client of version 1, as it was recorded.
const HELLO_1: &[u8] = br#"{"message":"hello","protocol_version":1,"client_version":"0.1.0","name":"old","role":"client","on_behalf":null,"offer":null}"#;

/// Sends bytes; returns the answer, and its descriptors.
fn say(socket: &Socket, bytes: &[u8]) -> (Value, Vec<OwnedFd>) {
    socket.send(bytes, &[], Some(PATIENCE)).unwrap();
    hear(socket)
}

fn hear(socket: &Socket) -> (Value, Vec<OwnedFd>) {
    let mut bytes = vec![0; 1 << 16];
    let received = socket.recv(&mut bytes, 3, Some(PATIENCE)).unwrap();
    (serde_json::from_slice(&bytes[..received.len]).unwrap(), received.fds)
}

/// A session of a client of version 1.
fn old_client(gtd: &Gtd) -> Client {
    let socket = Socket::connect(&gtd.folder.socket()).unwrap();
    let (welcome, fds) = say(&socket, HELLO_1);
    // Clients of version 1 accept this version alone, and need these fields.
    assert_eq!((&welcome["message"], &welcome["protocol_version"]), (&json!("welcome"), &json!(1)), "{welcome}");
    let grant = &welcome["session"];
    let slots = |name: &str| grant[name].as_u64().unwrap() as u32;
    assert!(grant["session_id"].is_u64() && grant["arena_bytes_max"].is_u64() && welcome["daemon_pid"].is_u64());
    let fds: [OwnedFd; 3] = fds.try_into().unwrap();
    let port = ClientPort::connect(PortFds::from_array(fds), slots("sq_slots"), slots("cq_slots")).unwrap();
    let welcome: Welcome = serde_json::from_value(welcome).unwrap();
    Client::of(Connection { socket, welcome, port: Some(port) })
}

#[test]
fn a_client_of_the_version_before_computes() {
    let gtd = Gtd::start(&[]);
    let mut client = old_client(&gtd);
    let (two, three) = (client.full(&[4], 2.0), client.full(&[4], 3.0));
    let sum = client.binary(Op::Add, two, three);
    assert_eq!(client.fetch_f32(sum, 4).unwrap(), [5.0; 4]);
    // Requests of version 1, as they were recorded.
    let (detail, _) = say(&client.socket, br#"{"message":"reset_peak","worker":null}"#);
    assert_eq!(detail["message"], "session");
    let (status, _) = say(&client.socket, br#"{"message":"status","after":0}"#);
    assert_eq!(status["sessions"][0]["name"], "old");
    let (draining, _) = say(&client.socket, br#"{"message":"drain","on":false}"#);
    assert_eq!((&draining["message"], &draining["on"]), (&json!("draining"), &json!(false)));
    // A notice reaches clients of version 2, and disturbs none of version 1.
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    gt_protocol::ask_drain(&control.socket, true, 3600, Some("new disks".into())).unwrap();
    let (arena, fds) = say(&client.socket, br#"{"message":"grow_arena","bytes":4096}"#);
    assert_eq!((&arena["message"], fds.len()), (&json!("arena_granted"), 1));
    assert_eq!(client.fetch_f32(sum, 4).unwrap(), [5.0; 4]);
}

#[test]
fn refusals_are_in_the_version_of_the_client() {
    let gtd = Gtd::start(&[]);
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    assert_eq!(control.welcome.protocol_version, PROTOCOL_VERSION);
    let kept = gtd.client();
    gt_protocol::ask_drain(&control.socket, true, 0, None).unwrap();
    let socket = Socket::connect(&gtd.folder.socket()).unwrap();
    let (refused, _) = say(&socket, HELLO_1);
    assert_eq!((&refused["code"], &refused["protocol_version"]), (&json!("draining"), &json!(1)), "{refused}");
    drop(kept);
}

#[test]
fn a_stop_is_announced_to_clients_of_both_versions() {
    let mut gtd = Gtd::start(&[]);
    let (old, new) = (old_client(&gtd), gtd.client());
    gtd.signal(nix::sys::signal::Signal::SIGTERM);
    for client in [&old, &new] {
        let (refused, _) = hear(&client.socket);
        assert_eq!((&refused["message"], &refused["code"]), (&json!("refused"), &json!("shutting_down")), "{refused}");
        assert!(refused["text"].as_str().unwrap().contains("was stopped by its administrator"), "{refused}");
    }
    assert!(gtd.wait().success());
}

#[test]
fn a_client_of_a_later_version_is_told_which_side_to_upgrade() {
    let gtd = Gtd::start(&[]);
    let later = Some(PROTOCOL_VERSION + 1);
    let both = Hello { protocol_version_max: later, ..Hello::new(Role::Client, None) };
    assert_eq!(gt_protocol::connect(&gtd.folder.socket(), &both).unwrap().welcome.protocol_version, PROTOCOL_VERSION);
    let alone = Hello { protocol_version: PROTOCOL_VERSION + 1, ..both };
    match gt_protocol::connect(&gtd.folder.socket(), &alone) {
        Err(ProtocolError::Refused(refused)) => {
            assert_eq!(refused.code, RefusalCode::ProtocolVersion);
            let text = "the daemon speaks protocol 1 to 3, this gt speaks 4: upgrade the daemon (gtd) to the version of this gt";
            assert_eq!(refused.text, text);
        }
        _ => panic!("it was not refused"),
    }
}
