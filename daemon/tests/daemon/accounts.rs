//! Limits of one user's resources, and the resources that are left to others, with the user ids of several users.

use crate::support::{Client, Gtd, eventually};
use gt_ops::failure::Fault;
use gt_ops::wire::{ArenaRange, Command};
use gt_ops::{Op, TensorId};
use gt_protocol::limits::{
    ARENA_BYTES_MIN, REFUSED_TENSORS_MAX, SESSIONS_MAX, SESSIONS_PER_UID_MAX, SESSIONS_RESERVED,
};
use gt_protocol::{
    Connection, DaemonMessage, Hello, ProtocolError, QuotaChange, RefusalCode, Refused, Role, Setting, ask_arena,
    ask_limits, ask_return_arena, ask_set_limits,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Users that the machine does not have.
const ANA: u32 = 61001;
const BEN: u32 = 61002;

/// True if these tests can be other users; else they have nothing to check.
fn is_root() -> bool {
    nix::unistd::getuid().is_root()
}

/// A connection of user `uid`, which only root can open.
fn connect_as(gtd: &Gtd, uid: u32, role: Role) -> gt_protocol::Result<Connection> {
    let socket = gtd.folder.socket();
    std::fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    as_user(uid, move || gt_protocol::connect(&socket, &Hello::new(role, None)))
}

/// Opens connections of user `uid` until the daemon refuses one.
fn connect_until_refused(gtd: &Gtd, uid: u32, open: &mut Vec<Connection>) -> Refused {
    loop {
        match connect_as(gtd, uid, Role::Client) {
            Ok(connection) => open.push(connection),
            Err(ProtocolError::Refused(refused)) => return refused,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs `act` as user `uid`, which only root can, in a thread that ends.
fn as_user<T: Send + 'static>(uid: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let act = move || {
        // SAFETY: the call changes the effective user id of this thread alone, as it goes around the C library.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, -1i32, uid, -1i32) };
        assert_eq!(done, 0, "only root can be another user");
        act()
    };
    std::thread::spawn(act).join().unwrap()
}

/// A client of user `uid`.
fn client_of(gtd: &Gtd, uid: u32) -> Client {
    Client::of(connect_as(gtd, uid, Role::Client).unwrap())
}

fn set(gtd: &Gtd, uid: Option<u32>, change: QuotaChange) {
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    ask_set_limits(&control.socket, uid, change).unwrap();
}

/// Tensors and arena bytes of a user, by `gtctl limits`.
fn usage(gtd: &Gtd, uid: u32) -> (u64, u64) {
    let control = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    let users = ask_limits(&control.socket).unwrap().users;
    users.iter().find(|user| user.uid == uid).map_or((0, 0), |user| (user.tensors, user.arena_bytes))
}

#[track_caller]
fn refusal<T>(result: Result<T, ProtocolError>) -> Refused {
    match result {
        Err(ProtocolError::Refused(refused)) => refused,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// The limit that refused tensor `id`, and the instruction that met it; none if the tensor is there.
fn refused_tensor(client: &mut Client, id: TensorId) -> Option<(u64, TensorId)> {
    let failure = client.fetch(id, 4).err()?;
    match failure.fault {
        Fault::TooManyTensors { limit, .. } => Some((limit, failure.instruction)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tensors_of_a_user_have_a_limit_that_is_an_error_for_the_program() {
    const MOST: u64 = 1000;
    let gtd = Gtd::start(&[]);
    let me = nix::unistd::getuid().as_raw();
    set(&gtd, Some(me), QuotaChange { tensors: Some(Setting::To(MOST)), ..QuotaChange::default() });
    let (mut one, mut two) = (gtd.client(), gtd.client());
    let kept: Vec<TensorId> = (0..MOST).map(|_| one.full(&[1], 1.0)).collect();
    assert_eq!(refused_tensor(&mut one, kept[999]), None);
    assert_eq!(usage(&gtd, me).0, MOST);
    // One more is an error, and so is everything that depends on it; the last uses of other tensors are uses.
    let more = one.full(&[1], 1.0);
    let sum = one.binary(Op::Add, more, kept[0]);
    assert_eq!(refused_tensor(&mut one, more), Some((MOST, more)));
    assert_eq!(refused_tensor(&mut one, sum), Some((MOST, more)));
    let elsewhere = two.full(&[1], 1.0);
    assert_eq!(refused_tensor(&mut two, elsewhere), Some((MOST, elsewhere)));
    // An upload is refused in the same way.
    let upload = one.id();
    one.send(&Command::Allocate { out: upload, meta: crate::support::f32s(&[1]) });
    let block = one.block(4);
    let token = one.token();
    one.send(&Command::Write { token, id: upload, offset_bytes: 0, from: crate::support::range(&block, 4) });
    assert!(matches!(one.completion(token).unwrap_err().fault, Fault::TooManyTensors { limit: MOST, .. }));
    // Freed records may be used again, by the user's other sessions too.
    one.free(&[&kept[..10], &[more, sum, upload]].concat());
    one.sync();
    two.free(&[elsewhere]);
    let again = two.full(&[1], 3.0);
    assert_eq!(two.fetch_f32(again, 1).unwrap(), [3.0]);
    drop(one);
    eventually("what the other held is free", || usage(&gtd, me).0 == 1);
}

#[test]
fn records_of_a_program_that_goes_on_past_its_limit_do_not_grow() {
    const MOST: u64 = 100;
    let gtd = Gtd::start(&[]);
    let me = nix::unistd::getuid().as_raw();
    set(&gtd, Some(me), QuotaChange { tensors: Some(Setting::To(MOST)), ..QuotaChange::default() });
    let mut witness = gtd.client();
    let kept = witness.full(&[1], 3.0);
    let mut client = gtd.client();
    let mut made = 0;
    while client.port.state() != gt_shm::SessionState::Closed {
        let id = client.id();
        let slots = client.encoder.encode(&Command::Allocate { out: id, meta: crate::support::f32s(&[0]) }).to_vec();
        while client.port.push_publish(&slots).is_err() && client.port.state() != gt_shm::SessionState::Closed {
            client.port.wait_space(slots.len() as u32, Duration::from_millis(10));
        }
        made += 1;
        assert!(made < 10 * REFUSED_TENSORS_MAX, "it is not ended");
    }
    match gt_protocol::recv_daemon_message(&client.socket, Duration::from_secs(5)).unwrap() {
        (DaemonMessage::Refused(refused), _) => {
            assert_eq!(refused.code, RefusalCode::Killed);
            assert!(refused.text.contains("where 100 are allowed"), "{refused}");
        }
        (other, _) => panic!("{other:?}"),
    }
    assert_eq!(witness.fetch_f32(kept, 1).unwrap(), [3.0]);
    assert_eq!(usage(&gtd, me).0, 1);
}

#[test]
fn one_user_s_tensors_take_nothing_from_another_s() {
    if !is_root() {
        return;
    }
    let gtd = Gtd::start(&[]);
    set(&gtd, None, QuotaChange { tensors: Some(Setting::To(10)), ..QuotaChange::default() });
    let (mut ana, mut ben) = (client_of(&gtd, ANA), client_of(&gtd, BEN));
    for _ in 0..20 {
        ana.full(&[0], 1.0);
    }
    ana.sync();
    assert_eq!(usage(&gtd, ANA).0, 20, "the refused ones are counted, for they are records too");
    let one = ben.full(&[1], 2.0);
    assert_eq!(ben.fetch_f32(one, 1).unwrap(), [2.0]);
    assert_eq!(usage(&gtd, BEN).0, 1);
}

/// Asks for arenas of `bytes` and less until none is granted. Returns the bytes granted.
fn take_arenas(client: &Client) -> u64 {
    let (mut bytes, mut taken) = (1 << 34, 0);
    while bytes >= ARENA_BYTES_MIN {
        match ask_arena(&client.socket, bytes) {
            Ok(granted) => taken += granted.bytes,
            Err(ProtocolError::Refused(refused)) => {
                assert_eq!(refused.code, RefusalCode::ArenaLimit);
                bytes /= 2;
            }
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

#[test]
fn arenas_that_nobody_touches_leave_room_to_others() {
    if !is_root() {
        return;
    }
    let gtd = Gtd::start(&[]);
    let hogs: Vec<Client> = (0..4).map(|n| client_of(&gtd, ANA + n)).collect();
    let taken: Vec<u64> = hogs.iter().map(take_arenas).collect();
    let status = gtd.status();
    assert_eq!(status.arena_bytes, taken.iter().sum::<u64>());
    assert!(taken[0] > status.arena_bytes_limit / 4, "one user alone gets much: {taken:?}");
    assert_eq!(usage(&gtd, ANA), (0, taken[0]));
    // A new user fetches a number, and a tensor of some size.
    let mut other = client_of(&gtd, ANA + 9);
    let tensor = other.full(&[1 << 20], 2.0);
    assert_eq!(other.fetch_f32(tensor, 1).unwrap(), [2.0]);
    assert_eq!(other.fetch_f32(tensor, 1 << 20).unwrap()[..2], [2.0; 2]);
    // The error says who holds the memory.
    let refused = refusal(ask_arena(&hogs[0].socket, 1 << 40));
    assert!(refused.text.contains("other sessions"), "{refused}");
    let refused = refusal(ask_arena(&hogs[3].socket, 1 << 34));
    assert!(refused.text.contains("other users leave"), "{refused}");
}

#[test]
fn the_arenas_of_a_user_s_sessions_count_together_and_each_session_has_a_small_one() {
    let gtd = Gtd::start(&[]);
    let bytes = 8 * ARENA_BYTES_MIN;
    set(&gtd, None, QuotaChange { arena_bytes: Some(Setting::To(bytes)), ..QuotaChange::default() });
    let (one, mut two) = (gtd.client(), gtd.client());
    assert_eq!(ask_arena(&one.socket, bytes).unwrap().bytes, bytes);
    let refused = refusal(ask_arena(&two.socket, 2 * ARENA_BYTES_MIN));
    assert_eq!((refused.code, refused.held, refused.limit), (RefusalCode::ArenaLimit, bytes, bytes));
    assert!(refused.text.contains("all sessions of this user together hold 8.00 MiB of 8.00 MiB"), "{refused}");
    let five = two.full(&[1], 5.0);
    assert_eq!(two.fetch_f32(five, 1).unwrap(), [5.0]);
    drop(one);
    let me = nix::unistd::getuid().as_raw();
    eventually("the arena of the other is given back", || usage(&gtd, me).1 == ARENA_BYTES_MIN);
    ask_arena(&two.socket, 2 * ARENA_BYTES_MIN).unwrap();
}

#[test]
fn users_who_take_all_sessions_leave_some_to_others_and_to_administrators() {
    if !is_root() {
        return;
    }
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let gtd = Gtd::start(&[]);
    let mut all = Vec::new();
    let mut of_user = Vec::new();
    for uid in ANA..ANA + 12 {
        let before = all.len();
        let refused = connect_until_refused(&gtd, uid, &mut all);
        assert_eq!(refused.code, RefusalCode::TooManySessions, "{refused}");
        of_user.push(all.len() - before);
    }
    assert_eq!(of_user[0], SESSIONS_PER_UID_MAX as usize);
    assert!(of_user.iter().all(|sessions| *sessions > 0), "{of_user:?}");
    assert!(all.len() < (SESSIONS_MAX - SESSIONS_RESERVED) as usize);
    // Root's sessions are not of those that all users share.
    let mut root: Vec<Client> = (0..SESSIONS_RESERVED).map(|_| gtd.client()).collect();
    let one = root[0].full(&[1], 1.0);
    assert_eq!(root[0].fetch_f32(one, 1).unwrap(), [1.0]);
}

#[test]
fn arenas_that_a_session_returns_are_no_longer_the_user_s() {
    const BYTES: u64 = 64 << 20;
    let gtd = Gtd::start(&[]);
    let me = nix::unistd::getuid().as_raw();
    let (before, mapped) = (usage(&gtd, me).1, gtd.segments());
    let mut client = gtd.client();
    for cycle in 0..3 {
        let granted = ask_arena(&client.socket, BYTES).unwrap();
        assert_eq!(granted.segment, cycle, "numbers are not used again");
        assert!(usage(&gtd, me).1 >= before + BYTES);
        ask_return_arena(&client.socket, granted.segment).unwrap();
        assert_eq!(usage(&gtd, me).1, before);
        let again = refusal(ask_return_arena(&client.socket, granted.segment));
        assert_eq!(again.text, format!("the session has no arena {cycle}"));
    }
    // The daemon unmaps them; what is left are the segments of the session's rings.
    eventually("they are unmapped", || gtd.segments() <= mapped + 2);
    // The session goes on with other arenas, and may not name one that it has returned.
    let granted = ask_arena(&client.socket, ARENA_BYTES_MIN).unwrap();
    let one = client.full(&[4], 2.5);
    let fetch = |client: &mut Client, segment: u32| {
        let token = client.token();
        let to = ArenaRange { segment: segment.into(), offset_bytes: 0, len_bytes: 16 };
        client.send(&Command::Fetch { token, id: one, offset_bytes: 0, to });
        token
    };
    let token = fetch(&mut client, granted.segment);
    client.completion(token).unwrap();
    fetch(&mut client, 0);
    client.wait_closed();
}

/// Sets the limit of descriptors of a running daemon.
fn limit_descriptors(gtd: &Gtd, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the call reads `limit`, which is borrowed for it, and changes a limit of another process.
    let done =
        unsafe { libc::prlimit(gtd.child.id() as i32, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

#[test]
fn users_who_take_all_descriptors_leave_some_to_others_and_to_administrators() {
    const MOST: u64 = 256;
    if !is_root() {
        return;
    }
    let gtd = Gtd::start(&[]);
    limit_descriptors(&gtd, MOST);
    let mut all = Vec::new();
    let mut of_user = Vec::new();
    for uid in ANA..ANA + 5 {
        let before = all.len();
        let refused = connect_until_refused(&gtd, uid, &mut all);
        assert_eq!(refused.code, RefusalCode::Exhausted, "{refused}");
        assert!(refused.text.contains("of 256 descriptors open and keeps 64 for administrators"), "{refused}");
        assert!(refused.text.contains("LimitNOFILE="), "{refused}");
        of_user.push(all.len() - before);
    }
    assert!(of_user[0] >= 20 && of_user.iter().all(|sessions| *sessions > 0), "{of_user:?}");
    // Users may see what they hold until nothing is left to users, and silent handshakes do not use the reserve up.
    let control = connect_as(&gtd, ANA, Role::Control).unwrap();
    assert!(gt_protocol::ask_status(&control.socket).is_ok());
    let mut observers = Vec::new();
    for uid in ANA..ANA + 12 {
        while let Ok(observer) = connect_as(&gtd, uid, Role::Observer) {
            observers.push(observer);
        }
    }
    let socket = gtd.folder.socket();
    let path = socket.clone();
    let silent: Vec<_> = as_user(BEN, move || (0..40).filter_map(|_| gt_shm::Socket::connect(&path).ok()).collect());
    assert!(gtd.descriptors() as u64 <= MOST - 8, "{}", gtd.descriptors());
    // An administrator sees all sessions, ends one, changes limits, and computes.
    let root = gt_protocol::connect(&socket, &Hello::new(Role::Control, None)).unwrap();
    let sessions = gt_protocol::ask_status(&root.socket).unwrap().sessions;
    assert_eq!(sessions.len(), all.len());
    gt_protocol::ask_kill(&root.socket, sessions[0].id).unwrap();
    ask_set_limits(&root.socket, Some(ANA), QuotaChange { sessions: Some(Setting::To(1)), ..QuotaChange::default() })
        .unwrap();
    let mut client = gtd.client();
    let one = client.full(&[1], 1.0);
    assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
    drop((silent, observers, control, all));
    eventually("descriptors are free again", || connect_as(&gtd, BEN, Role::Client).is_ok());
}

#[test]
fn an_administrator_acts_where_users_hold_all_memory() {
    if !is_root() {
        return;
    }
    let gtd = Gtd::start(&["--memory", "64M"]);
    set(&gtd, None, QuotaChange { tensors: Some(Setting::To(1000)), ..QuotaChange::default() });
    let mut users: Vec<Client> = (ANA..ANA + 4).map(|uid| client_of(&gtd, uid)).collect();
    for user in &mut users {
        // All bytes of tensors, all records, and the arenas as far as each may have them.
        for _ in 0..1100 {
            user.full(&[1 << 16], 1.0);
        }
        user.sync();
        let mut bytes = 1u64 << 40;
        while bytes >= ARENA_BYTES_MIN {
            if ask_arena(&user.socket, bytes).is_err() {
                bytes /= 2;
            }
        }
    }
    let root = gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap();
    let status = gt_protocol::ask_status(&root.socket).unwrap();
    assert!(status.workers.iter().map(|worker| worker.memory_bytes).sum::<u64>() > 60 << 20);
    assert!(
        status.arena_bytes > status.arena_bytes_limit / 10 * 9,
        "{} of {}",
        status.arena_bytes,
        status.arena_bytes_limit
    );
    assert_eq!(usage(&gtd, ANA).0, 1100);
    // The first fetch of a session has an arena in any case.
    let mut client = gtd.client();
    let one = client.full(&[1], 1.0);
    assert!(matches!(client.fetch(one, 4).unwrap_err().fault, Fault::OutOfMemory { .. }));
    for session in status.sessions {
        gt_protocol::ask_kill(&root.socket, session.id).unwrap();
    }
    eventually("the memory is free", || {
        let one = client.full(&[1], 1.0);
        client.fetch_f32(one, 1).is_ok()
    });
}

#[test]
fn lines_about_a_user_are_counted_where_they_are_too_many() {
    let gtd = Gtd::start(&[]);
    for _ in 0..400 {
        let mut offender = gtd.client();
        offender.send_slots(&[[u64::MAX; 8]]);
        offender.wait_closed();
    }
    let me = nix::unistd::getuid().as_raw();
    eventually("the rest is told", || gtd.stderr().contains(&format!("lines about user {me} suppressed")));
    let lines = gtd.stderr().lines().filter(|line| line.contains("is ended")).count();
    assert!((100..400).contains(&lines), "{lines}");
}

#[test]
fn a_flood_of_messages_waits_for_the_messages_of_others() {
    const FLOODS: u32 = 8;
    if !is_root() {
        return;
    }
    let gtd = Gtd::start(&[]);
    // Many sessions make each status long.
    let sessions: Vec<Client> = (0..100).map(|_| client_of(&gtd, BEN)).collect();
    let ask = |connection: &Connection| gt_protocol::ask_status(&connection.socket);
    let answers = Arc::new(AtomicU64::new(0));
    let floods: Vec<_> = (0..FLOODS)
        .map(|_| {
            let connection = connect_as(&gtd, ANA, Role::Control).unwrap();
            let answers = answers.clone();
            std::thread::spawn(move || {
                while gt_protocol::ask_status(&connection.socket).is_ok() {
                    answers.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    eventually("the flood has had its part", || answers.load(Relaxed) > 500);
    let witness = connect_as(&gtd, BEN, Role::Control).unwrap();
    let before = answers.load(Relaxed);
    let asked = 20;
    for _ in 0..asked {
        ask(&witness).unwrap();
    }
    let meanwhile = answers.load(Relaxed) - before;
    assert!(meanwhile <= 2 * asked, "{meanwhile} answers to the flood beside {asked} to another user");
    drop((sessions, witness));
    drop(gtd);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}

#[test]
fn memory_of_freed_tensors_goes_back_to_the_system() {
    const TENSORS: usize = 60_000;
    let gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let first = client.full(&[1024], 0.0);
    client.sync();
    let before = gtd.resident_bytes();
    let mut ids: Vec<TensorId> = (1..TENSORS).map(|_| client.full(&[1024], 1.0)).collect();
    client.sync();
    let full = gtd.resident_bytes();
    assert!(full - before > TENSORS as u64 * 4096, "{before} {full}");
    // Some tensors stay, all over the heap, the last one at its end.
    let last = ids.pop().unwrap();
    ids.retain(|id| id % 500 != 0);
    client.free(&ids);
    client.sync();
    eventually("the memory is given back", || gtd.resident_bytes() < before + (full - before) / 8);
    assert_eq!(client.fetch_f32(last, 1).unwrap(), [1.0]);
    assert_eq!(client.fetch_f32(first, 1).unwrap(), [0.0]);
}

#[test]
fn memory_of_freed_tensors_goes_back_while_another_session_works() {
    const TENSORS: usize = 300_000;
    let gtd = Gtd::start(&[]);
    let (mut client, mut other) = (gtd.client(), gtd.client());
    let mut trickle = move || {
        let id = other.full(&[4], 2.0);
        assert_eq!(other.fetch_f32(id, 4).unwrap(), [2.0; 4]);
        other.free(&[id]);
    };
    trickle();
    let before = gtd.resident_bytes();
    let ids: Vec<TensorId> = (0..TENSORS).map(|_| client.full(&[4], 1.0)).collect();
    client.sync();
    let full = gtd.resident_bytes();
    assert!(full - before > TENSORS as u64 * 200, "{before} {full}");
    client.free(&ids);
    client.sync();
    // The daemon is never idle for long. It may keep what 2^15 records take, a ninth of these.
    eventually("the memory of freed tensors is given back", || {
        trickle();
        gtd.resident_bytes() < before + (full - before) / 4
    });
    // It is so too when a session ends.
    let _ids: Vec<TensorId> = (0..TENSORS).map(|_| client.full(&[4], 1.0)).collect();
    client.sync();
    assert!(gtd.resident_bytes() > before + (full - before) / 2);
    drop(client);
    eventually("the memory of an ended session is given back", || {
        trickle();
        gtd.resident_bytes() < before + (full - before) / 4
    });
}
