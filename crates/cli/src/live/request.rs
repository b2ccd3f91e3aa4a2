//! HTTP/1.1 requests (RFC 9112), as far as the page needs them, and replies.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Maximum length of a request, in bytes.
const LONGEST: usize = 8 << 10;

/// A request without body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method: `GET`.
    pub method: String,
    /// Path without the query.
    pub path: String,
    query: String,
    headers: Vec<(String, String)>,
}

/// An answer.
pub struct Reply {
    status: u16,
    kind: &'static str,
    body: String,
}

/// Reads a request until `deadline`. For an invalid request, returns the reply that refuses it.
pub fn read(mut connection: &TcpStream, deadline: Instant) -> io::Result<Result<Request, Reply>> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        let read = connection.read(&mut part)?;
        bytes.extend_from_slice(&part[..read]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(parse(&bytes[..end]).ok_or_else(|| Reply::plain(400, "this is not a request")));
        }
        if read == 0 || Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if bytes.len() > LONGEST {
            return Ok(Err(Reply::plain(431, "the request is too long")));
        }
    }
}

/// Sends a reply. Fails if the other side has not received all of it by `deadline`.
pub fn write(mut connection: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_write_timeout(Some(left))?;
        match connection.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            taken => bytes = &bytes[taken..],
        }
    }
    Ok(())
}

/// The head of a request, without the empty line.
fn parse(head: &[u8]) -> Option<Request> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() || !target.starts_with('/') {
        return None;
    }
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: headers.collect::<Option<_>>()?,
    })
}

impl Request {
    /// The value of a header, given its lower-case name. `None` if the header occurs twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let first = found.next();
        first.filter(|_| found.next().is_none()).map(|(_, value)| value.as_str())
    }

    /// A number in the query; 0 if there is none.
    pub fn number(&self, name: &str) -> u64 {
        let of = |part: &str| part.split_once('=').filter(|(key, _)| *key == name)?.1.parse().ok();
        self.query.split('&').find_map(of).unwrap_or(0)
    }
}

impl Reply {
    pub fn new(status: u16, kind: &'static str, body: &str) -> Reply {
        Reply { status, kind, body: body.to_owned() }
    }

    /// A reply with a line of text.
    pub fn plain(status: u16, text: &str) -> Reply {
        Reply::new(status, "text/plain; charset=utf-8", &format!("{text}\n"))
    }

    pub fn bytes(&self) -> Vec<u8> {
        let phrase = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            _ => "Request Header Fields Too Large",
        };
        let head = format!(
            "HTTP/1.1 {} {phrase}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        [head.as_bytes(), self.body.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_comes_is_a_request_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200), line in "[ -~\\r\\n]{0,80}") {
            for head in [bytes.as_slice(), format!("GET /{line}").as_bytes()] {
                if let Some(request) = parse(head) {
                    prop_assert!(request.path.starts_with('/') && !request.method.contains(' '));
                    request.number("after");
                }
            }
        }
    }

    #[test]
    fn requests_are_read() {
        let request = parse(b"GET /events?x=1&after=17 HTTP/1.1\r\nHost: 127.0.0.1:1\r\nX-A:  b ").unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/events"));
        assert_eq!((request.number("after"), request.number("before")), (17, 0));
        assert_eq!((request.header("host"), request.header("x-a")), (Some("127.0.0.1:1"), Some("b")));
        let twice = parse(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b").unwrap();
        assert_eq!(twice.header("host"), None);
        for wrong in
            [&b""[..], b"GET /", b"GET / HTTP/2", b"GET x HTTP/1.1", b"GET / HTTP/1.1\r\nx", b"\xff / HTTP/1.1"]
        {
            assert_eq!(parse(wrong), None);
        }
    }
}
