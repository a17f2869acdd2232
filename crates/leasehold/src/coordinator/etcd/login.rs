//! Who we are to etcd: a user and a password, exchanged for a token that etcd may forget at any time.

use tokio::sync::Mutex;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
};

use super::{
    failure::Fail,
    member::Link,
    proto::{AuthenticateRequest, AuthenticateResponse},
    rpc::{READ_LIMIT, ask},
};
use crate::address::Secret;

/// A token as it is sent.
pub(super) type Token = MetadataValue<Ascii>;

/// The login of one client. Whoever needs a token while one is being asked for waits for it.
#[derive(Debug)]
pub(super) struct Login {
    who: Option<(String, Secret)>,
    token: Mutex<Known>,
}

#[derive(Clone, Debug)]
enum Known {
    Nothing,
    /// The cluster has no users.
    NotNeeded,
    Token(Token),
}

impl Login {
    pub(super) fn new(who: Option<(String, Secret)>) -> Self {
        Self { who, token: Mutex::new(Known::Nothing) }
    }

    /// The token to send, asked for when there is none.
    pub(super) async fn token(&self, link: &Link) -> Result<Option<Token>, Fail> {
        let Some((name, password)) = &self.who else { return Ok(None) };
        let mut known = self.token.lock().await;
        match &*known {
            Known::NotNeeded => return Ok(None),
            Known::Token(token) => return Ok(Some(token.clone())),
            Known::Nothing => {}
        }
        let question = AuthenticateRequest { name: name.clone(), password: password.reveal().to_owned() };
        let answer: Result<tonic::Response<AuthenticateResponse>, Fail> =
            ask(link, "/etcdserverpb.Auth/Authenticate", Request::new(question), READ_LIMIT).await;
        let token = match answer {
            Ok(answer) => answer.into_inner().token,
            Err(fail) if says_no_users(&fail) => {
                *known = Known::NotNeeded;
                return Ok(None);
            }
            // A login changes nothing.
            Err(Fail::Unanswered(why)) => return Err(Fail::NotSent(why)),
            Err(fail) => return Err(fail),
        };
        let mut token =
            Token::try_from(token).map_err(|_| Fail::Wrong("its login token is no text".to_owned()))?;
        token.set_sensitive(true);
        *known = Known::Token(token.clone());
        Ok(Some(token))
    }

    /// True when the URL names a user.
    pub(super) fn is_given(&self) -> bool {
        self.who.is_some()
    }

    /// True when etcd has said that it has no users.
    pub(super) async fn is_not_needed(&self) -> bool {
        matches!(*self.token.lock().await, Known::NotNeeded)
    }

    /// This token is not known to etcd any more.
    pub(super) async fn forget(&self, token: Option<Token>) {
        let mut known = self.token.lock().await;
        let same = match (&*known, &token) {
            (Known::Token(known), Some(token)) => known == token,
            (Known::NotNeeded, None) => true,
            _ => false,
        };
        if same {
            *known = Known::Nothing;
        }
    }

    /// Whatever token there is may not be known to etcd any more.
    pub(super) async fn forget_any(&self) {
        *self.token.lock().await = Known::Nothing;
    }
}

fn says_no_users(fail: &Fail) -> bool {
    matches!(fail, Fail::Denied(why) | Fail::Wrong(why) if why.contains("authentication is not enabled"))
}
