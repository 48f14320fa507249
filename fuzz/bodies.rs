//! Fuzz targets: each decodes arbitrary bytes, as a hostile peer could send them. A decoder may refuse its input but
//! never panic.
//!
//! `cargo fuzz` searches for inputs that make one panic (`targets/`); `cargo test --package gtd --test decoders` tries
//! some thousands of inputs with the other tests.

use crate::streams::{self, Dice};
use gt_bridge::frame::{self, Frame};
use gt_bridge::frame_assembly::{FrameAssembly, LENT_HEAD_BYTES};
use gt_bridge::handshake::{HandshakeReply, HandshakeRequest};
use gt_bridge::link_frame::{LinkFrame, read_shared_slots};
use gt_ops::cost::cost;
use gt_ops::event::{Event, LogLine};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::wire::{Command, Completion, Encoder, Slot, decode, slots_of};
use gt_ops::{Meta, Operand, TensorId};
use gt_protocol::{Address, Hello, Role, TapeReader};
use gt_shm::Socket;
use gt_shm::broadcast::{HeapBroadcast, Reader, Record, Writer};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

pub type FuzzTarget = fn(&[u8]);

/// Lent bytes with their head.
type LentPiece = ([u8; LENT_HEAD_BYTES], Vec<u8>);

/// All targets, by name.
pub const FUZZ_TARGETS: [(&str, FuzzTarget); 7] = [
    ("slots", slots),
    ("stream", stream),
    ("messages", messages),
    ("handshake", handshake),
    ("config", config),
    ("frames", frames),
    ("links", links),
];

fn slots_in(bytes: &[u8]) -> Vec<Slot> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(64), 0);
    frame::slots_in(&padded).collect()
}

/// Slots of rings in both directions and events of the instruction log. A decoded command must survive another round
/// trip.
pub fn slots(bytes: &[u8]) {
    let slots = slots_in(bytes);
    for slot in &slots {
        let completion = Completion::decode(slot);
        // Codes of a newer daemon are lost in decoding; what was decoded must survive a round trip.
        assert_eq!(Completion::decode(&completion.encode()), completion);
        let (words, _) = slot.split_first_chunk::<7>().expect("a slot has eight words");
        if let Some(event) = Event::decode(words) {
            // A line may be cut off or changed, too.
            let _ = LogLine::Event(slot[7], event).to_string().parse::<LogLine>();
        }
    }
    let _ = String::from_utf8_lossy(bytes).parse::<LogLine>();
    let mut encoder = Encoder::new();
    let mut again = Encoder::new();
    commands(&slots, |command| {
        let sent = encoder.encode(&command).to_vec();
        let back = decode(&sent).expect("an encoder's slots are a command");
        // Slots are compared, since a NaN differs from itself.
        assert_eq!(again.encode(&back), sent);
    });
}

/// Decodes the commands in `slots` up to the first that is malformed.
fn commands(mut slots: &[Slot], mut each: impl FnMut(Command)) {
    while let Some(header) = slots.first() {
        let Ok(count) = slots_of(header) else { return };
        let Some((own, rest)) = slots.split_at_checked(count) else { return };
        let Ok(command) = decode(own) else { return };
        each(command);
        slots = rest;
    }
}

/// A stream of commands with mutations, through the shape and dtype rules that the daemon applies.
pub fn stream(bytes: &[u8]) {
    let dice = &mut Dice::of(bytes);
    let slots = streams::mutated(&streams::valid(dice), dice).concat();
    let mut tensors: HashMap<TensorId, Meta> = HashMap::new();
    commands(&slots, |command| match command {
        Command::Allocate { out, meta } => {
            tensors.insert(out, meta);
        }
        Command::Free { ids } => tensors.retain(|id, _| !ids.contains(id)),
        Command::Op(instruction) => {
            let metas: Option<Vec<InputMeta>> = instruction
                .inputs
                .as_slice()
                .iter()
                .map(|operand| match operand {
                    Operand::Tensor(id) => tensors.get(id).map(|meta| InputMeta::Tensor(*meta)),
                    Operand::Scalar(scalar) => Some(InputMeta::Scalar(*scalar)),
                })
                .collect();
            let Some(metas) = metas else { return };
            if let Ok(meta) = infer(instruction.op, &metas, &instruction.attrs) {
                let operands = metas.iter().filter_map(InputMeta::tensor);
                let _ = cost(instruction.op, operands, &instruction.attrs, &meta);
                tensors.insert(instruction.out, meta);
            }
        }
        _ => {}
    });
}

/// Two connected sockets; `bytes` can be read from the first. None if they are too long for a message.
fn said(bytes: &[u8]) -> Option<(Socket, Socket)> {
    let (ours, theirs) = Socket::pair().expect("a descriptor is free");
    theirs.send(bytes, &[], Some(Duration::ZERO)).ok()?;
    Some((ours, theirs))
}

/// Messages of the control socket, to the daemon and from it.
pub fn messages(bytes: &[u8]) {
    if let Some((socket, _other)) = said(bytes)
        && let Ok(message) = gt_protocol::recv_client_message(&socket, Duration::ZERO)
    {
        let text = serde_json::to_vec(&message).expect("what was read can be said");
        let (socket, _other) = said(&text).expect("there is room");
        let again = gt_protocol::recv_client_message(&socket, Duration::ZERO).expect("what was said can be read");
        assert_eq!(serde_json::to_vec(&again).expect("as above"), text);
    }
    if let Some((socket, _other)) = said(bytes) {
        let _ = gt_protocol::recv_daemon_message(&socket, Duration::ZERO);
    }
}

/// Handshakes at both ends, by socket and by TCP.
pub fn handshake(bytes: &[u8]) {
    if let Some((socket, _other)) = said(bytes)
        && let Err(error) = gt_protocol::recv_hello(&socket, Duration::ZERO)
    {
        let _ = gt_protocol::refusal_for(&error).to_string();
    }
    if let Some((socket, _other)) = said(bytes) {
        let _ = gt_protocol::connect_over(socket, &Hello::new(Role::Client, None));
    }
    let _ = serde_json::from_slice::<HandshakeRequest>(bytes);
    let _ = serde_json::from_slice::<HandshakeReply>(bytes);
    let _ = std::str::from_utf8(bytes).map(|text| text.parse::<Address>());
}

/// The configuration file; an error must have a position.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = gt_config::parse(&text, Path::new("gtd.yaml")) {
        assert!(error.to_string().starts_with("gtd.yaml:"), "{error}");
    }
}

/// Frames of a TCP connection. A frame of slots or records must have the same bytes when it is encoded again. Records
/// are read as a client's copy of the tape.
pub fn frames(mut bytes: &[u8]) {
    while let Ok(Some((frame, len))) = frame::decode(bytes) {
        assert!(len > 0 && len <= bytes.len(), "{len} of {} bytes", bytes.len());
        if let Frame::Slots(payload) = frame {
            let slots: Vec<Slot> = frame::slots_in(payload).collect();
            let mut out = Vec::new();
            frame::push_slots(&mut out, &slots);
            assert_eq!(out, bytes[..len]);
        }
        if let Frame::Records(payload) = frame {
            let records: Vec<Record> = frame::records_in(payload).collect();
            let mut out = Vec::new();
            frame::push_records(&mut out, &records);
            assert_eq!(out, bytes[..len]);
            read_copy(&records);
        }
        bytes = &bytes[len..];
    }
}

/// The stream of a link between machines. Its frames are the same however its bytes come.
pub fn links(bytes: &[u8]) {
    let assembled = |blocks: &mut dyn Iterator<Item = &[u8]>| {
        let (mut assembly, mut found) = (FrameAssembly::default(), Vec::new());
        let mut lent = Vec::new();
        for mut block in blocks {
            loop {
                match assembly.next(&mut block) {
                    Ok(Some(frame)) => found.push(frame.clone()),
                    Ok(None) => {
                        let Some((head, left)) = assembly.lent() else { break };
                        let (bytes, rest) = block.split_at(block.len().min(left));
                        if bytes.is_empty() {
                            break;
                        }
                        lent.push((head, bytes.to_vec()));
                        assembly.note_lent(bytes.len());
                        block = rest;
                    }
                    Err(_) => return (found, joined(lent)),
                }
            }
        }
        (found, joined(lent))
    };
    let (frames, lent) = assembled(&mut std::iter::once(bytes));
    assert_eq!(assembled(&mut bytes.chunks(1)), (frames.clone(), lent));
    for frame in &frames {
        match LinkFrame::decode(frame) {
            Ok(LinkFrame::Slots { slots, .. }) => assert_eq!(slots.len() * size_of::<Slot>() + 5, frame.len()),
            Ok(LinkFrame::SharedSlots(rest)) => {
                let mut taken = 0;
                let read = read_shared_slots(rest, |_, _| taken += 1);
                assert!(taken * size_of::<Slot>() <= rest.len());
                if let Err(why) = read {
                    assert!(why.ends_with("bytes of shared slots are too few"), "{why}");
                }
            }
            Ok(LinkFrame::Message(rest)) => assert_eq!(rest.len() + 1, frame.len()),
            Ok(LinkFrame::Data { bytes, .. }) => assert_eq!(bytes.len() + 25, frame.len()),
            Err(why) => assert!(why.starts_with("a frame of"), "{why}"),
        }
    }
}

/// The bytes that were lent, those with one head in one piece.
fn joined(pieces: Vec<LentPiece>) -> Vec<LentPiece> {
    let mut whole: Vec<LentPiece> = Vec::new();
    for (head, bytes) in pieces {
        match whole.last_mut() {
            Some((last, joined)) if *last == head => joined.extend(bytes),
            _ => whole.push((head, bytes)),
        }
    }
    whole
}

/// Reads records as a copy of the tape, in a ring that some of them overwrite.
fn read_copy(records: &[Record]) {
    let mem = HeapBroadcast::new(16);
    let (mut writer, mut reader) = (Writer::new(mem.clone()), TapeReader::new(Reader::from_start(mem)));
    for (at, record) in records.iter().enumerate() {
        writer.write(record);
        if at % 40 > 20 {
            while let Some(found) = reader.read() {
                let _ = Event::decode(&found.record);
            }
        }
    }
}
