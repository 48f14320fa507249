//! The answers to requests.
//!
//! Only requests whose `Host` is an address or `localhost` are answered: a page of another origin could otherwise read
//! the answers by a name that it lets resolve to this machine (DNS rebinding). Nothing can be changed by a request, and
//! the page loads nothing from elsewhere.

use super::access::{WebAccess, WebUser};
use super::desk::WebAsker;
use super::history::{SAMPLE_EVERY, WorkHistory};
use super::metrics::{MetricsWriter, OPENMETRICS, PROMETHEUS, without_openmetrics};
use super::page_data::{PageDaemon, PageSessionDetail, PageYou};
use super::snapshot::DaemonSnapshot;
use super::timeline::last_steps;
use super::user_names::UserNames;
use gt_bridge::peer::PeerOrigin;
use gt_protocol::limits::TAPE_RECORDS;
use gt_shm::broadcast::{self, Reader};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// A snapshot that is younger is not made again.
pub const SNAPSHOT_FRESH: Duration = Duration::from_millis(250);
/// The interval between two questions about sessions.
const SESSION_EVERY: Duration = Duration::from_millis(100);
/// The time for the dispatcher to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// The page, which has no other parts.
const PAGE: &str = include_str!("page.html");
const PAGE_STYLE: &str = include_str!("page.css");
const PAGE_SCRIPT: &str = include_str!("page.js");
/// The browser loads the page's own parts alone, and shows it in no other page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// The last snapshot, and its texts.
#[derive(Default)]
struct LatestSnapshot {
    writer: MetricsWriter,
    names: UserNames,
    history: WorkHistory,
    snapshot: Option<(Instant, Arc<DaemonSnapshot>)>,
    /// The metrics of that snapshot, if anybody has asked for them.
    metrics: Option<Bytes>,
    /// The page's document of it.
    daemon: Option<Bytes>,
}

/// All that is served.
pub struct WebSite {
    asker: WebAsker,
    access: WebAccess,
    /// The daemon's tape.
    tape: OwnedFd,
    latest: Mutex<LatestSnapshot>,
    /// The time of the last question about a session.
    session_asked: Mutex<Option<Instant>>,
}

impl WebSite {
    /// A site that asks the dispatcher by `asker`, and reads `tape` for the last steps of a session.
    pub fn new(asker: WebAsker, access: WebAccess, tape: OwnedFd) -> WebSite {
        WebSite { asker, access, tape, latest: Mutex::default(), session_asked: Mutex::default() }
    }

    /// Adds samples to the history, for ever.
    pub async fn keep_history(&self) {
        loop {
            let mut latest = self.latest.lock().await;
            if self.update(&mut latest).await {
                let LatestSnapshot { history, names, snapshot, .. } = &mut *latest;
                if let Some((_, snapshot)) = snapshot {
                    history.add(snapshot, names);
                }
            }
            drop(latest);
            sleep(SAMPLE_EVERY).await;
        }
    }

    /// The answer to a request that came from `origin`.
    pub async fn answer(&self, request: &Request<Incoming>, origin: PeerOrigin) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return sentence(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here");
        }
        let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or_default());
        if !host.is_none_or(is_of_this_machine) {
            let text = "ask by an address or as localhost: other names are refused, since a foreign page could use one";
            return sentence(StatusCode::MISDIRECTED_REQUEST, text);
        }
        let path = request.uri().path();
        match path {
            "/" => return document("text/html; charset=utf-8", PAGE.into()),
            "/page.css" => return document("text/css; charset=utf-8", PAGE_STYLE.into()),
            "/page.js" => return document("text/javascript; charset=utf-8", PAGE_SCRIPT.into()),
            "/metrics" => return self.metrics(request).await,
            _ => {}
        }
        let user = self.access.user(request.headers(), origin);
        if let WebUser::Refused(why, delay) = &user {
            sleep(*delay).await;
            return sentence(StatusCode::UNAUTHORIZED, why);
        }
        match path {
            "/api/daemon" => self.daemon().await,
            "/api/history" => self.history(request.uri().query().unwrap_or_default()).await,
            "/api/you" => json(&PageYou::new(&user, &mut self.latest.lock().await.names)),
            _ => match path.strip_prefix("/api/sessions/").and_then(|id| id.parse().ok()) {
                Some(id) => self.session(id, &user).await,
                None => sentence(StatusCode::NOT_FOUND, "there is no such page: / is one, /metrics has the metrics"),
            },
        }
    }

    /// Brings the latest snapshot up to date; false if the dispatcher does not answer.
    async fn update(&self, latest: &mut LatestSnapshot) -> bool {
        if latest.snapshot.as_ref().is_some_and(|(at, _)| at.elapsed() < SNAPSHOT_FRESH) {
            return true;
        }
        let Ok(Some(snapshot)) = timeout(ANSWER_DEADLINE, self.asker.daemon()).await else { return false };
        latest.snapshot = Some((Instant::now(), Arc::new(snapshot)));
        (latest.metrics, latest.daemon) = (None, None);
        true
    }

    async fn metrics(&self, request: &Request<Incoming>) -> Answer {
        let mut latest = self.latest.lock().await;
        if !self.update(&mut latest).await {
            return unanswered();
        }
        let LatestSnapshot { writer, names, snapshot: Some((_, snapshot)), metrics, .. } = &mut *latest else {
            return unanswered();
        };
        if metrics.is_none() {
            *metrics = writer.text(snapshot, names).ok().map(Bytes::from);
        }
        let Some(text) = metrics.clone() else {
            return sentence(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written");
        };
        drop(latest);
        let accepted = request.headers().get_all(header::ACCEPT).iter();
        let mut accepted = accepted.filter_map(|value| value.to_str().ok());
        if accepted.any(|value| value.contains("application/openmetrics-text")) {
            return document(OPENMETRICS, text);
        }
        document(PROMETHEUS, without_openmetrics(&String::from_utf8_lossy(&text)).into())
    }

    async fn daemon(&self) -> Answer {
        let mut latest = self.latest.lock().await;
        if !self.update(&mut latest).await {
            return unanswered();
        }
        let LatestSnapshot { names, snapshot: Some((_, snapshot)), daemon, .. } = &mut *latest else {
            return unanswered();
        };
        if daemon.is_none() {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let page = PageDaemon::new(snapshot, names, host, now_s);
            *daemon = serde_json::to_vec(&page).ok().map(Bytes::from);
        }
        daemon.clone().map_or_else(unanswered, |body| document(JSON, body))
    }

    async fn history(&self, query: &str) -> Answer {
        let after = query.strip_prefix("after=").and_then(|number| number.parse().ok()).unwrap_or(0);
        json(&self.latest.lock().await.history.after(after))
    }

    async fn session(&self, id: u64, user: &WebUser) -> Answer {
        if *user == WebUser::Anybody {
            let text = "the details of a session take a token: gtctl token create makes one";
            return sentence(StatusCode::UNAUTHORIZED, text);
        }
        // Each question takes some of the dispatcher's time.
        let mut asked = self.session_asked.lock().await;
        if let Some(early) = asked.and_then(|at| SESSION_EVERY.checked_sub(at.elapsed())) {
            sleep(early).await;
        }
        *asked = Some(Instant::now());
        let found = timeout(ANSWER_DEADLINE, self.asker.session(id)).await;
        let Ok(found) = found else { return unanswered() };
        // A session of another user is as unknown as one that does not exist.
        let Some(snapshot) = found.filter(|found| user.may_see(found.detail.session.uid)) else {
            let text = format!("you have no session {id}: it has ended, or is another user's");
            return sentence(StatusCode::NOT_FOUND, &text);
        };
        let tape = broadcast::open_file(&self.tape, TAPE_RECORDS).map(Reader::from_oldest).ok();
        let steps = tape.map(|tape| last_steps(tape, id)).unwrap_or_default();
        drop(asked);
        let mut latest = self.latest.lock().await;
        let workers = latest.snapshot.iter().flat_map(|(_, snapshot)| &snapshot.status.workers);
        let workers = workers.map(|worker| worker.name.clone()).collect();
        json(&PageSessionDetail::new(snapshot, steps, workers, &mut latest.names))
    }
}

/// Whether a `Host` header names an address or `localhost`, with or without a port.
fn is_of_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let is_address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    name.eq_ignore_ascii_case("localhost") || is_address(name) || is_address(host)
}

const JSON: &str = "application/json";

fn json(of: &impl Serialize) -> Answer {
    serde_json::to_vec(of).map_or_else(|_| unanswered(), |body| document(JSON, body.into()))
}

fn unanswered() -> Answer {
    sentence(StatusCode::SERVICE_UNAVAILABLE, "the dispatcher does not answer: it is ending, or hangs")
}

fn sentence(status: StatusCode, text: &str) -> Answer {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

fn document(content_type: &'static str, body: Bytes) -> Answer {
    answer(StatusCode::OK, content_type, body)
}

fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
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
}
