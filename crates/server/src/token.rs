//! The token that clients send, if the server wants one: `Authorization: Bearer TOKEN` (RFC 6750), in gRPC as metadata.

use crate::api::Failure;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

/// Longest token in bytes.
pub const LONGEST: usize = 1024;
/// What precedes a token.
const SCHEME: &[u8] = b"Bearer ";

/// A token.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

/// It is in no message.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// True if both are the same. Takes the same time wherever they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |differences, (a, b)| black_box(differences | (a ^ b)));
    a.len() == b.len() && differences == 0
}

impl Token {
    /// A token with these bytes.
    ///
    /// # Errors
    /// What it must consist of.
    pub fn new(bytes: &[u8]) -> Result<Token, String> {
        let fits = (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        fits.then(|| Token(bytes.into())).ok_or_else(|| {
            format!("a token has 1 to {LONGEST} letters, digits and signs of ASCII, without spaces, on one line")
        })
    }

    /// Why a request with these headers is refused.
    fn refusal(&self, headers: &HeaderMap) -> Option<&'static str> {
        let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = sent.and_then(|sent| sent.split_at_checked(SCHEME.len()));
        match token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME)) {
            None => Some("this server wants a token; send `Authorization: Bearer TOKEN`"),
            Some((_, token)) if !is_same(token, &self.0) => Some("this is not the token of this server"),
            Some(_) => None,
        }
    }
}

/// Makes the answer to a request that is refused.
type Refuse = fn(&Failure) -> Response;

/// `routes` for clients that send the token, if there is one. The others get what `refuse` makes.
pub(crate) fn guarded(routes: Router, token: Option<&Token>, refuse: Refuse) -> Router {
    match token {
        Some(token) => routes.layer(from_fn_with_state((token.clone(), refuse), admit)),
        None => routes,
    }
}

async fn admit(State((token, refuse)): State<(Token, Refuse)>, request: Request, next: Next) -> Response {
    let Some(why) = token.refusal(request.headers()) else { return next.run(request).await };
    let mut response = refuse(&Failure { code: 401, ..Failure::validation(vec![why.to_owned()]) });
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::new(b"s3same+/=").unwrap();
        let is_accepted = |sent: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, sent.parse().unwrap());
            }
            token.refusal(&headers).is_none()
        };
        for sent in ["Bearer s3same+/=", "bearer s3same+/="] {
            assert!(is_accepted(Some(sent)), "{sent}");
        }
        let wrong = [
            "",
            "Bearer",
            "Bearer ",
            "s3same+/=",
            "Basic s3same+/=",
            "Bearer s3same",
            "Bearer s3same+/=x",
            "Bearer S3same+/=",
        ];
        for sent in wrong {
            assert!(!is_accepted(Some(sent)), "{sent}");
        }
        assert!(!is_accepted(None));
    }

    #[test]
    fn a_token_fits_into_a_header_and_into_no_message() {
        for bytes in [&b""[..], b"two words", b"line\nline", &[0xc3, 0xa4], &[b'x'; LONGEST + 1]] {
            assert!(Token::new(bytes).is_err(), "{bytes:?}");
        }
        let token = Token::new(&[b'x'; LONGEST]).unwrap();
        assert!(!format!("{token:?}").contains('x'));
    }
}
