//! The instruction log: all events in order, or the number of missing ones.

use crate::support::{Client, Folder, Gtd, eventually};
use gt_ops::Op;
use gt_ops::event::{Event, EventKind, Subject};
use gt_ops::wire::{Command, binary_slot};
use gt_protocol::{Hello, NumberedRecord, Role, attach_tape, connect};
use nix::sys::signal::Signal;
use std::collections::HashMap;

fn logged(run: impl FnOnce(&mut Client)) -> Vec<String> {
    let mut gtd = Gtd::start_with(&[], &[("GT_INSTRUCTION_LOG", "ops.log")]);
    let mut client = gtd.client();
    run(&mut client);
    drop(client);
    crate::support::eventually("the session ends", || gtd.status().sessions.is_empty());
    gtd.signal(Signal::SIGTERM);
    assert!(gtd.wait().success());
    let log = std::fs::read_to_string(gtd.folder.0.join("ops.log")).unwrap();
    log.lines().map(str::to_string).collect()
}

/// The events without their times and numbers.
fn events(lines: &[String]) -> Vec<String> {
    let is_time = |word: &&str| ["at=", "took=", "estimate="].iter().any(|name| word.starts_with(name));
    let event = |line: &String| {
        let words = line.splitn(3, " | ").nth(2).unwrap().split(' ').filter(|word| !is_time(word));
        words.collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(event).collect()
}

#[test]
fn the_log_has_all_events_in_order() {
    let lines = logged(|client| {
        let a = client.full(&[1], 2.0);
        let b = client.binary(Op::Add, a, a);
        client.fetch_f32(b, 1).unwrap();
        client.free(&[a, b]);
        client.sync();
    });
    let numbers: Vec<_> = lines.iter().map(|line| line.split(" | ").nth(1).unwrap().to_string()).collect();
    assert_eq!(numbers, (0..lines.len()).map(|n| format!("#{n:04}")).collect::<Vec<_>>());
    let session = lines[0].split_whitespace().find_map(|word| word.strip_prefix("session_")).unwrap();
    let client = format!("CLIENT session_{session:<7}");
    let worker = format!("WORKER {:<15}", "worker_0");
    let told = [
        format!("CONNECT      | {client} | -               | 0B | op=-"),
        format!("RECV         | {client} | CreationOp      | 128B | op=full result=1"),
        format!("WORKER_RUN   | {worker} | CreationOp      | 128B | op=full result=1 out=float32[1] session={session}"),
        format!("RECV         | {client} | BinaryOp        | 64B | op=add result=2 left=1 right=1"),
        format!("WORKER_RUN   | {worker} | BinaryOp        | 64B | op=add result=2 out=float32[1] session={session}"),
        format!("RECV         | {client} | Fetch           | 4B | op=fetch result=2"),
        format!("WORKER_RUN   | {worker} | Fetch           | 4B | op=fetch result=2 session={session}"),
        format!("SEND         | {client} | Fetch           | 4B | op=fetch result=2"),
        format!("RECV         | {client} | Free            | 64B | op=free result=1 left=2"),
        format!("FREE         | {worker} | Free            | 8B | op=free result=1 result=2 session={session}"),
        format!("RECV         | {client} | Sync            | 64B | op=sync"),
        format!("WORKER_RUN   | {worker} | Sync            | 64B | op=sync session={session}"),
        format!("SEND         | {client} | Sync            | 64B | op=sync"),
        format!("DISCONNECT   | {client} | -               | 0B | op=-"),
    ];
    assert!(lines.iter().all(|line| line.contains(" at=")), "{lines:#?}");
    // The session's name is padded to the width of its column.
    let squeeze = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        events(&lines).iter().map(squeeze).collect::<Vec<_>>(),
        told.iter().map(squeeze).collect::<Vec<_>>(),
        "{lines:#?}"
    );
}

#[test]
fn an_error_is_told_once_where_it_arose() {
    let lines = logged(|client| {
        let (a, b) = (client.full(&[1], 1.0), client.full(&[1 << 46], 1.0));
        let c = client.binary(Op::Add, a, b);
        client.fetch_f32(c, 1).unwrap_err();
    });
    let errors: Vec<_> = lines.iter().filter(|line| line.contains("| ERROR ")).collect();
    assert_eq!(errors.len(), 1, "{lines:#?}");
    assert!(errors[0].contains("op=full result=2"), "{errors:?}");
}

#[test]
fn every_instruction_is_logged_or_counted_as_lost() {
    const ADDS: u64 = 200_000;
    let lines = logged(|client| {
        let one = client.full(&[1], 1.0);
        for _ in 0..ADDS {
            let id = client.id();
            client.send_slots(&[binary_slot(Op::Add, id, one, one)]);
            client.send(&Command::Free { ids: [id, 0, 0, 0, 0, 0, 0] });
        }
        client.sync();
    });
    let mut lost = 0;
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for line in &lines {
        match line.strip_prefix("... ").and_then(|rest| rest.strip_suffix(" events lost")) {
            Some(count) => lost += count.parse::<u64>().unwrap(),
            None => *counts.entry(line.split(" | ").nth(2).unwrap().trim()).or_default() += 1,
        }
    }
    // Each add has RECV and WORKER_RUN, each free RECV and FREE; the full has two events, the sync three, the session
    // two, and the hot path of the adds one, since it never ends.
    let told: u64 = counts.values().sum();
    assert_eq!(told + lost, 4 * ADDS + 2 + 3 + 2 + 1);
    // The last events are never missing.
    assert!(lines.last().unwrap().contains("DISCONNECT"));
    let last_number = lines.last().unwrap().split(" | ").nth(1).unwrap();
    assert_eq!(last_number, format!("#{}", 4 * ADDS + 2 + 3 + 1 + 1));
}

#[test]
fn an_observer_reads_the_same_tape() {
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let a = client.full(&[1], 2.0);
    client.fetch_f32(a, 1).unwrap();
    let observer = connect(&gtd.folder.socket(), &Hello::new(Role::Observer, None)).unwrap();
    let mut tape = attach_tape(&observer.socket, None).unwrap();
    let mut seen = Vec::new();
    while let Some(NumberedRecord { record, .. }) = tape.read() {
        seen.push(Event::decode(&record).unwrap());
    }
    assert_eq!(tape.lost(), 0);
    assert!(seen.iter().all(|event| event.session == client.session()));
    let kinds: Vec<_> = seen.iter().map(|event| (event.kind, event.subject)).collect();
    assert_eq!(kinds[0], (EventKind::Connect, Subject::Nothing));
    assert!(kinds.contains(&(EventKind::Send, Subject::Fetch)));
}

#[test]
fn a_daemon_that_starts_again_keeps_the_log_of_the_one_that_was_killed() {
    let mut gtd = Gtd::start_with(&[], &[("GT_INSTRUCTION_LOG", "ops.log")]);
    let mut client = gtd.client();
    let a = client.full(&[1], 2.0);
    client.fetch_f32(a, 1).unwrap();
    let log = gtd.folder.0.join("ops.log");
    eventually("the fetch is logged", || std::fs::read_to_string(&log).unwrap().contains("op=fetch"));
    gtd.signal(Signal::SIGKILL);
    gtd.wait();
    // The last line was being written.
    let before = std::fs::read_to_string(&log).unwrap() + "   9.999s | #00";
    std::fs::write(&log, &before).unwrap();
    gtd.child = Gtd::spawn(&gtd.folder, &[], &[("GT_INSTRUCTION_LOG", "ops.log")]);
    gtd.wait_listening();
    drop(gtd.client());
    eventually("the next session is logged", || {
        let after = std::fs::read_to_string(&log).unwrap();
        assert!(after.starts_with(&before), "the old lines are lost");
        after[before.len()..].contains("CONNECT")
    });
    let after = std::fs::read_to_string(&log).unwrap();
    let process = gtd.child.id();
    assert!(after[before.len()..].starts_with(&format!("\n... another daemon begins, process {process}\n")), "{after}");
}

#[test]
fn the_log_is_cut_into_files_of_a_length() {
    const BYTES: u64 = 64 << 10;
    let folder = Folder::new();
    let (max, path) = (BYTES.to_string(), folder.0.join("ops.log").display().to_string());
    let options = ["--instruction-log", &path, "--instruction-log-bytes-max", &max];
    let mut gtd = Gtd::start_in(folder, &options, &[]);
    let mut client = gtd.client();
    for n in 0..2000 {
        let id = client.full(&[1], n.into());
        client.fetch_f32(id, 1).unwrap();
        client.free(&[id]);
    }
    drop(client);
    eventually("the session ends", || gtd.status().sessions.is_empty());
    gtd.signal(Signal::SIGTERM);
    assert!(gtd.wait().success());
    let files = ["ops.log.1", "ops.log"].map(|name| std::fs::read_to_string(gtd.folder.0.join(name)).unwrap());
    // A file is replaced once it is that long: by one line, or by those that one read of the tape found.
    assert!((BYTES..BYTES + 4096).contains(&(files[0].len() as u64)), "{}", files[0].len());
    assert!((files[1].len() as u64) < BYTES + 4096);
    assert_eq!(
        std::fs::read_dir(&gtd.folder.0)
            .unwrap()
            .filter(|file| { file.as_ref().unwrap().file_name().to_string_lossy().starts_with("ops.log") })
            .count(),
        2
    );
    let lines = files.concat();
    let events = |line: &str| match line.strip_prefix("... ").and_then(|rest| rest.strip_suffix(" events lost")) {
        Some(lost) => lost.parse::<u64>().unwrap(),
        None => 1,
    };
    let number = |line: &str| line.split('#').nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    let first = number(lines.lines().next().unwrap()).unwrap();
    let last = number(lines.lines().last().unwrap()).unwrap();
    assert_eq!(lines.lines().map(events).sum::<u64>(), last - first + 1, "lines are missing between the files");
    assert!(first > 0 && lines.lines().last().unwrap().contains("DISCONNECT"));
}
