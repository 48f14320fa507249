//! The HTTP side: one thread with bounded connections, headers and times.
//!
//! Other machines cannot connect ([`gt_config::metrics_address`]).

use super::site::{Answer, WebSite};
use gt_bridge::peer::{self, PeerOrigin};
use gt_bridge::pending_handshakes::PendingHandshakes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Connections at one time. Beyond that, the user who has the most loses the oldest.
const CONNECTIONS_MAX: usize = 64;
/// The bytes of a request's line and headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// The headers of a request.
const HEADERS_MAX: usize = 64;
/// The time for a request's line and headers, also on a connection that is kept open.
const HEADER_DEADLINE: Duration = Duration::from_secs(20);
/// The longest life of a connection, and the time to end one that has come to it.
const CONNECTION_LIFE: Duration = Duration::from_secs(300);
const CONNECTION_END: Duration = Duration::from_secs(5);
/// The sleep after a failed accept, for example when no descriptors are left.
const ACCEPT_NAP: Duration = Duration::from_millis(20);
/// The ports below this one are for root.
const PRIVILEGED_PORTS: u16 = 1024;

/// A port at which nothing is answered yet.
pub struct WebListener {
    tcp: TcpListener,
    address: SocketAddr,
}

impl WebListener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The sentence for the user.
    pub fn bind(address: SocketAddr) -> Result<WebListener, String> {
        let bound = TcpListener::bind(address).and_then(|tcp| {
            tcp.set_nonblocking(true)?;
            Ok(WebListener { address: tcp.local_addr()?, tcp })
        });
        bound.map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                format!("cannot serve metrics at {address}: another program listens there; choose another port")
            }
            ErrorKind::PermissionDenied if address.port() < PRIVILEGED_PORTS => format!(
                "cannot serve metrics at {address}: ports below {PRIVILEGED_PORTS} are for root; choose another port, as in \
                 9400"
            ),
            ErrorKind::AddrNotAvailable => {
                format!("cannot serve metrics at {address}: this machine has no such address; write a port alone")
            }
            _ => format!("cannot serve metrics at {address}: {error}; choose another address"),
        })
    }

    /// The address; for port 0, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves in a thread of its own until the process ends.
    ///
    /// # Errors
    /// The system has no thread or descriptors for that.
    pub fn start(self, site: WebSite) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let site = Arc::new(site);
        let serve = move || runtime.block_on(serve(self.tcp, site));
        std::thread::Builder::new().name("gt-web".into()).spawn(serve)?;
        Ok(())
    }
}

async fn serve(tcp: TcpListener, site: Arc<WebSite>) {
    let tcp = match tokio::net::TcpListener::from_std(tcp) {
        Ok(tcp) => tcp,
        Err(error) => return tracing::error!(target: "gtd::web", %error, "metrics are not served"),
    };
    let connections =
        Arc::new(WebConnections { open: PendingHandshakes::new(CONNECTIONS_MAX), tasks: Mutex::default() });
    let sampled = site.clone();
    tokio::spawn(async move { sampled.keep_history().await });
    for number in 0u64.. {
        let accepted = tcp.accept().await.and_then(|(tcp, peer)| {
            let tcp = tcp.into_std()?;
            let origin = origin(&tcp, peer);
            Ok((tokio::net::TcpStream::from_std(tcp)?, origin))
        });
        let (tcp, origin) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(target: "gtd::web", %error, "a connection could not be accepted");
                sleep(ACCEPT_NAP).await;
                continue;
            }
        };
        if let Some(closed) = connections.open.begin(origin, number) {
            connections.end(closed);
        }
        let (site, own) = (site.clone(), connections.clone());
        let task = tokio::spawn(async move {
            serve_connection(tcp, origin, site).await;
            own.end(number);
        });
        connections.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(number, task.abort_handle());
    }
}

fn origin(tcp: &TcpStream, peer: SocketAddr) -> PeerOrigin {
    PeerOrigin::new(peer::local_user(tcp, peer).unwrap_or(None), peer.ip())
}

/// The open connections, by number.
struct WebConnections {
    open: PendingHandshakes<u64>,
    tasks: Mutex<HashMap<u64, AbortHandle>>,
}

impl WebConnections {
    fn end(&self, number: u64) {
        self.open.end(&number);
        if let Some(task) = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(&number) {
            task.abort();
        }
    }
}

async fn serve_connection(tcp: tokio::net::TcpStream, origin: PeerOrigin, site: Arc<WebSite>) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<Answer, Infallible>(site.answer(&request, origin).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(tcp), service);
    let mut connection = std::pin::pin!(connection);
    let result = match timeout(CONNECTION_LIFE, connection.as_mut()).await {
        Ok(result) => result,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            timeout(CONNECTION_END, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(target: "gtd::web", %error, "a connection was ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_had_is_named() {
        let first = WebListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = WebListener::bind(first.address()).map(|_| ()).unwrap_err();
        let expected = format!("cannot serve metrics at {}: another program listens there", first.address());
        assert!(error.starts_with(&expected), "{error}");
    }
}
