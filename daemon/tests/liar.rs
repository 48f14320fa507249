//! A hostile worker's process: whatever it writes into its rings, the dispatcher's side of the link neither panics nor
//! waits, and every step that was sent is reported.
//!
//! The worker is this program itself, started as `liar worker …`, so it has no test harness.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "in place of the harness")]

use gt_backend::Capabilities;
use gt_ops::Workers;
use gt_ops::failure::{Fault, WorkerEnd};
use gt_ops::wire::{Command, Completion, Slot};
use gt_protocol::{WorkerInfo, WorkerState};
use gt_shm::port::{segment_c_bytes, segment_d_bytes};
use gt_shm::{Access, ClientPort, PortFds, Segment, Socket};
use gtd::worker::process::link::ProcessLink;
use gtd::worker::process::message::{Message, Ready};
use gtd::worker::process::worker_device::WorkerDevice;
use gtd::worker::step::{Report, SessionSlot, Step, Submission};
use gtd::worker::worker_link::WorkerLink;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);
const STEPS: u64 = 40;

/// The worker's behaviour once it has received its steps, and the end of its process that follows.
const LIES: [(&str, WorkerEnd); 10] = [
    ("cursor", WorkerEnd::InvalidReport),
    ("wrong-token", WorkerEnd::InvalidReport),
    ("unasked", WorkerEnd::InvalidReport),
    ("overtakes-more-than-there-is", WorkerEnd::InvalidReport),
    ("garbage", WorkerEnd::InvalidReport),
    ("dies", WorkerEnd::Exit(3)),
    ("never-ready", WorkerEnd::NotStarted),
    ("other-version", WorkerEnd::NotStarted),
    ("unable", WorkerEnd::NotStarted),
    ("of-no-speed", WorkerEnd::NotStarted),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "worker") {
        return lie();
    }
    for (lie, end) in LIES {
        every_step_ends(lie, end);
        println!("{lie}: ok");
    }
    odd_results_are_results();
    println!("odd results: ok");
}

fn start(lie: &str) -> ProcessLink {
    let info = WorkerInfo { name: lie.into(), kind: "cpu".into(), threads: 1, ..WorkerInfo::default() };
    ProcessLink::start(std::env::current_exe().unwrap(), 0, WorkerDevice::host(), info).unwrap()
}

const OWNER: SessionSlot = SessionSlot { session: 7, slot: 0 };

fn sync(token: u64) -> Step {
    Step {
        owner: OWNER,
        workers: Workers::first_of(1),
        divided: false,
        requested: None,
        origin: token,
        token,
        command: Command::Sync { token },
        out: None,
        fused_ns: None,
        cost_ns: 200,
        expected_ns: 200,
        bytes: 64,
    }
}

/// Drives a link as the dispatcher does, until `enough` returns true.
fn drive(link: &mut ProcessLink, mut enough: impl FnMut(&mut ProcessLink, Option<Report>) -> bool) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        assert!(Instant::now() < deadline, "waited in vain: {:?}", link.info());
        let report = link.next_report();
        if enough(link, report) {
            return;
        }
        if report.is_none() {
            if link.prepare_sleep() {
                let mut fds = [rustix::event::PollFd::from_borrowed_fd(link.bell(), rustix::event::PollFlags::IN)];
                let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                let _ = rustix::event::poll(&mut fds, Some(&timeout));
            }
            link.cancel_sleep();
        }
    }
}

fn every_step_ends(lie: &str, end: WorkerEnd) {
    let mut link = start(lie);
    link.open(OWNER, &std::sync::Arc::new(gt_backend::MemoryUsage::new(OWNER.session)));
    if end != WorkerEnd::NotStarted {
        drive(&mut link, |link, _| link.info().state == WorkerState::Running);
    }
    for token in 1..=STEPS {
        assert_eq!(link.submit(&sync(token), &[]), Submission::Queued);
    }
    link.flush();
    let mut next = 1;
    let mut last = Ok(());
    drive(&mut link, |link, report| {
        if let Some(report) = report {
            assert_eq!(report.token, next, "ends come in order");
            next += 1;
            last = report.result;
        }
        // The worker that sends unasked reports reports its steps first.
        next > STEPS && link.info().losses > 0
    });
    let loss = link.info().last_loss.unwrap();
    assert!(loss.starts_with(&end.to_string()), "{lie}: {loss}");
    if lie == "unable" {
        assert_eq!(loss, "could not be started: there is no such device");
    }
    if lie != "unasked" {
        assert!(matches!(last.unwrap_err().fault, Fault::WorkerLost { end: found, .. } if found == end));
    }
    link.stop(Duration::from_millis(10));
}

/// A report of the right step with arbitrary words is an ordinary result of that step.
fn odd_results_are_results() {
    let mut link = start("odd");
    link.open(OWNER, &std::sync::Arc::new(gt_backend::MemoryUsage::new(OWNER.session)));
    drive(&mut link, |link, _| link.info().state == WorkerState::Running);
    for token in 1..=STEPS {
        link.submit(&sync(token), &[]);
    }
    link.flush();
    let mut ended = 0;
    drive(&mut link, |_, report| {
        ended += report.is_some() as u64;
        ended == STEPS
    });
    assert_eq!(link.info().losses, 0);
    link.stop(Duration::from_secs(1));
}

// --------------------------------------------------------------------------------- the process

fn lie() {
    // SAFETY: descriptor 0 is the socket that the daemon passed, and nothing else in this program uses it.
    let socket = Socket::from(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(0) });
    let (message, fds): (Message, _) = gt_protocol::link::recv(&socket, 8, DEADLINE).unwrap();
    let Message::Start { info, report_slots, work_slots, .. } = message else { panic!("{message:?}") };
    let version = match info.name.as_str() {
        "never-ready" => return,
        "other-version" => "0.0.0-other",
        _ => env!("CARGO_PKG_VERSION"),
    };
    let [c, d, bell]: [OwnedFd; 3] = fds.try_into().unwrap();
    // The mappings check the lengths of the rings, and that the ring of steps is sealed against writes.
    assert!(Segment::map_peer(d.try_clone().unwrap(), segment_d_bytes(work_slots), Access::ReadOnly).is_ok());
    assert!(Segment::map_peer(d.try_clone().unwrap(), segment_d_bytes(work_slots), Access::ReadWrite).is_err());
    let words = Segment::map_peer(c.try_clone().unwrap(), segment_c_bytes(report_slots), Access::ReadWrite).unwrap();
    let mut port = ClientPort::connect(PortFds::from_array([c, d, bell]), report_slots, work_slots).unwrap();
    let capabilities = match info.name.as_str() {
        "unable" => Err("there is no such device".into()),
        "of-no-speed" => Ok(Capabilities { gflops: 0.0, ..Capabilities::estimated(gt_backends::host(), 1, 1 << 20) }),
        _ => Ok(Capabilities::estimated(gt_backends::host(), 1, 1 << 20)),
    };
    let (lifeline, _kept) = Socket::pair().unwrap();
    let (cancellations, _ours) = Socket::pair().unwrap();
    gt_protocol::link::send(
        &socket,
        &Ready { version: version.into(), capabilities, device: None, endpoint: None },
        &[lifeline.as_fd(), cancellations.as_fd()],
        DEADLINE,
    )
    .unwrap();
    // The steps that open the session and set its limits, then the commands with their headers.
    let mut tokens = vec![0, 0];
    let mut slots = 0;
    while slots < 2 + 2 * STEPS {
        let Some(slot) = port.wait_completion(Duration::ZERO, DEADLINE) else { return };
        if slots >= 2 && slots % 2 == 0 {
            tokens.push(slot[3]);
        }
        slots += 1;
    }
    let report = |token: u64| Completion { token, result: Ok(()) }.encode();
    match info.name.as_str() {
        "cursor" => {
            // SAFETY: the mapping `words` begins with the ring's tail, which both sides access atomically, and outlives
            // `tail`.
            let tail = unsafe { &*words.as_ptr().cast::<std::sync::atomic::AtomicU32>() };
            tail.store(report_slots + 1, std::sync::atomic::Ordering::Relaxed);
        }
        "wrong-token" => port.push_publish(&[report(0), report(0), report(1), report(77)]).unwrap(),
        "unasked" => {
            let reports: Vec<Slot> = tokens.iter().map(|token| report(*token)).collect();
            port.push_publish(&reports).unwrap();
            port.push_publish(&[report(0); 100]).unwrap();
        }
        "overtakes-more-than-there-is" => {
            let reports: Vec<Slot> = tokens.iter().map(|token| report(*token)).collect();
            port.push_publish(&reports[..reports.len() - 1]).unwrap();
            let mut last = reports[reports.len() - 1];
            last[7] |= 1 << 48;
            port.push_publish(&[last]).unwrap();
        }
        "garbage" => {
            let mut word = 1u64;
            let mut next = || {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                word
            };
            let garbage: Vec<Slot> = (0..1000).map(|_| std::array::from_fn(|_| next())).collect();
            port.push_publish(&garbage).unwrap();
        }
        "odd" => {
            // The upper 16 bits of the last word are the number of older steps that the step has overtaken.
            let odd =
                |token: &u64| [*token, token * 977, u64::MAX, u64::MAX, *token, u64::MAX, u64::MAX, u64::MAX >> 16];
            port.push_publish(&tokens.iter().map(odd).collect::<Vec<_>>()).unwrap();
            // The worker waits until it is told to end.
            port.wait_completion(Duration::ZERO, DEADLINE);
            return;
        }
        _ => std::process::exit(3),
    }
    // The worker keeps ringing the bell until the daemon ends it.
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline && !socket.is_hung_up() {
        port.publish();
        std::thread::sleep(Duration::from_millis(1));
    }
}
