//! The HTTP side: one thread with bounded connections, headers and times.
//!
//! It answers only this machine ([`gt_config::metrics_address`]), and only requests whose `Host` is an address or
//! `localhost`: a page of another origin could otherwise read the answers by a name that it lets resolve to this
//! machine (DNS rebinding).

use super::desk::WebAsker;
use super::metrics::{MetricsWriter, OPENMETRICS, PROMETHEUS, without_openmetrics};
use super::snapshot::DaemonSnapshot;
use gt_bridge::peer::{self, PeerOrigin};
use gt_bridge::pending_handshakes::PendingHandshakes;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// A snapshot that is younger is not made again.
pub const SNAPSHOT_FRESH: Duration = Duration::from_millis(250);
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
/// The time for the dispatcher to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// The sleep after a failed accept, for example when no descriptors are left.
const ACCEPT_NAP: Duration = Duration::from_millis(20);
/// The ports below this one are for root.
const PRIVILEGED_PORTS: u16 = 1024;

type Answer = Response<Full<Bytes>>;

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
    pub fn start(self, asker: WebAsker) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let site = Arc::new(WebSite { asker, latest: tokio::sync::Mutex::default() });
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
            serve_connection(tcp, site).await;
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

async fn serve_connection(tcp: tokio::net::TcpStream, site: Arc<WebSite>) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<Answer, Infallible>(site.answer(&request).await) }
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

/// The last snapshot, and its text.
#[derive(Default)]
struct LatestSnapshot {
    writer: MetricsWriter,
    snapshot: Option<(Instant, Arc<DaemonSnapshot>)>,
    /// The text of the metrics of that snapshot, if anybody has asked for it.
    text: Option<Bytes>,
}

struct WebSite {
    asker: WebAsker,
    latest: tokio::sync::Mutex<LatestSnapshot>,
}

impl WebSite {
    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return sentence(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here");
        }
        let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or_default());
        if !host.is_none_or(is_of_this_machine) {
            let text = "ask by an address or as localhost: other names are refused, since a foreign page could use one";
            return sentence(StatusCode::MISDIRECTED_REQUEST, text);
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request).await,
            _ => sentence(StatusCode::NOT_FOUND, "there is no such page: /metrics has the metrics"),
        }
    }

    /// Brings the latest snapshot up to date; false if the dispatcher does not answer.
    async fn update(&self, latest: &mut LatestSnapshot) -> bool {
        if latest.snapshot.as_ref().is_some_and(|(at, _)| at.elapsed() < SNAPSHOT_FRESH) {
            return true;
        }
        let Ok(Some(snapshot)) = timeout(ANSWER_DEADLINE, self.asker.daemon()).await else { return false };
        latest.snapshot = Some((Instant::now(), Arc::new(snapshot)));
        latest.text = None;
        true
    }

    async fn metrics(&self, request: &Request<Incoming>) -> Answer {
        let mut latest = self.latest.lock().await;
        if !self.update(&mut latest).await {
            return unanswered();
        }
        let LatestSnapshot { writer, snapshot: Some((_, snapshot)), text } = &mut *latest else { return unanswered() };
        if text.is_none() {
            *text = writer.text(snapshot).ok().map(Bytes::from);
        }
        let Some(text) = text.clone() else {
            return sentence(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written");
        };
        drop(latest);
        let accepted = request.headers().get_all(header::ACCEPT).iter();
        let mut accepted = accepted.filter_map(|value| value.to_str().ok());
        if accepted.any(|value| value.contains("application/openmetrics-text")) {
            return page(StatusCode::OK, OPENMETRICS, text);
        }
        page(StatusCode::OK, PROMETHEUS, without_openmetrics(&String::from_utf8_lossy(&text)).into())
    }
}

/// Whether a `Host` header names an address or `localhost`, with or without a port.
fn is_of_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let is_address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    name.eq_ignore_ascii_case("localhost") || is_address(name) || is_address(host)
}

fn unanswered() -> Answer {
    sentence(StatusCode::SERVICE_UNAVAILABLE, "the dispatcher does not answer: it is ending, or hangs")
}

fn sentence(status: StatusCode, text: &str) -> Answer {
    page(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

fn page(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_localhost() {
        for host in ["localhost", "LocalHost:9400", "127.0.0.1", "127.0.0.1:9400", "[::1]:9400", "[::1]", "10.0.0.7"] {
            assert!(is_of_this_machine(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:9400", "localhost.evil.example", "127.0.0.1.evil.example", ":1"]
        {
            assert!(!is_of_this_machine(host), "{host}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_had_is_named() {
        let first = WebListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = WebListener::bind(first.address()).map(|_| ()).unwrap_err();
        let expected = format!("cannot serve metrics at {}: another program listens there", first.address());
        assert!(error.starts_with(&expected), "{error}");
    }
}
