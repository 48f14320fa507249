//! Sends messages over the control socket, a Unix socket between a client and the daemon, and awaits answers.

use crate::error::{ProtocolError, Result};
use crate::limits::{HANDSHAKE_DEADLINE, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, REPLY_DEADLINE, RING_SLOTS_MAX};
use crate::message::{
    ClientMessage, DaemonMessage, Hello, NodeInfo, NodeLink, PlacementInfo, RefusalCode, Refused, Role, SequenceCounts,
    SessionDetail, SessionGrant, SessionStatus, StatusDocument, TokenInfo, Welcome, WorkerTraffic,
};
use crate::notice::Notice;
use crate::quota::{QuotaChange, QuotaDocument};
use crate::record::{RecordPage, RecordPosition, RecordQuery};
use crate::tape::TapeReader;
use crate::version::VersionRange;
use gt_shm::broadcast::{self, Reader};
use gt_shm::labels::{LabelReader, LabelWriter};
use gt_shm::{ClientPort, PortFds, Socket};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The most messages in which tensors are listed.
const TENSOR_PAGES_MAX: usize = 64;
/// The most descriptors that a daemon's message carries: the three of [`PortFds`].
const DAEMON_FDS_MAX: usize = 3;

/// Sends any message, as JSON.
///
/// # Errors
/// If the peer is gone, the socket stays full for `timeout`, or the message is too long.
pub fn send<M: Serialize>(socket: &Socket, message: &M, fds: &[BorrowedFd<'_>], timeout: Duration) -> Result<()> {
    let bytes = serde_json::to_vec(message).map_err(|error| ProtocolError::Malformed(error.to_string()))?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(ProtocolError::Malformed(format!("it has {} bytes; {MESSAGE_BYTES_MAX} are allowed", bytes.len())));
    }
    Ok(socket.send(&bytes, fds, Some(timeout))?)
}

fn recv_bytes(socket: &Socket, fds_max: usize, timeout: Duration) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let received = socket.recv(&mut bytes, fds_max, Some(timeout))?;
    bytes.truncate(received.len);
    Ok((bytes, received.fds))
}

fn parse<M: DeserializeOwned>(bytes: &[u8]) -> Result<M> {
    serde_json::from_slice(bytes).map_err(|error| ProtocolError::Malformed(error.to_string()))
}

/// Receives any message, with `fds_max` descriptors at most.
///
/// # Errors
/// If the peer is gone, sends nothing for `timeout` or sends an invalid message.
pub fn recv<M: DeserializeOwned>(socket: &Socket, fds_max: usize, timeout: Duration) -> Result<(M, Vec<OwnedFd>)> {
    let (bytes, fds) = recv_bytes(socket, fds_max, timeout)?;
    Ok((parse(&bytes)?, fds))
}

/// Sends a client's message.
///
/// # Errors
/// If the daemon is gone, or the socket stays full for `timeout`; with a `timeout` of zero, if it is full now.
pub fn send_client_message(socket: &Socket, message: &ClientMessage, timeout: Duration) -> Result<()> {
    send(socket, message, &[], timeout)
}

/// Sends a daemon's message. The daemon passes a `timeout` of zero, so it never waits for a client that does not read
/// its answers: the call fails with [`ProtocolError::TimedOut`] at once, and the daemon may drop the client.
///
/// # Errors
/// If the client is gone, or the socket stays full for `timeout`.
pub fn send_daemon_message(
    socket: &Socket,
    message: &DaemonMessage,
    fds: &[BorrowedFd<'_>],
    timeout: Duration,
) -> Result<()> {
    send(socket, message, fds, timeout)
}

/// Receives a client's message after its hello. Descriptors are not allowed.
///
/// # Errors
/// If the client is gone, sends nothing for `timeout` or sends an invalid message. With a `timeout` of zero the call
/// does not wait.
pub fn recv_client_message(socket: &Socket, timeout: Duration) -> Result<ClientMessage> {
    let message = recv(socket, 0, timeout)?.0;
    if let ClientMessage::Name { name } = &message {
        check_name(name.as_deref())?;
    }
    Ok(message)
}

/// Receives a daemon's message with its descriptors.
///
/// # Errors
/// If the daemon is gone, sends nothing for `timeout` or sends an invalid message.
pub fn recv_daemon_message(socket: &Socket, timeout: Duration) -> Result<(DaemonMessage, Vec<OwnedFd>)> {
    recv(socket, DAEMON_FDS_MAX, timeout)
}

/// Receives a client's hello. The version is checked before anything else is parsed, so a hello of any version gets a
/// proper refusal.
///
/// # Errors
/// [`ProtocolError::ClientVersion`], [`ProtocolError::Malformed`], or an error of [`recv`]. [`refusal_for`] makes the
/// answer to the client.
pub fn recv_hello(socket: &Socket, timeout: Duration) -> Result<Hello> {
    let (bytes, _) = recv_bytes(socket, 0, timeout)?;
    if let Some(client) = VersionRange::of_message(&bytes)
        && client.common(VersionRange::OWN).is_none()
    {
        return Err(ProtocolError::ClientVersion { client });
    }
    match parse(&bytes)? {
        ClientMessage::Hello(hello) => check_name(hello.name.as_deref()).map(|()| hello),
        other => Err(ProtocolError::Malformed(format!("a connection starts with hello, not {other:?}"))),
    }
}

/// Checks the name of a session, which is shown on terminals.
///
/// # Errors
/// [`ProtocolError::Malformed`] for a name that is too long, or has characters that cannot be seen or that change the
/// direction of the text after them.
pub fn check_name(name: Option<&str>) -> Result<()> {
    match name {
        Some(name) if name.len() > NAME_BYTES_MAX => Err(ProtocolError::Malformed(format!(
            "a session's name has {} bytes; {NAME_BYTES_MAX} are allowed",
            name.len()
        ))),
        Some(name) if name.chars().any(is_unseen) => Err(ProtocolError::Malformed(
            "a session's name has control characters, or others that cannot be seen; use letters".into(),
        )),
        _ => Ok(()),
    }
}

/// Characters, besides control characters, that cannot be seen, or that change the direction of the text after them:
/// Unicode's format characters, fillers, and separators of lines and paragraphs.
const UNSEEN: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

fn is_unseen(character: char) -> bool {
    character.is_control() || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&character))
}

/// The answer to a client whose message failed with `error`.
pub fn refusal_for(error: &ProtocolError) -> Refused {
    match error {
        ProtocolError::Refused(refused) => refused.clone(),
        ProtocolError::ClientVersion { .. } => Refused::new(RefusalCode::ProtocolVersion, error.to_string()),
        other => Refused::new(RefusalCode::Malformed, other.to_string()),
    }
}

/// An accepted connection to the daemon.
pub struct Connection {
    /// The socket, for further messages and to notice the daemon's death.
    pub socket: Socket,
    /// The daemon's answer.
    pub welcome: Welcome,
    /// The rings, if the role is [`Role::Client`].
    pub port: Option<ClientPort>,
}

/// Connects to the daemon at `path` and sends `hello`.
///
/// # Errors
/// [`ProtocolError::Connect`] if no daemon listens; [`ProtocolError::DaemonVersion`], [`ProtocolError::Refused`], or
/// any error of [`recv`].
pub fn connect(path: &Path, hello: &Hello) -> Result<Connection> {
    let socket = Socket::connect(path).map_err(|source| ProtocolError::Connect { path: path.to_owned(), source })?;
    connect_over(socket, hello)
}

/// Sends `hello` over a connected socket.
///
/// # Errors
/// The errors of [`connect`].
pub fn connect_over(socket: Socket, hello: &Hello) -> Result<Connection> {
    send_client_message(&socket, &ClientMessage::Hello(hello.clone()), HANDSHAKE_DEADLINE)?;
    let (bytes, fds) = recv_bytes(&socket, DAEMON_FDS_MAX, REPLY_DEADLINE)?;
    let answer = parse(&bytes);
    // A refusal says itself which side has to be upgraded.
    if let Ok(DaemonMessage::Refused(refused)) = answer {
        return Err(refused.into());
    }
    check_version(&bytes)?;
    let welcome = match answer? {
        DaemonMessage::Welcome(welcome) => welcome,
        other => return Err(unexpected("welcome", &other)),
    };
    let port = match (&welcome.session, hello.role) {
        (Some(grant), Role::Client) => Some(open_port(grant, fds)?),
        (None, Role::Client) => {
            return Err(ProtocolError::Malformed("a welcome without a session".into()));
        }
        _ => None,
    };
    Ok(Connection { socket, welcome, port })
}

/// Checks that the version in a daemon's first message is one that this build speaks.
///
/// # Errors
/// [`ProtocolError::DaemonVersion`].
pub fn check_version(bytes: &[u8]) -> Result<()> {
    match VersionRange::of_message(bytes) {
        Some(daemon) if daemon.common(VersionRange::OWN).is_none() => Err(ProtocolError::DaemonVersion { daemon }),
        _ => Ok(()),
    }
}

fn open_port(grant: &SessionGrant, fds: Vec<OwnedFd>) -> Result<ClientPort> {
    let fds: [OwnedFd; 3] = fds
        .try_into()
        .map_err(|fds: Vec<_>| ProtocolError::Malformed(format!("a welcome with {} of 3 descriptors", fds.len())))?;
    check_grant(grant)?;
    Ok(ClientPort::connect(PortFds::from_array(fds), grant.sq_slots, grant.cq_slots)?)
}

/// Checks the ring sizes of a grant.
///
/// # Errors
/// [`ProtocolError::Malformed`] for a size that is no power of two or too large.
pub fn check_grant(grant: &SessionGrant) -> Result<()> {
    for slots in [grant.sq_slots, grant.cq_slots] {
        if !slots.is_power_of_two() || slots > RING_SLOTS_MAX {
            return Err(ProtocolError::Malformed(format!("a ring of {slots} slots")));
        }
    }
    Ok(())
}

fn unexpected(wanted: &str, found: &DaemonMessage) -> ProtocolError {
    ProtocolError::Malformed(format!("{found:?} instead of {wanted}"))
}

/// Sends a request and waits for the answer. No other request may be in flight on the socket.
fn ask(socket: &Socket, request: &ClientMessage) -> Result<(DaemonMessage, Vec<OwnedFd>)> {
    send_client_message(socket, request, REPLY_DEADLINE)?;
    match recv_daemon_message(socket, REPLY_DEADLINE)? {
        (DaemonMessage::Refused(refused), _) if is_unknown(&refused) => {
            let name = serde_json::to_value(request).ok().and_then(|value| Some(value["message"].as_str()?.to_owned()));
            let (request, daemon) = (name.unwrap_or_default(), refused.protocol_version);
            Err(ProtocolError::UnknownRequest { request, daemon })
        }
        (DaemonMessage::Refused(refused), _) => Err(refused.into()),
        answer => Ok(answer),
    }
}

/// True if a daemon refuses a request since it does not know it, or a field of it. The text is that of the decoder,
/// which daemons of all versions pass on.
fn is_unknown(refused: &Refused) -> bool {
    let unknown = ["unknown variant `", "unknown field `"];
    refused.code == RefusalCode::Malformed && unknown.iter().any(|known| refused.text.contains(known))
}

fn only_fd(fds: Vec<OwnedFd>) -> Result<OwnedFd> {
    let [fd]: [OwnedFd; 1] = fds
        .try_into()
        .map_err(|fds: Vec<_>| ProtocolError::Malformed(format!("{} descriptors instead of 1", fds.len())))?;
    Ok(fd)
}

/// An arena that the daemon granted.
#[derive(Debug)]
pub struct GrantedArena {
    /// The daemon's number for the arena. [`gt_shm::ArenaAllocator::add`] must return the same number.
    pub segment: u32,
    /// The length, bytes.
    pub bytes: u64,
    /// The shared memory.
    pub fd: OwnedFd,
}

/// Requests one more arena with room for a block of `bytes`.
///
/// # Errors
/// [`ProtocolError::Refused`] with the held and allowed bytes if the session's limit is reached.
pub fn ask_arena(socket: &Socket, bytes: u64) -> Result<GrantedArena> {
    match ask(socket, &ClientMessage::GrowArena { bytes })? {
        (DaemonMessage::ArenaGranted { segment, bytes }, fds) => Ok(GrantedArena { segment, bytes, fd: only_fd(fds)? }),
        (other, _) => Err(unexpected("arena_granted", &other)),
    }
}

/// Returns arena `segment`, which no command in flight names.
///
/// # Errors
/// [`ProtocolError::Refused`] while a command could name it: it stays the session's.
pub fn ask_return_arena(socket: &Socket, segment: u32) -> Result<()> {
    match ask(socket, &ClientMessage::ReturnArena { segment })? {
        (DaemonMessage::ArenaReturned { .. }, _) => Ok(()),
        (other, _) => Err(unexpected("arena_returned", &other)),
    }
}

/// Requests the status document, in several messages if there are many sessions.
///
/// # Errors
/// If the daemon is gone or does not answer.
pub fn ask_status(socket: &Socket) -> Result<StatusDocument> {
    let mut sessions = Vec::new();
    let mut after = 0;
    loop {
        let mut status = match ask(socket, &ClientMessage::Status { after })? {
            (DaemonMessage::Status(status), _) => status,
            (other, _) => return Err(unexpected("status", &other)),
        };
        let more = status.more;
        sessions.append(&mut status.sessions);
        let last = sessions.last().map_or(0, |session| session.id);
        if !more || last <= after {
            return Ok(StatusDocument { sessions, more: false, ..status });
        }
        after = last;
    }
}

/// Requests the text of error number `error`.
///
/// # Errors
/// If the daemon is gone or does not answer.
pub fn ask_error_detail(socket: &Socket, error: u64) -> Result<String> {
    match ask(socket, &ClientMessage::ErrorDetail { error })? {
        (DaemonMessage::ErrorDetail { text, .. }, _) => Ok(text),
        (other, _) => Err(unexpected("error_detail", &other)),
    }
}

/// Requests the collectives and operations of this session's workers, and its sequences of instructions.
///
/// # Errors
/// If the daemon is gone or does not answer.
pub fn ask_traffic(socket: &Socket) -> Result<(Vec<WorkerTraffic>, SequenceCounts)> {
    match ask(socket, &ClientMessage::Traffic)? {
        (DaemonMessage::Traffic { workers, sequences }, _) => Ok((workers, sequences)),
        (other, _) => Err(unexpected("traffic", &other)),
    }
}

/// Requests the placement of tensor `id` of this session.
///
/// # Errors
/// [`ProtocolError::Refused`] if there is no such tensor; if the daemon is gone or does not answer.
pub fn ask_placement(socket: &Socket, id: u64) -> Result<PlacementInfo> {
    match ask(socket, &ClientMessage::Placement { id })? {
        (DaemonMessage::Placement(placement), _) => Ok(placement),
        (other, _) => Err(unexpected("placement", &other)),
    }
}

/// Requests the details of session `id`.
///
/// # Errors
/// [`ProtocolError::Refused`] if there is no such session; if the daemon is gone or does not answer.
pub fn ask_session(socket: &Socket, id: u64) -> Result<SessionDetail> {
    match ask(socket, &ClientMessage::Session { id })? {
        (DaemonMessage::Session(detail), _) => Ok(*detail),
        (other, _) => Err(unexpected("session", &other)),
    }
}

/// Resets this session's memory peak on `worker`, or on all workers. Returns the session's details.
///
/// # Errors
/// [`ProtocolError::Refused`] if the connection has no session; if the daemon is gone or does not answer.
pub fn ask_reset_peak(socket: &Socket, worker: Option<String>) -> Result<SessionDetail> {
    match ask(socket, &ClientMessage::ResetPeak { worker })? {
        (DaemonMessage::Session(detail), _) => Ok(*detail),
        (other, _) => Err(unexpected("session", &other)),
    }
}

/// Ends session `session`. Returns its last status.
///
/// # Errors
/// [`ProtocolError::Refused`] if there is no such session or this user is not allowed to end it; if the daemon is gone
/// or does not answer.
pub fn ask_kill(socket: &Socket, session: u64) -> Result<SessionStatus> {
    match ask(socket, &ClientMessage::Kill { session })? {
        (DaemonMessage::Killed(status), _) => Ok(*status),
        (other, _) => Err(unexpected("killed", &other)),
    }
}

/// Requests the quotas in force, in several messages if there are many users.
///
/// # Errors
/// If the daemon is gone or does not answer.
pub fn ask_limits(socket: &Socket) -> Result<QuotaDocument> {
    let mut users = Vec::new();
    let mut from = 0;
    loop {
        let mut limits = match ask(socket, &ClientMessage::Limits { from })? {
            (DaemonMessage::Limits(limits), _) => limits,
            (other, _) => return Err(unexpected("limits", &other)),
        };
        let more = limits.more;
        let next = limits.users.last().and_then(|user| user.uid.checked_add(1));
        users.append(&mut limits.users);
        match next.filter(|next| more && *next > from) {
            Some(next) => from = next,
            None => return Ok(QuotaDocument { users, more: false, ..limits }),
        }
    }
}

/// Changes the quota of user `uid`, or the default quota if `None`. Returns the quotas in force after the change.
///
/// # Errors
/// [`ProtocolError::Refused`] if this user is not allowed to or the quota is invalid; if the daemon is gone or does not
/// answer.
pub fn ask_set_limits(socket: &Socket, uid: Option<u32>, change: QuotaChange) -> Result<QuotaDocument> {
    match ask(socket, &ClientMessage::SetLimits { uid, change })? {
        (DaemonMessage::Limits(limits), _) => Ok(limits),
        (other, _) => Err(unexpected("limits", &other)),
    }
}

/// Requests one page of records of ended sessions.
///
/// # Errors
/// [`ProtocolError::Refused`] if this user is not allowed to read them or the daemon keeps none; if the daemon is gone
/// or does not answer.
pub fn ask_records(socket: &Socket, query: RecordQuery) -> Result<RecordPage> {
    let page = match ask(socket, &ClientMessage::Records(query))? {
        (DaemonMessage::Records(page), _) => page,
        (other, _) => return Err(unexpected("records", &other)),
    };
    let place = |position: RecordPosition| (position.file, position.offset);
    match page.next {
        Some(next) if place(next) <= place(query.from) => {
            Err(ProtocolError::Malformed("a page of records that is followed by itself".into()))
        }
        _ => Ok(page),
    }
}

/// Requests the present notice.
///
/// # Errors
/// If the daemon is gone or does not answer.
pub fn ask_notice(socket: &Socket) -> Result<Option<Notice>> {
    match ask(socket, &ClientMessage::Notice)? {
        (DaemonMessage::Notice { notice }, _) => Ok(notice),
        (other, _) => Err(unexpected("notice", &other)),
    }
}

/// Begins or ends draining (see [`ClientMessage::Drain`]), after `in_s` seconds. Returns the number of open sessions,
/// and the notice that programs get, if they get one.
///
/// # Errors
/// [`ProtocolError::Refused`] if this user is not allowed to; if the daemon is gone or does not answer.
pub fn ask_drain(socket: &Socket, on: bool, in_s: u64, text: Option<String>) -> Result<(u32, Option<Notice>)> {
    match ask(socket, &ClientMessage::Drain { on, in_s, text })? {
        (DaemonMessage::Draining { sessions, notice, .. }, _) => Ok((sessions, notice)),
        (other, _) => Err(unexpected("draining", &other)),
    }
}

/// Makes the daemon read its configuration again. Returns the file, the names of changed settings, and the names of
/// settings that change only when the daemon is started again.
///
/// # Errors
/// [`ProtocolError::Refused`] if this user is not allowed to or the file is wrong; if the daemon is gone or does not
/// answer.
pub fn ask_reload(socket: &Socket) -> Result<(String, Vec<String>, Vec<String>)> {
    match ask(socket, &ClientMessage::Reload)? {
        (DaemonMessage::Reloaded { path, changed, restart }, _) => Ok((path, changed, restart)),
        (other, _) => Err(unexpected("reloaded", &other)),
    }
}

/// Creates an access token (see [`ClientMessage::TokenCreate`]). Returns its text, the token, and whether it outlives
/// the daemon.
///
/// # Errors
/// [`ProtocolError::Refused`] if this user is not allowed to or has too many; if the daemon is gone or does not answer.
pub fn ask_token(
    socket: &Socket,
    uid: Option<u32>,
    lifetime_s: u64,
    administrator: bool,
) -> Result<(String, TokenInfo, bool)> {
    match ask(socket, &ClientMessage::TokenCreate { uid, lifetime_s, administrator })? {
        (DaemonMessage::TokenCreated { text, token, lasting }, _) => Ok((text, token, lasting)),
        (other, _) => Err(unexpected("token_created", &other)),
    }
}

/// Requests the access tokens that this user may see, in several messages if there are many.
///
/// # Errors
/// [`ProtocolError::Refused`] if the daemon's file of tokens is unusable; if the daemon is gone or does not answer.
pub fn ask_tokens(socket: &Socket) -> Result<Vec<TokenInfo>> {
    let mut all: Vec<TokenInfo> = Vec::new();
    loop {
        let after = all.last().map_or(0, |token| token.id);
        match ask(socket, &ClientMessage::TokenList { after })? {
            (DaemonMessage::Tokens { tokens, more }, _) => {
                let goes_on = more && tokens.last().is_some_and(|token| token.id > after);
                all.extend(tokens);
                if !goes_on {
                    return Ok(all);
                }
            }
            (other, _) => return Err(unexpected("tokens", &other)),
        }
    }
}

/// Revokes access token `id`. Returns the token, and the number of its sessions, which were ended.
///
/// # Errors
/// [`ProtocolError::Refused`] if there is no such token or this user is not allowed to revoke it; if the daemon is gone
/// or does not answer.
pub fn ask_revoke_token(socket: &Socket, id: u64) -> Result<(TokenInfo, u32)> {
    match ask(socket, &ClientMessage::TokenRevoke { id })? {
        (DaemonMessage::TokenRevoked { token, sessions }, _) => Ok((token, sessions)),
        (other, _) => Err(unexpected("token_revoked", &other)),
    }
}

/// Invites another machine to join as a node (see [`ClientMessage::NodeInvite`]). Returns the address at which the
/// daemon listens for nodes, the fingerprint of its certificate, and the secret.
///
/// # Errors
/// [`ProtocolError::Refused`] if the daemon takes no nodes or this user is not allowed to; if the daemon is gone or
/// does not answer.
pub fn ask_node_invite(socket: &Socket, lifetime_s: u64, workers_max: Option<u32>) -> Result<(String, String, String)> {
    match ask(socket, &ClientMessage::NodeInvite { lifetime_s, workers_max })? {
        (DaemonMessage::NodeInvited { address, fingerprint, secret }, _) => Ok((address, fingerprint, secret)),
        (other, _) => Err(unexpected("node_invited", &other)),
    }
}

/// Requests the nodes that have joined, in several messages if there are many, and the slowest links between machines.
///
/// # Errors
/// [`ProtocolError::Refused`] if the daemon takes no nodes; if the daemon is gone or does not answer.
pub fn ask_node_list(socket: &Socket) -> Result<(Vec<NodeInfo>, Vec<NodeLink>)> {
    let mut all: Vec<NodeInfo> = Vec::new();
    loop {
        let after = all.last().map(|node| node.name.clone()).unwrap_or_default();
        match ask(socket, &ClientMessage::NodeList { after: after.clone() })? {
            (DaemonMessage::Nodes { nodes, links, more }, _) => {
                let goes_on = more && nodes.last().is_some_and(|node| node.name > after);
                all.extend(nodes);
                if !goes_on {
                    return Ok((all, links));
                }
            }
            (other, _) => return Err(unexpected("nodes", &other)),
        }
    }
}

/// Forgets a node, and ends its workers.
///
/// # Errors
/// [`ProtocolError::Refused`] if there is no such node or this user is not allowed to; if the daemon is gone or does
/// not answer.
pub fn ask_node_remove(socket: &Socket, name: String) -> Result<()> {
    match ask(socket, &ClientMessage::NodeRemove { name })? {
        (DaemonMessage::NodeRemoved { .. }, _) => Ok(()),
        (other, _) => Err(unexpected("node_removed", &other)),
    }
}

/// Requests the dtypes and sizes of this session's tensors by id, in several messages if there are many; of very many,
/// those with the lowest ids.
///
/// # Errors
/// [`ProtocolError::Refused`] without a session; if the daemon is gone or does not answer.
pub fn ask_tensors(socket: &Socket) -> Result<Vec<(u64, String)>> {
    let mut all: Vec<(u64, String)> = Vec::new();
    for _ in 0..TENSOR_PAGES_MAX {
        let after = all.last().map_or(0, |(id, _)| *id);
        match ask(socket, &ClientMessage::Tensors { after })? {
            (DaemonMessage::Tensors { tensors, more }, _) => {
                let goes_on = more && tensors.last().is_some_and(|(id, _)| *id > after);
                all.extend(tensors);
                if !goes_on {
                    break;
                }
            }
            (other, _) => return Err(unexpected("tensors", &other)),
        }
    }
    Ok(all)
}

/// Requests the memory in which this client tells the lines of its program. Only daemons whose grant says so have it.
///
/// # Errors
/// [`ProtocolError::Refused`] if the daemon has no memory or descriptor for it; if the daemon is gone or does not
/// answer.
pub fn ask_lines(socket: &Socket) -> Result<LabelWriter> {
    let (fd, bytes) = granted_lines(ask(socket, &ClientMessage::ShareLines)?)?;
    Ok(LabelWriter::map(fd, bytes)?)
}

/// Requests the lines that `session` shares.
///
/// # Errors
/// [`ProtocolError::Refused`] if there is no such session, it shares none, or this user may not read the tape; if the
/// daemon is gone or does not answer.
pub fn attach_lines(socket: &Socket, session: u64) -> Result<LabelReader> {
    let (fd, bytes) = granted_lines(ask(socket, &ClientMessage::LinesAttach { session })?)?;
    Ok(LabelReader::map(fd, bytes)?)
}

fn granted_lines(answer: (DaemonMessage, Vec<OwnedFd>)) -> Result<(OwnedFd, u64)> {
    match answer {
        (DaemonMessage::Lines { bytes }, fds) => Ok((only_fd(fds)?, bytes)),
        (other, _) => Err(unexpected("lines", &other)),
    }
}

/// Requests the daemon's tape, the ring buffer of its events: those of all sessions, or at least those of `session`.
/// The reader starts at the oldest record.
///
/// # Errors
/// [`ProtocolError::Refused`] if this user is not allowed to; if the daemon is gone or does not answer.
pub fn attach_tape(socket: &Socket, session: Option<u64>) -> Result<TapeReader> {
    match ask(socket, &ClientMessage::TapeAttach { session })? {
        // The tape is a file of the daemon's user, who may end this process anyway, or of root.
        (DaemonMessage::Tape { records }, fds) => {
            Ok(TapeReader::new(Reader::from_oldest(broadcast::open_file(&only_fd(fds)?, records)?)))
        }
        (other, _) => Err(unexpected("tape", &other)),
    }
}
