//! Everything that reads what somebody else wrote, with what nobody should write: the bodies of the fuzzing targets on
//! bytes that follow from a seed, some of any kind and most made from what is right.

#[path = "../../../fuzz/bodies.rs"]
mod bodies;
#[path = "../storm/streams.rs"]
mod streams;

use streams::Dice;

/// Inputs for each.
const CASES: u64 = 3000;

const TEXTS: [&str; 8] = [
    r#"{"message":"hello","protocol_version":1,"client_version":"0.1.0","name":"ana","role":"client"}"#,
    r#"{"message":"grow_arena","bytes":4096}"#,
    r#"{"message":"set_limits","uid":7,"change":{"weight":{"to":2.5},"sessions":"default"}}"#,
    r#"{"message":"refused","code":"exhausted","text":"no","protocol_version":1}"#,
    r#"{"message":"welcome","protocol_version":1,"daemon_version":"0.1.0","daemon_pid":3,"session":{"session_id":1,"sq_slots":64,"cq_slots":64,"arena_bytes_max":9}}"#,
    "workers: [cpu:2, proc-cpu:1]\nthreads: 3\nmemory: 64M\nlimits: {sessions: 5, weight: 2}\nusers:\n  0: {arena: 1G}\n",
    "localhost:12345",
    "unix:/run/gt/gtd.sock",
];

fn right(name: &str, dice: &mut Dice<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match name {
        "slots" => {
            let words = streams::mutated(&streams::valid(dice), dice).concat().concat();
            bytes = words.into_iter().flat_map(u64::to_le_bytes).collect();
        }
        "frames" => {
            gt_bridge::frame::push_slots(&mut bytes, &streams::encoded(&streams::valid(dice)).concat());
            gt_bridge::frame::push_data(&mut bytes, 0, 64, 100, |to| to.fill(7));
            gt_bridge::frame::push_message(&mut bytes, TEXTS[1].as_bytes());
        }
        _ => bytes.extend_from_slice(dice.pick(&TEXTS).as_bytes()),
    }
    bytes
}

fn input(name: &str, dice: &mut Dice<'_>) -> Vec<u8> {
    if dice.percent(20) {
        return (0..dice.below(600)).map(|_| dice.below(256) as u8).collect();
    }
    let mut bytes = right(name, dice);
    for _ in 0..dice.below(5) {
        let (at, other) = (dice.index(bytes.len().max(1)), dice.index(bytes.len().max(1)));
        match dice.below(6) {
            _ if bytes.is_empty() => {}
            0 => bytes.truncate(at),
            1 => bytes.swap(at, other),
            2 => bytes[at] ^= 1 << dice.below(8),
            3 => bytes[at] = dice.below(256) as u8,
            4 => bytes.insert(at, dice.pick(b"\"{}[]:,-0 9eE.\n\t#&*!|>%@\\")),
            _ => drop(bytes.drain(at.min(other)..at.max(other))),
        }
    }
    bytes
}

#[test]
fn nothing_that_can_be_said_makes_who_reads_it_panic() {
    for (name, body) in bodies::BODIES {
        for case in 0..CASES {
            let bytes = input(name, &mut Dice::seeded(case));
            if std::panic::catch_unwind(|| body(&bytes)).is_err() {
                panic!("{name}, case {case}: {bytes:?}");
            }
        }
    }
}

#[test]
fn what_is_right_is_read() {
    for (name, body) in bodies::BODIES {
        body(&right(name, &mut Dice::seeded(1)));
    }
    for case in 0..200 {
        let commands = streams::valid(&mut Dice::seeded(case));
        for (command, slots) in commands.iter().zip(streams::encoded(&commands)) {
            assert_eq!(gt_ops::wire::decode(&slots).as_ref(), Ok(command));
        }
    }
}
