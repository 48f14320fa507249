//! A TCP connection whose bytes are encrypted by TLS, or not.
//!
//! One thread reads and others write. The library's state of an encrypted connection is one for both directions, so it
//! is locked while bytes are encrypted and decrypted, but not while a thread waits for the network.

use crate::tls::fingerprint;
use gt_protocol::address::Fingerprint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::Connection;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes that are encrypted at one time, before they are sent.
const ENCRYPT_BYTES_MAX: usize = 64 << 10;
/// The most bytes that are received at one time, before they are decrypted.
const DECRYPT_BYTES_MAX: usize = 64 << 10;
/// The bytes of a record of TLS before its contents. The last two are the length of these.
const RECORD_HEAD_BYTES: usize = 5;
/// The most bytes of a record of TLS, of which 16 KiB are contents.
const RECORD_BYTES_MAX: usize = 17 << 10;
/// The bytes for which a waiting reader is woken, if they come within [`TOGETHER_PATIENCE`].
const TOGETHER_BYTES_MAX: usize = 128 << 10;
const TOGETHER_PATIENCE: Duration = Duration::from_millis(10);
/// The most parts that are given to the system at one time, which takes 1,024.
const PARTS_MAX: usize = 64;

/// The reason why a connection could not be encrypted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncryptionError {
    /// The peer has closed the connection.
    #[error("it has ended the connection")]
    Ended,
    /// The deadline has passed.
    #[error("it did not speak in time")]
    TimedOut,
    /// The peer does not speak TLS, or one side refuses the other.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// An error of the system.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// A TCP connection.
pub(crate) struct TcpChannel {
    tcp: Arc<TcpStream>,
    /// The state of an encrypted connection.
    tls: Option<Mutex<Connection>>,
    /// The encrypted bytes to be sent. Locked while bytes are sent, so that those of two threads do not mix.
    sending: Mutex<Vec<u8>>,
}

/// The encrypted bytes that were received and are not decrypted yet.
pub(crate) struct Ciphertext {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    by_record: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpChannel {
    /// A connection without encryption.
    pub(crate) fn plain(tcp: Arc<TcpStream>) -> TcpChannel {
        TcpChannel { tcp, tls: None, sending: Mutex::default() }
    }

    /// Makes the handshake of TLS until `deadline`. `tls` is the side of a client or of a daemon. Also returns what was
    /// received after the handshake.
    pub(crate) fn encrypted(
        tcp: Arc<TcpStream>,
        mut tls: Connection,
        deadline: Instant,
    ) -> Result<(TcpChannel, Ciphertext), EncryptionError> {
        let mut received = Ciphertext::new();
        while tls.is_handshaking() {
            send_tls(&tcp, &mut tls).map_err(EncryptionError::Io)?;
            if !tls.is_handshaking() {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(EncryptionError::TimedOut);
            }
            tcp.set_read_timeout(Some(left)).map_err(EncryptionError::Io)?;
            match received.fill(&tcp, RecvFlags::empty()) {
                Ok(0) => return Err(EncryptionError::Ended),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(EncryptionError::TimedOut);
                }
                Err(error) => return Err(EncryptionError::Io(error)),
            }
            while received.start < received.end && tls.is_handshaking() {
                if let Err(error) = received.pass_on(&mut tls) {
                    // The peer is told why, if it listens.
                    let _ = send_tls(&tcp, &mut tls);
                    return Err(error.into());
                }
            }
        }
        send_tls(&tcp, &mut tls).map_err(EncryptionError::Io)?;
        tcp.set_read_timeout(None).map_err(EncryptionError::Io)?;
        tls.set_buffer_limit(None);
        Ok((TcpChannel { tcp, tls: Some(Mutex::new(tls)), sending: Mutex::default() }, received))
    }

    /// The same connection without encryption.
    pub(crate) fn to_plain(&self) -> TcpChannel {
        TcpChannel::plain(self.tcp.clone())
    }

    /// The connection, for its addresses, options and state.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Whether the bytes are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The fingerprint of the certificate that the peer has shown, if it has shown one.
    pub(crate) fn peer_certificate(&self) -> Option<Fingerprint> {
        let tls = lock(self.tls.as_ref()?);
        tls.peer_certificates()?.first().map(fingerprint)
    }

    /// Sends `bytes`.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_all_parts(&[bytes])
    }

    /// Sends the bytes of all parts, one after another.
    pub(crate) fn write_all_parts(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.write_rest_of_parts(parts, 0)
    }

    /// Sends the bytes of all parts but the first `done`, which [`try_write_parts`](Self::try_write_parts) has sent.
    pub(crate) fn write_rest_of_parts(&self, parts: &[&[u8]], done: usize) -> io::Result<()> {
        let mut encrypted = lock(&self.sending);
        let Some(tls) = &self.tls else {
            let mut parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut parts = &mut parts[..];
            IoSlice::advance_slices(&mut parts, done);
            return write_all_vectored(&self.tcp, parts);
        };
        debug_assert_eq!(done, 0, "a part of a record cannot be sent");
        encrypted.clear();
        for piece in parts.iter().flat_map(|part| part.chunks(ENCRYPT_BYTES_MAX)) {
            let mut tls = lock(tls);
            tls.writer().write_all(piece)?;
            while tls.wants_write() {
                tls.write_tls(&mut *encrypted)?;
            }
            drop(tls);
            if encrypted.len() >= ENCRYPT_BYTES_MAX {
                (&*self.tcp).write_all(&encrypted)?;
                encrypted.clear();
            }
        }
        (&*self.tcp).write_all(&encrypted)
    }

    /// Sends as many bytes of all parts as the system takes without waiting, from the first `done` of them on, and adds
    /// their number to `done`. The connection is not encrypted, and no other thread sends before they are sent whole.
    pub(crate) fn try_write_parts(&self, parts: &[&[u8]], done: &mut usize) -> io::Result<()> {
        debug_assert!(!self.is_encrypted(), "a part of a record cannot be sent");
        loop {
            let mut before = *done;
            let rest = parts.iter().filter_map(|part| {
                let skipped = before.min(part.len());
                before -= skipped;
                (skipped < part.len()).then(|| IoSlice::new(&part[skipped..]))
            });
            let slices: Vec<IoSlice<'_>> = rest.take(PARTS_MAX).collect();
            if slices.is_empty() {
                return Ok(());
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&*self.tcp, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => *done += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives bytes, waiting for at least one. Returns 0 if the peer has closed the connection. Only one thread may
    /// call this, always with the same `received`.
    pub(crate) fn read(&self, received: &mut Ciphertext, out: &mut [u8]) -> io::Result<usize> {
        self.receive(received, out, RecvFlags::empty())
    }

    /// As [`read`](Self::read), without waiting: an error of the kind `WouldBlock` if no bytes have come.
    pub(crate) fn try_read(&self, received: &mut Ciphertext, out: &mut [u8]) -> io::Result<usize> {
        self.receive(received, out, RecvFlags::DONTWAIT)
    }

    /// Waits until bytes have come or the peer has closed the connection, for at most `timeout`: if they come fast,
    /// until there are `bytes`, as each waking costs as much as copying many. At least as many must still be to come.
    pub(crate) fn wait_readable(&self, bytes: usize, timeout: Duration) -> io::Result<()> {
        // A part of a record may be here already.
        let here = if self.is_encrypted() { RECORD_BYTES_MAX } else { 0 };
        let wanted = bytes.min(TOGETHER_BYTES_MAX).saturating_sub(here);
        if wanted > 1 {
            set_wake_bytes(&self.tcp, wanted)?;
            let came = poll_readable(&self.tcp, TOGETHER_PATIENCE);
            set_wake_bytes(&self.tcp, 1)?;
            if came? {
                return Ok(());
            }
        }
        if poll_readable(&self.tcp, timeout)? { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
    }

    fn receive(&self, received: &mut Ciphertext, out: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return Ok(recv(&*self.tcp, out, flags)?.1) };
        loop {
            let mut tls_state = lock(tls);
            let mut count = 0;
            let mut ended = false;
            while count < out.len() {
                match tls_state.reader().read(&mut out[count..]) {
                    Ok(0) => ended = true,
                    Ok(more) => {
                        count += more;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock && received.start < received.end => {
                        received
                            .pass_on(&mut tls_state)
                            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                break;
            }
            drop(tls_state);
            if count > 0 || ended {
                return Ok(count);
            }
            if received.fill(&self.tcp, flags)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Ends one direction or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.tcp.shutdown(how)
    }

    /// Limits the wait of [`read`](TcpChannel::read).
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(timeout)
    }
}

impl Ciphertext {
    pub(crate) fn new() -> Ciphertext {
        Ciphertext { buffer: Box::default(), start: 0, end: 0, by_record: false }
    }

    /// Whether all bytes that were received are decrypted.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Receives from now on one record of TLS at a time, and nothing of what comes behind it; or as much as has come.
    pub(crate) fn receive_by_record(&mut self, by_record: bool) {
        self.by_record = by_record;
    }

    /// Receives bytes, waiting for at least one; there must be none left from before.
    fn fill(&mut self, mut tcp: &TcpStream, flags: RecvFlags) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; DECRYPT_BYTES_MAX].into_boxed_slice();
        }
        let count = if self.by_record {
            tcp.read_exact(&mut self.buffer[..RECORD_HEAD_BYTES])?;
            let contents = usize::from(u16::from_be_bytes([self.buffer[3], self.buffer[4]]));
            let record = self.buffer.get_mut(RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + contents);
            tcp.read_exact(record.ok_or(ErrorKind::InvalidData)?)?;
            RECORD_HEAD_BYTES + contents
        } else {
            recv(tcp, &mut *self.buffer, flags)?.1
        };
        (self.start, self.end) = (0, count);
        Ok(count)
    }

    /// Gives some of the bytes to the library, and lets it decrypt them.
    fn pass_on(&mut self, tls: &mut Connection) -> Result<(), rustls::Error> {
        let taken = tls.read_tls(&mut &self.buffer[self.start..self.end]);
        // The library takes bytes whenever it has no decrypted ones to be read.
        self.start += taken.map_err(|error| rustls::Error::General(error.to_string()))?;
        tls.process_new_packets().map(drop)
    }
}

/// Sets for how many bytes a reader that waits is woken.
fn set_wake_bytes(tcp: &TcpStream, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    // SAFETY: the option is an int, the pointer is to one, and the length is its length.
    let set = unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            level,
            option,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until bytes have come or the peer has closed the connection, and returns whether that was within `timeout`.
fn poll_readable(tcp: &TcpStream, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(tcp, PollFlags::IN)], Some(&timeout)) {
        Err(Errno::INTR) => Ok(true),
        ready => Ok(ready? > 0),
    }
}

/// Sends the bytes of all parts, one after another.
fn write_all_vectored(mut tcp: &TcpStream, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Parts without bytes at the beginning would look like a peer that takes none.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match tcp.write_vectored(parts) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut parts, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends what the library has to say in a handshake.
fn send_tls(mut tcp: &TcpStream, tls: &mut Connection) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut tcp)?;
    }
    Ok(())
}
