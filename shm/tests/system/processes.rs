//! Two processes, one of them killed. The test binary runs itself as the other process.

use crate::{PATIENCE, wait_readable};
use gt_shm::broadcast::{self, Reader};
use gt_shm::{Arena, ArenaAllocator, ClientPort, DaemonPort, PortFds, SessionState, Slot, Socket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROLE: &str = "GT_SHM_TEST_ROLE";
const SOCKET: &str = "GT_SHM_TEST_SOCKET";
const SQ_SLOTS: u32 = 256;
const CQ_SLOTS: u32 = 64;
const ARENA_BYTES: u64 = 1 << 20;
const TICK: Duration = Duration::from_millis(50);
const SPIN: Duration = Duration::from_micros(3);

fn slot(n: u64) -> Slot {
    [n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, !n]
}

/// The main function of the other process. Run as a test, it does nothing.
#[test]
fn the_other_process() {
    let (Ok(role), Some(socket)) = (std::env::var(ROLE), std::env::var_os(SOCKET)) else {
        return;
    };
    let socket = Socket::connect(Path::new(&socket)).unwrap();
    match role.as_str() {
        "client" => echo_client(&socket, u64::MAX),
        "daemon" => {
            let (port, fds) = DaemonPort::create(SQ_SLOTS, CQ_SLOTS).unwrap();
            socket.send(b"fds", &fds.as_array(), None).unwrap();
            echo_daemon(port, &socket, |_| {});
        }
        "writer" => {
            let (mut writer, fd) = broadcast::create("gt-tape", 256).unwrap();
            socket.send(b"tape", &[fd.as_fd()], None).unwrap();
            for n in 0.. {
                writer.write(&[n; 7]);
            }
        }
        other => panic!("no role {other}"),
    }
}

struct Other {
    process: Child,
    socket: Socket,
}

impl Other {
    fn start(role: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = PathBuf::from(format!("@gt-test-{}-process-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
        let listener = Socket::listen(&name).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::the_other_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(SOCKET, &name)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_readable(&listener);
        let socket = listener.accept().unwrap().unwrap();
        assert_eq!(socket.peer_credentials().unwrap().pid, process.id());
        Self { process, socket }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Submits up to `count` slots in batches of different sizes, and checks that each comes back.
fn echo_client(socket: &Socket, count: u64) {
    let received = socket.recv(&mut [0; 16], 4, Some(PATIENCE)).unwrap();
    let mut fds = received.fds.into_iter();
    let three = [fds.next().unwrap(), fds.next().unwrap(), fds.next().unwrap()];
    let mut client = ClientPort::connect(PortFds::from_array(three), SQ_SLOTS, CQ_SLOTS).unwrap();
    let allocator = ArenaAllocator::new();
    if let Some(arena) = fds.next() {
        allocator.add(arena, ARENA_BYTES).unwrap();
    }
    echo(&mut client, &allocator, socket, count);
}

/// Returns the number of slots that came back: `count`, unless the daemon has ended.
fn echo(client: &mut ClientPort, arena: &ArenaAllocator, socket: &Socket, count: u64) -> u64 {
    let (mut sent, mut seen) = (0, 0);
    while seen < count {
        // No more slots are in flight than the completion ring holds.
        let batch = (sent % 17 + 1).min(count - sent).min(u64::from(CQ_SLOTS) - (sent - seen));
        let block = arena.alloc(batch * 64).ok();
        for n in sent..sent + batch {
            if client.push(&[slot(n)]).is_err() {
                panic!("the submission ring is larger than all that is in flight");
            }
        }
        sent += batch;
        client.publish();
        drop(block);
        match client.wait_completion(SPIN, TICK) {
            Some(found) => {
                assert_eq!(found, slot(seen));
                seen += 1;
            }
            None if socket.is_hung_up() || client.state() == SessionState::Closed => break,
            None => {}
        }
    }
    seen
}

/// Answers each slot with itself until the client has ended; returns the number of answers.
fn echo_daemon(mut port: DaemonPort, socket: &Socket, mut progress: impl FnMut(u64)) -> u64 {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut buffer = [Slot::default(); 64];
    let mut answered = 0;
    loop {
        // Work is admitted only while its completions fit: the daemon never waits for the client.
        let room = (port.free_completions() as usize).min(buffer.len());
        let count = port.pop(&mut buffer[..room]).expect("an honest client, however it dies");
        for found in &buffer[..count] {
            assert_eq!(*found, slot(answered), "a slot that was never published");
            port.complete(*found).unwrap();
            answered += 1;
        }
        port.flush_completions();
        progress(answered);
        if count > 0 || !port.prepare_sleep() {
            continue;
        }
        let timeout = Timespec::try_from(TICK).unwrap();
        let mut fds = [PollFd::new(port.doorbell(), PollFlags::IN), PollFd::new(socket, PollFlags::RDHUP)];
        poll(&mut fds, Some(&timeout)).unwrap();
        port.doorbell().silence();
        port.cancel_sleep();
        if socket.is_hung_up() && !port.has_work() {
            return answered;
        }
    }
}

/// A pseudorandom delay for each round, the same in each run: up to a few milliseconds.
fn delay(round: u32) -> Duration {
    Duration::from_micros(u64::from(round.wrapping_mul(2_654_435_761) >> 20))
}

#[test]
fn two_processes_talk() {
    let mut other = Other::start("daemon");
    let received = other.socket.recv(&mut [0; 16], 3, Some(PATIENCE)).unwrap();
    let fds: [_; 3] = received.fds.try_into().unwrap();
    let mut client = ClientPort::connect(PortFds::from_array(fds), SQ_SLOTS, CQ_SLOTS).unwrap();
    let count = 20_000;
    assert_eq!(echo(&mut client, &ArenaAllocator::new(), &other.socket, count), count);
    // The other process ends when this one closes the socket.
    other.socket.shut_down();
    assert!(other.process.wait().unwrap().success());
}

#[test]
fn a_client_killed_at_any_instant_costs_the_daemon_nothing() {
    // A warm-up round.
    drop(Other::start("client"));
    let mut answered = 0;
    for round in 0..40 {
        let mut other = Other::start("client");
        let (port, fds) = DaemonPort::create(SQ_SLOTS, CQ_SLOTS).unwrap();
        let (arena, arena_fd) = Arena::create(ARENA_BYTES).unwrap();
        let [c, d, bell] = fds.as_array();
        other.socket.send(b"fds", &[c, d, bell, arena_fd.as_fd()], None).unwrap();
        drop((fds, arena_fd));
        let pidfd = other.socket.peer_pidfd().unwrap();
        let socket = Socket::from(other.socket.as_fd().try_clone_to_owned().unwrap());
        let killer = std::thread::spawn(move || {
            // The sleep synchronizes nothing: the kill may happen at any instant.
            std::thread::sleep(delay(round));
            other.kill();
        });
        answered += echo_daemon(port, &socket, |_| {});
        wait_readable(&pidfd);
        killer.join().unwrap();
        arena.copy_out(0, &[1; 64]).unwrap();
    }
    assert!(answered > 0, "some clients lived long enough to be answered");
}

#[test]
fn a_daemon_killed_at_any_instant_is_noticed() {
    let mut seen = 0;
    for round in 0..40 {
        let mut other = Other::start("daemon");
        let received = other.socket.recv(&mut [0; 16], 3, Some(PATIENCE)).unwrap();
        let fds: [_; 3] = received.fds.try_into().unwrap();
        let mut client = ClientPort::connect(PortFds::from_array(fds), SQ_SLOTS, CQ_SLOTS).unwrap();
        let socket = Socket::from(other.socket.as_fd().try_clone_to_owned().unwrap());
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay(round));
            other.kill();
        });
        seen += echo(&mut client, &ArenaAllocator::new(), &socket, u64::MAX);
        assert!(socket.is_hung_up());
        killer.join().unwrap();
    }
    assert!(seen > 0, "some daemons lived long enough to answer");
}

#[test]
fn a_client_waiting_for_room_notices_that_the_daemon_died() {
    let mut other = Other::start("daemon");
    let received = other.socket.recv(&mut [0; 16], 3, Some(PATIENCE)).unwrap();
    let fds: [_; 3] = received.fds.try_into().unwrap();
    let mut client = ClientPort::connect(PortFds::from_array(fds), SQ_SLOTS, CQ_SLOTS).unwrap();
    other.kill();
    let deadline = Instant::now() + PATIENCE;
    while client.wait_space(SQ_SLOTS, TICK) {
        client.push(&[Slot::default(); SQ_SLOTS as usize]).unwrap();
    }
    assert!(other.socket.is_hung_up());
    assert!(Instant::now() < deadline, "the wait came back to look");
}

#[test]
fn an_observer_survives_its_writer() {
    for round in 0..10 {
        let mut other = Other::start("writer");
        let mut received = other.socket.recv(&mut [0; 16], 1, Some(PATIENCE)).unwrap();
        let ring = broadcast::open(received.fds.remove(0), 256).unwrap();
        let mut reader = Reader::from_start(ring);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay(round));
            other.kill();
        });
        let mut read = 0;
        loop {
            let last = killer.is_finished();
            while let Some(record) = reader.read() {
                assert_eq!(record, [reader.position() - 1; 7], "a torn record");
                read += 1;
            }
            if last {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(read + reader.lost(), reader.position(), "each is read or counted");
        killer.join().unwrap();
    }
}
