//! Attacks by TCP, where every byte is the client's: handshakes, frames, and the end of the connection.
//!
//! As in `attacks`, the clients print `count NAME` and `breach WHAT`.

use crate::attacks::{LAST_TOKEN, PATIENCE, breach, count, garbled};
use crate::seeds::client_messages;
use crate::streams::{Dice, encoded, mutated, valid};
use crate::support::f32s;
use crate::{training, users};
use gt_bridge::frame::{self, Frame, HEADER_BYTES, MAGIC, push_data, push_message, push_slots};
use gt_bridge::handshake::{ConnectionPurpose, HandshakeReply, HandshakeRequest};
use gt_ops::wire::{ArenaRange, Command, Slot};
use gt_protocol::address::TcpAddress;
use gt_protocol::limits::HANDSHAKES_MAX;
use gt_protocol::{Address, ClientMessage, Hello, PROTOCOL_VERSION, Role};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The address at which the daemon listens, and its token.
pub struct Port {
    pub address: Address,
    pub token: String,
}

pub type Attack = fn(&Port, &mut Dice<'_>);

pub const ATTACKS: [(&str, Attack); 11] = [
    ("tcp-trains-until-killed", trains),
    ("tcp-says-nothing", says_nothing),
    ("tcp-dribbles", dribbles),
    ("tcp-is-nobody", is_nobody),
    ("tcp-sends-mutants", sends_mutants),
    ("tcp-garbles-frames", garbles_frames),
    ("tcp-garbles-control", garbles_control),
    ("tcp-reads-nothing", reads_nothing),
    ("tcp-half-closes", half_closes),
    ("tcp-closes-early", closes_early),
    ("tcp-guesses-tokens", guesses_tokens),
];

/// Connections that guess tokens at the same time.
const GUESSES_AT_ONCE: usize = 32;
const ARENA_BYTES: u64 = 1 << 20;
/// The id of the tensor that is uploaded and fetched, larger than the ids in a stream.
const LARGE_ID: u64 = 1000;
const LARGE_BYTES: u64 = 1 << 16;

impl Port {
    pub fn dial(&self) -> Option<TcpStream> {
        let Address::Tcp(TcpAddress { host, port, .. }) = &self.address else { return None };
        let tcp = TcpStream::connect((host.as_str(), *port)).ok()?;
        tcp.set_nodelay(true).ok()?;
        Some(tcp)
    }

    fn handshake(&self) -> HandshakeRequest {
        HandshakeRequest {
            protocol_version: PROTOCOL_VERSION,
            protocol_version_max: None,
            token: self.token.clone(),
            purpose: ConnectionPurpose::Session,
            pid: std::process::id(),
            hello: Hello::new(Role::Client, Some("tcp-attacker".into())),
        }
    }

    /// Opens a session; none if the daemon refuses it.
    fn session(&self) -> Option<Wire> {
        self.connection(Role::Client)
    }

    fn connection(&self, role: Role) -> Option<Wire> {
        let mut wire = Wire { tcp: self.dial()?, unread: Vec::new() };
        wire.say(&said(&HandshakeRequest {
            hello: Hello::new(role, Some("tcp-attacker".into())),
            ..self.handshake()
        }))?;
        match wire.answer()? {
            HandshakeReply::Welcome(_) => Some(wire),
            _ => None,
        }
    }
}

/// The next event of a connection.
enum Next {
    Slots(Vec<u64>),
    Other,
    Ended,
    Silence,
}

struct Wire {
    tcp: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    fn say(&mut self, bytes: &[u8]) -> Option<()> {
        self.tcp.write_all(bytes).ok()
    }

    /// Reads more bytes: none if the connection has ended, false if nothing comes until `deadline`.
    fn read(&mut self, deadline: Instant) -> Option<bool> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.tcp.set_read_timeout(Some(left)).ok()?;
        let mut bytes = [0; 1 << 14];
        match self.tcp.read(&mut bytes) {
            Ok(0) => None,
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                Some(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(false),
            Err(_) => None,
        }
    }

    fn next(&mut self, deadline: Instant) -> Next {
        loop {
            let found = match frame::decode(&self.unread) {
                Err(error) => {
                    breach(&format!("the daemon sends no frame: {error}"));
                    return Next::Ended;
                }
                Ok(None) => None,
                Ok(Some((frame, len))) => {
                    let next = match frame {
                        Frame::Slots(payload) => Next::Slots(frame::slots_in(payload).map(|slot| slot[0]).collect()),
                        Frame::Message(_) | Frame::Data { .. } | Frame::Records(_) => Next::Other,
                    };
                    Some((next, len))
                }
            };
            if let Some((next, len)) = found {
                self.unread.drain(..len);
                return next;
            }
            match self.read(deadline) {
                Some(true) => {}
                Some(false) if Instant::now() < deadline => {}
                Some(false) => return Next::Silence,
                None => return Next::Ended,
            }
        }
    }

    /// The daemon's answer to a handshake; none if it closes the connection without one.
    fn answer(&mut self) -> Option<HandshakeReply> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(rest) = self.unread.get(MAGIC.len()..)
                && let Ok(Some((Frame::Message(message), len))) = frame::decode(rest)
            {
                let answer = serde_json::from_slice(message).ok();
                self.unread.drain(..MAGIC.len() + len);
                return answer;
            }
            if !self.read(deadline)? && Instant::now() > deadline {
                return None;
            }
        }
    }

    /// Whether a stream that ends with [`LAST_TOKEN`] was accepted, rejected or left unfinished.
    fn outcome(&mut self) -> &'static str {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next(deadline) {
                Next::Slots(tokens) if tokens.contains(&LAST_TOKEN) => return "accepted",
                Next::Slots(_) | Next::Other => {}
                Next::Ended => return "rejected",
                // The daemon may read the last bytes as the rest of a command or a frame.
                Next::Silence => return "unfinished",
            }
        }
    }
}

fn said(request: &HandshakeRequest) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    push_message(&mut bytes, &serde_json::to_vec(request).expect("it is serializable"));
    bytes
}

fn message(bytes: &mut Vec<u8>, message: &ClientMessage) {
    push_message(bytes, &serde_json::to_vec(message).expect("it is serializable"));
}

/// All bytes of a session: an arena, `stream`, an upload and a fetch, and the last token.
fn session_with(stream: &[Vec<Slot>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let range = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: LARGE_BYTES };
    message(&mut bytes, &ClientMessage::GrowArena { bytes: ARENA_BYTES });
    push_slots(&mut bytes, &stream.concat());
    push_data(&mut bytes, 0, 0, LARGE_BYTES as usize, |bytes| bytes.fill(7));
    let there_and_back = [
        Command::Allocate { out: LARGE_ID, meta: f32s(&[LARGE_BYTES as usize / 4]) },
        Command::Write { token: 1, id: LARGE_ID, offset_bytes: 0, from: range },
        Command::Fetch { token: 2, id: LARGE_ID, offset_bytes: 0, to: range },
        Command::Sync { token: LAST_TOKEN },
    ];
    push_slots(&mut bytes, &encoded(&there_and_back).concat());
    bytes
}

fn trains(port: &Port, dice: &mut Dice<'_>) {
    let _ = training::train(&port.address, dice.below(4), true);
}

/// Opens up to twice as many connections as may be in their handshake; most of them stay silent.
fn says_nothing(port: &Port, dice: &mut Dice<'_>) {
    let whole = said(&port.handshake());
    let mut crowd: Vec<TcpStream> =
        (0..1 + dice.below(u64::from(HANDSHAKES_MAX) * 2)).filter_map(|_| port.dial()).collect();
    for tcp in &mut crowd {
        if dice.percent(30) {
            let _ = tcp.write_all(&whole[..dice.index(whole.len())]);
        }
    }
    count("tcp_crowds");
    std::thread::sleep(PATIENCE * 3);
}

/// Sends a session byte by byte, and sometimes stops before its end.
fn dribbles(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let Some(mut wire) = port.session() else { continue };
        let stream = valid(dice);
        let mut bytes = Vec::new();
        push_slots(&mut bytes, &encoded(&stream).concat());
        push_slots(&mut bytes, &encoded(&[Command::Sync { token: LAST_TOKEN }]).concat());
        let enough = if dice.percent(50) { bytes.len() } else { dice.index(bytes.len()) };
        if bytes[..enough].iter().all(|byte| wire.say(&[*byte]).is_some()) && enough == bytes.len() {
            count(&format!("dribbles_{}", wire.outcome()));
        }
    }
}

/// Sends handshakes that must be refused, and bytes that are no handshake.
fn is_nobody(port: &Port, dice: &mut Dice<'_>) {
    // A user who guesses tokens is refused, so this one must be another than those who train.
    let may_guess = users::is_nobody();
    loop {
        let mut request = port.handshake();
        let mut raw = None;
        match if may_guess { dice.below(9) } else { dice.pick(&[4, 5, 6, 7]) } {
            0 => request.token.clear(),
            1 => drop(request.token.pop()),
            2 => request.token.push('0'),
            3 => request.token = request.token.to_uppercase() + "é",
            4 => request.protocol_version = dice.pick(&[0, PROTOCOL_VERSION + 1, u32::MAX]),
            5 => request.hello = Hello::new(dice.pick(&[Role::Worker, Role::Observer]), None),
            6 => request.hello.name = Some("x".repeat(5000)),
            7 => raw = Some(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
            _ => {
                request.token = "0".repeat(64);
                let text = serde_json::to_vec(&request).expect("it is serializable");
                let mut bytes = MAGIC.to_vec();
                let text = garbled(text, dice);
                if (1..=gt_protocol::limits::MESSAGE_BYTES_MAX).contains(&text.len()) {
                    push_message(&mut bytes, &text);
                }
                raw = Some(bytes);
            }
        }
        let Some(tcp) = port.dial() else { continue };
        let mut wire = Wire { tcp, unread: Vec::new() };
        let has_magic_alone = raw.as_ref().is_some_and(|bytes| bytes.len() == MAGIC.len());
        if has_magic_alone || wire.say(&raw.unwrap_or_else(|| said(&request))).is_none() {
            continue;
        }
        match wire.answer() {
            Some(HandshakeReply::Refused(_)) => count("strangers_refused"),
            Some(answer) => breach(&format!("a stranger comes in: {answer:?}")),
            None => count("strangers_hung_up_on"),
        }
    }
}

fn sends_mutants(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let Some(mut wire) = port.session() else { continue };
        let commands = valid(dice);
        let honest = dice.percent(10);
        let stream = if honest { encoded(&commands) } else { mutated(&commands, dice) };
        let _ = wire.say(&session_with(&stream));
        count(&format!("{}_{}", if honest { "honest" } else { "mutants" }, wire.outcome()));
    }
}

/// The offsets of the frames in `bytes`.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let frames = std::iter::from_fn(|| {
        let (_, len) = frame::decode(&bytes[at..]).ok()??;
        at += len;
        Some(at - len)
    });
    frames.collect()
}

/// Sends a valid session in which one frame has another kind, length or offset, is cut short, or follows extra bytes.
fn garbles_frames(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let Some(mut wire) = port.session() else { continue };
        let mut bytes = session_with(&encoded(&valid(dice)));
        let start = dice.pick(&starts(&bytes));
        match dice.below(6) {
            0 => bytes[start] = dice.below(256) as u8,
            1 => bytes[start + 1 + dice.index(3)] = 1 + dice.below(255) as u8,
            2 => bytes[start + 4 + dice.index(4)] ^= 1 << dice.below(8),
            // In a frame of arena bytes, this is their offset.
            3 => bytes[start + HEADER_BYTES + dice.index(16)] = dice.below(256) as u8,
            4 => drop(bytes.drain(start..start + 1 + dice.index(24))),
            _ => drop(bytes.splice(start..start, (0..1 + dice.below(20)).map(|at| at as u8))),
        }
        let _ = wire.say(&bytes);
        count(&format!("frames_{}", wire.outcome()));
    }
}

/// Asks as `gtctl` does, by messages that are garbled, or that belong in a session; some answers are not read.
fn garbles_control(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let Some(mut wire) = port.connection(Role::Control) else { continue };
        count("tcp_controls");
        for _ in 0..1 + dice.below(12) {
            let mut bytes = Vec::new();
            let message = &client_messages()[dice.index(client_messages().len())];
            let text = serde_json::to_vec(message).expect("it is serializable");
            let text = if dice.percent(50) { garbled(text, dice) } else { text };
            match dice.below(8) {
                0 => push_slots(&mut bytes, &encoded(&[Command::Sync { token: LAST_TOKEN }]).concat()),
                _ if (1..=gt_protocol::limits::MESSAGE_BYTES_MAX).contains(&text.len()) => {
                    push_message(&mut bytes, &text);
                }
                _ => continue,
            }
            if wire.say(&bytes).is_none() {
                break;
            }
            let is_over = dice.percent(70) && matches!(wire.next(Instant::now() + PATIENCE), Next::Ended);
            if is_over {
                count("tcp_controls_ended");
                break;
            }
        }
    }
}

/// Fetches more and more, and reads nothing.
fn reads_nothing(port: &Port, dice: &mut Dice<'_>) {
    let Some(mut wire) = port.session() else { return };
    let mut bytes = session_with(&[]);
    let range = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: LARGE_BYTES };
    let fetches: Vec<Command> = (10..10 + dice.below(900))
        .map(|token| Command::Fetch { token, id: LARGE_ID, offset_bytes: 0, to: range })
        .collect();
    push_slots(&mut bytes, &encoded(&fetches).concat());
    let _ = wire.say(&bytes);
    count("tcp_deaf");
    // The client keeps sending until it is killed or the daemon closes the connection.
    let sync = encoded(&[Command::Sync { token: 3 }]).concat();
    let mut more = Vec::new();
    push_slots(&mut more, &sync);
    let _ = wire.tcp.set_write_timeout(Some(PATIENCE));
    while wire.say(&more).is_some() {
        std::thread::sleep(Duration::from_millis(dice.below(3)));
    }
}

/// Shuts down one direction of the connection after some of the bytes, and waits until the daemon closes it.
fn half_closes(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let Some(mut wire) = port.session() else { continue };
        let bytes = session_with(&encoded(&valid(dice)));
        let enough = if dice.percent(30) { bytes.len() } else { dice.index(bytes.len()) };
        let _ = wire.say(&bytes[..enough]);
        let _ = wire.tcp.shutdown(dice.pick(&[Shutdown::Write, Shutdown::Write, Shutdown::Read]));
        loop {
            match wire.next(Instant::now() + Duration::from_secs(10)) {
                Next::Ended => break count("half_closed_ended"),
                Next::Silence => break breach("a session goes on whose client has said its last"),
                _ => {}
            }
        }
    }
}

/// Closes connections after some bytes of the handshake, or just before the answer; some with a reset.
fn closes_early(port: &Port, dice: &mut Dice<'_>) {
    let whole = said(&port.handshake());
    loop {
        let Some(mut tcp) = port.dial() else { continue };
        let enough = if dice.percent(50) { whole.len() } else { dice.index(whole.len()) };
        let _ = tcp.write_all(&whole[..enough]);
        if dice.percent(50) {
            let _ = rustix::net::sockopt::set_socket_linger(&tcp, Some(Duration::ZERO));
        }
        count("tcp_closed_early");
    }
}

/// Guesses tokens by many connections at once, some of which do not wait for the answer.
fn guesses_tokens(port: &Port, dice: &mut Dice<'_>) {
    if !users::is_nobody() {
        return;
    }
    loop {
        let mut wires = Vec::new();
        for _ in 0..GUESSES_AT_ONCE {
            let Some(tcp) = port.dial() else { continue };
            let mut wire = Wire { tcp, unread: Vec::new() };
            let guess = HandshakeRequest { token: format!("{:032x}", dice.word()), ..port.handshake() };
            if wire.say(&said(&guess)).is_some() && dice.percent(50) {
                wires.push(wire);
            }
            count("tokens_guessed");
        }
        for mut wire in wires {
            if let Some(HandshakeReply::Welcome(_)) = wire.answer() {
                breach("a guessed token opens a session");
            }
        }
    }
}
