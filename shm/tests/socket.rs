//! Sockets and doorbells: messages arrive whole, with exactly the expected descriptors, and no call blocks.
//!
//! These tests are not in the binary of the tests that start processes: between fork and exec a child has copies of
//! every socket, which would delay the hang-ups that these tests expect.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gt_shm::socket::MESSAGE_FDS_MAX;
use gt_shm::{Doorbell, Error, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::FdFlags;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);

const PATIENCE: Duration = Duration::from_secs(60);

/// True if `fd` is readable now.
fn is_readable(fd: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).unwrap() == 1
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader.into(), writer.into())
}

fn abstract_name(what: &str) -> PathBuf {
    format!("@gt-test-{}-{what}", std::process::id()).into()
}

/// True if every copy of the pipe's write end is closed.
fn all_closed(mut reader: std::fs::File) -> bool {
    reader.read(&mut [0]).unwrap() == 0
}

#[test]
fn messages_and_descriptors_arrive_whole() {
    let (a, b) = Socket::pair().unwrap();
    let (reader, writer) = pipe();
    a.send(b"first", &[writer.as_fd()], NOW).unwrap();
    a.send(b"second", &[], NOW).unwrap();
    drop(writer);
    let mut buffer = [0; 64];
    let first = b.recv(&mut buffer, 1, NOW).unwrap();
    assert_eq!(&buffer[..first.len], b"first");
    let flags = rustix::io::fcntl_getfd(&first.fds[0]).unwrap();
    assert!(flags.contains(FdFlags::CLOEXEC), "received descriptors do not leak into children");
    rustix::io::write(&first.fds[0], b"x").unwrap();
    drop(first);
    let second = b.recv(&mut buffer, 0, NOW).unwrap();
    assert_eq!((&buffer[..second.len], second.fds.len()), (&b"second"[..], 0));
    let mut rest = Vec::new();
    std::fs::File::from(reader).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"x");
}

#[test]
fn surplus_descriptors_are_refused_and_closed() {
    for (sent, allowed) in [(1, 0), (2, 1), (4, 3), (MESSAGE_FDS_MAX, 0), (MESSAGE_FDS_MAX, 3)] {
        let (a, b) = Socket::pair().unwrap();
        let (reader, writer) = pipe();
        a.send(b"x", &vec![writer.as_fd(); sent], NOW).unwrap();
        drop(writer);
        let received = b.recv(&mut [0; 8], allowed, NOW);
        assert!(
            matches!(received, Err(Error::SurplusDescriptors { expected }) if expected == allowed),
            "{sent} sent, {allowed} allowed: {received:?}"
        );
        assert!(all_closed(reader.into()), "{sent} sent, {allowed} allowed");
        // The connection itself still works.
        a.send(b"y", &[], NOW).unwrap();
        assert_eq!(b.recv(&mut [0; 8], 0, NOW).unwrap().len, 1);
    }
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let (a, b) = Socket::pair().unwrap();
    let (reader, writer) = pipe();
    a.send(&[1; 100], &[writer.as_fd()], NOW).unwrap();
    drop(writer);
    let received = b.recv(&mut [0; 99], 1, NOW);
    assert!(matches!(received, Err(Error::MessageTooLong { limit_bytes: 99 })), "{received:?}");
    assert!(all_closed(reader.into()));
    let sent = a.send(&vec![0; 16 << 20], &[], NOW);
    assert!(sent.is_err_and(|error| error.to_string().contains("too long")));
}

#[test]
fn waits_end() {
    let (a, b) = Socket::pair().unwrap();
    let brief = Duration::from_millis(2);
    assert!(matches!(b.recv(&mut [0; 8], 0, NOW), Err(Error::TimedOut(Duration::ZERO))));
    assert!(matches!(b.recv(&mut [0; 8], 0, Some(brief)), Err(Error::TimedOut(t)) if t == brief));
    // A peer that reads nothing fills its queue, and sends time out.
    let error = loop {
        if let Err(error) = a.send(&[0; 4096], &[], Some(brief)) {
            break error;
        }
    };
    assert!(matches!(error, Error::TimedOut(_)), "{error}");
}

#[test]
fn a_hang_up_is_seen_by_both_calls_and_by_a_look() {
    let (a, b) = Socket::pair().unwrap();
    assert!(!a.is_hung_up());
    b.send(b"last words", &[], NOW).unwrap();
    drop(b);
    assert!(a.is_hung_up());
    let mut buffer = [0; 16];
    assert_eq!(a.recv(&mut buffer, 0, NOW).unwrap().len, 10, "what was said before counts");
    assert!(matches!(a.recv(&mut buffer, 0, NOW), Err(Error::HungUp)));
    assert!(matches!(a.send(b"x", &[], NOW), Err(Error::HungUp)));

    let (a, b) = Socket::pair().unwrap();
    let copy = Socket::from(b.as_fd().try_clone_to_owned().unwrap());
    b.shut_down();
    assert!(a.is_hung_up(), "though a copy is open");
    drop(copy);
}

#[test]
fn a_listener_learns_who_connects() {
    let name = abstract_name("listen");
    let listener = Socket::listen(&name).unwrap();
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().unwrap().is_none());
    let client = Socket::connect(&name).unwrap();
    let server = listener.accept().unwrap().unwrap();
    for end in [&client, &server] {
        let peer = end.peer_credentials().unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::getuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getgid().as_raw());
        assert!(!is_readable(&end.peer_pidfd().unwrap()), "this process is alive");
    }
    client.send(b"hello", &[], NOW).unwrap();
    assert_eq!(server.recv(&mut [0; 8], 0, Some(PATIENCE)).unwrap().len, 5);
    assert!(Socket::listen(&name).is_err(), "the name is taken");
}

#[test]
fn paths_work_and_bad_ones_say_why() {
    let path = std::env::temp_dir().join(format!("gt-test-{}.sock", std::process::id()));
    let listener = Socket::listen(&path).unwrap();
    Socket::connect(&path).unwrap();
    drop(listener);
    let error = Socket::connect(&path).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = Socket::connect(&path).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    let error = Socket::connect(&PathBuf::from("/x".repeat(100))).unwrap_err();
    assert!(error.to_string().contains("108"), "{error}");
}

#[test]
fn a_doorbell_latches_and_is_silenced_once() {
    let bell = Doorbell::new().unwrap();
    let theirs = bell.try_clone().unwrap();
    assert!(!bell.silence());
    theirs.ring();
    theirs.ring();
    assert!(is_readable(&bell));
    assert!(bell.silence());
    assert!(!bell.silence());
    assert!(!is_readable(&bell));
}

#[test]
fn a_doorbell_that_its_peer_made_blocking_does_not_block() {
    let bell = Doorbell::new().unwrap();
    let theirs = bell.try_clone().unwrap();
    rustix::io::ioctl_fionbio(&theirs, false).unwrap();
    // Would block forever if the read depended on the file's O_NONBLOCK.
    assert!(!bell.silence());
    theirs.ring();
    assert!(bell.silence());
}
