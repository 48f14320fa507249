//! The asker of a request, by its access token. Without one, the page shows what `gtctl status` shows to every user.

use gt_bridge::peer::PeerOrigin;
use gt_bridge::user_tokens::UserTokens;
use gt_bridge::wrong_tokens::{Verdict, WrongTokens};
use gt_protocol::TokenInfo;
use hyper::header::{AUTHORIZATION, HeaderMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The asker of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebUser {
    /// The request has no token.
    Anybody,
    /// The request has a user's token.
    User(TokenInfo),
    /// The token is wrong or expired, or there were too many wrong ones: the reason, and the delay of the answer.
    Refused(String, Duration),
}

impl WebUser {
    /// Whether the details of user `uid`'s sessions are shown: to this user and to administrators.
    pub fn may_see(&self, uid: u32) -> bool {
        matches!(self, WebUser::User(token) if token.administrator || token.uid == uid)
    }
}

/// The tokens, and the limits on guesses.
pub struct WebAccess {
    tokens: Arc<UserTokens>,
    wrong_tokens: WrongTokens,
}

impl WebAccess {
    /// Access by the tokens of users.
    pub fn new(tokens: Arc<UserTokens>) -> WebAccess {
        WebAccess { tokens, wrong_tokens: WrongTokens::default() }
    }

    /// The asker of a request with these headers that came from `origin`.
    pub fn user(&self, headers: &HeaderMap, origin: PeerOrigin) -> WebUser {
        let Some(value) = headers.get(AUTHORIZATION) else { return WebUser::Anybody };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().trim();
        match self.wrong_tokens.check(origin, Instant::now(), || self.tokens.check(token)) {
            Verdict::Right(token) => WebUser::User(token),
            Verdict::Failed(_, delay) if !delay.is_zero() => {
                WebUser::Refused("this is no token of gtctl token create".into(), delay)
            }
            Verdict::Failed(why, delay) => WebUser::Refused(why.to_string(), delay),
            Verdict::Refused(left) => {
                let text = format!("too many wrong tokens came from here: try again in {} s", left.as_secs() + 1);
                WebUser::Refused(text, Duration::ZERO)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_bridge::wrong_tokens::FAILURES_MAX;
    use hyper::header::HeaderValue;

    fn headers(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
    }

    #[test]
    fn details_are_for_their_user_and_for_administrators() {
        let tokens = Arc::new(UserTokens::open(None));
        let [(ana, _), (admin, _)] = [(7, false), (8, true)].map(|(uid, all)| tokens.create(uid, 60, all).unwrap());
        let access = WebAccess::new(tokens.clone());
        let here = PeerOrigin::User(1);
        let [ana, admin] = [ana, admin].map(|text| access.user(&headers(&text), here));
        assert_eq!([7, 8, 9].map(|uid| ana.may_see(uid)), [true, false, false]);
        assert_eq!([7, 8, 9].map(|uid| admin.may_see(uid)), [true; 3]);
        let anybody = access.user(&HeaderMap::new(), here);
        assert!(anybody == WebUser::Anybody && !anybody.may_see(7));
        let WebUser::User(token) = ana else { panic!("{ana:?}") };
        tokens.revoke(token.id).unwrap();
    }

    #[test]
    fn guesses_are_limited_by_user() {
        let tokens = Arc::new(UserTokens::open(None));
        let (right, _) = tokens.create(7, 60, false).unwrap();
        let access = WebAccess::new(tokens);
        let [guesser, other] = [1, 2].map(PeerOrigin::User);
        for token in ["", "x", "gt-1-", "gt-99-0"].iter().cycle().take(FAILURES_MAX as usize) {
            let WebUser::Refused(why, delay) = access.user(&headers(token), guesser) else { panic!("{token}") };
            assert!(why.starts_with("this is no token") && !delay.is_zero(), "{why}");
        }
        assert!(
            matches!(access.user(&headers(&right), guesser), WebUser::Refused(why, _) if why.starts_with("too many"))
        );
        assert!(matches!(access.user(&headers(&right), other), WebUser::User(_)));
    }
}
