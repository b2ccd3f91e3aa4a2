//! Files of a run: its report, its record and what else is in its folder.

use crate::api::Failure;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

/// Bytes of a file that are read at a time.
const AT_ONCE: u64 = 64 << 10;

/// Opens a file in or below the folder of a run: an ordinary one, also where links lead.
pub fn open(folder: &Path, path: &str) -> Result<File, Failure> {
    let plain =
        |part: Component<'_>| matches!(part, Component::Normal(name) if !name.as_encoded_bytes().starts_with(b"."));
    let found = || -> io::Result<Option<File>> {
        if path.contains('\\') || !Path::new(path).components().all(plain) {
            return Ok(None);
        }
        let file = folder.join(path).canonicalize()?;
        // Opening anything but an ordinary file may block.
        if !file.starts_with(folder.canonicalize()?) || !file.metadata()?.is_file() {
            return Ok(None);
        }
        let file = File::open(file)?;
        Ok(file.metadata()?.is_file().then_some(file))
    };
    found()
        .ok()
        .flatten()
        .ok_or_else(|| super::not_found("the run has no such file; its report is there when it has ended"))
}

/// Sends a file of this name.
pub fn send(file: File, name: &str) -> Response {
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("csv") => "text/csv; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("pcap") => "application/vnd.tcpdump.pcap",
        _ => "text/plain; charset=utf-8",
    };
    // A file that fails on the way must not look whole, so that the connection breaks.
    let parts = unfold(Some(file), |file| async {
        let mut file = file?;
        let read = tokio::task::spawn_blocking(move || {
            let mut part = Vec::new();
            file.by_ref().take(AT_ONCE).read_to_end(&mut part).map(|_| (part, file))
        });
        match read.await.map_err(io::Error::other).flatten() {
            Ok((part, _)) if part.is_empty() => None,
            Ok((part, file)) => Some((Ok(Bytes::from(part)), Some(file))),
            Err(e) => Some((Err(e), None)),
        }
    });
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // A report shows texts of its suite, and must not act for its reader.
        (header::CONTENT_SECURITY_POLICY, "sandbox allow-scripts allow-popups"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(parts)).into_response()
}
