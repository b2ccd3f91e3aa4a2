//! Leases of ports: entries of a bucket that expire unless their holder renews them.

use crate::Problem;
use crate::link::{LIFE, RENEW, patiently};
use crate::message::{Lease, decode, encode};
use async_nats::jetstream::kv::{CreateErrorKind, Entry, Store};
use futures_util::stream::{self, StreamExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::interval;

/// How often to look whether the holder of a lease renews it.
const AGAIN: Duration = Duration::from_millis(500);
/// How many leases are renewed at once. One after the other, many would take longer than they live.
const AT_ONCE: usize = 32;

/// Takes a lease. If its holder has stopped renewing it, waits until it expires.
pub(crate) async fn take_from_dead(bucket: &Store, key: &str, lease: &Lease) -> Result<Result<u64, Lease>, Problem> {
    let begun = Instant::now();
    let mut first = None;
    loop {
        let held = match take(bucket, key, lease).await? {
            Ok(revision) => return Ok(Ok(revision)),
            Err(held) => held,
        };
        let revision = bucket.entry(key).await.ok().flatten().map(|entry| entry.revision);
        first = first.or(revision);
        let is_renewed = revision.is_some() && revision != first;
        if is_renewed || begun.elapsed() > LIFE + RENEW {
            return Ok(Err(held));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Renews leases, each with its key and its revision, until one is lost. Returns why.
pub(crate) async fn keep(bucket: Store, keys: Arc<Mutex<Vec<(String, u64)>>>, lease: Lease) -> String {
    let locked = || keys.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = interval(RENEW);
    loop {
        next.tick().await;
        let known = locked().clone();
        let each = known.into_iter().map(|(key, revision)| {
            let (bucket, lease) = (&bucket, &lease);
            async move {
                let renewed = renew_or_take(bucket, &key, lease, revision).await;
                (key, renewed)
            }
        });
        let each: Vec<_> = each.collect();
        let mut all = stream::iter(each).buffer_unordered(AT_ONCE);
        while let Some((key, renewed)) = all.next().await {
            match renewed {
                Ok(Some(revision)) => locked().iter_mut().filter(|k| k.0 == key).for_each(|k| k.1 = revision),
                // The server cannot be reached; the next round tries again.
                Ok(None) => {}
                Err(e) => return format!("the lease of a port is lost: {e}"),
            }
        }
    }
}

/// Renews a lease, and returns its new revision; `None` if the server does not answer.
///
/// # Errors
/// Somebody else holds the lease.
async fn renew_or_take(bucket: &Store, key: &str, lease: &Lease, revision: u64) -> Result<Option<u64>, Problem> {
    if let Ok(revision) = renew(bucket, key, lease, revision).await {
        return Ok(Some(revision));
    }
    // The server may have lost the lease in a restart, its answer may have been lost, or the network may have been down for
    // longer than a lease lives. If nobody else has taken the lease, take it again.
    match take(bucket, key, lease).await {
        Ok(Ok(revision)) => Ok(Some(revision)),
        Ok(Err(held)) => Err(Problem(format!("{key} is now held by {}", held.holder))),
        Err(_) => Ok(None),
    }
}

/// Takes a lease of `key`. Returns its revision, or who else holds it.
///
/// # Errors
/// The server does not answer.
async fn take(bucket: &Store, key: &str, lease: &Lease) -> Result<Result<u64, Lease>, Problem> {
    // An entry can expire between the two requests.
    for _ in 0..3 {
        let create = || async {
            match bucket.create(key, encode(lease).into()).await {
                Err(e) if e.kind() == CreateErrorKind::AlreadyExists => Ok(None),
                created => created.map(Some),
            }
        };
        if let Some(revision) = patiently("the server", create).await? {
            return Ok(Ok(revision));
        }
        let entry = patiently("the server", || bucket.entry(key)).await?;
        let read = entry.and_then(|entry| Some((entry.revision, decode::<Lease>(&entry.value).ok()?)));
        if let Some((revision, held)) = read {
            // It is ours if the server took it, but its answer was lost.
            return Ok(if held.id == lease.id { Ok(revision) } else { Err(held) });
        }
    }
    Err(Problem(format!("the lease of {key} cannot be read")))
}

/// Renews a lease. Returns the new revision.
///
/// # Errors
/// Somebody else holds the lease, or the server does not answer.
async fn renew(bucket: &Store, key: &str, lease: &Lease, revision: u64) -> Result<u64, Problem> {
    let renewed = bucket.update(key, encode(lease).into(), revision).await;
    renewed.map_err(|e| Problem::of(&format!("the lease of {key} is lost"), e))
}

/// Ends a lease, if it is still held by its holder.
pub(crate) async fn end(bucket: &Store, key: &str, lease: &Lease) {
    // The server may be slow to answer, and a renewal on its way may raise the revision after we have read it.
    for _ in 0..5 {
        let Ok(read) = bucket.entry(key).await else { continue };
        let is_ours = |entry: &Entry| decode::<Lease>(&entry.value).is_ok_and(|held| held.id == lease.id);
        let Some(entry) = read.filter(is_ours) else { return };
        if bucket.delete_expect_revision(key, Some(entry.revision)).await.is_ok() {
            return;
        }
    }
    // The lease expires by itself.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_says_how_slow_the_server_may_be() {
        const PORTS: usize = 1_000;
        let page = include_str!("../../../docs/performance.md");
        let longest_ms = LIFE.as_millis() as usize * AT_ONCE / PORTS;
        for says in [
            format!("every {} s, {AT_ONCE} at once", RENEW.as_secs()),
            format!("are renewed {AT_ONCE} at once and live for {} s", LIFE.as_secs()),
            format!("1,000 ports need R below {longest_ms} ms"),
        ] {
            assert!(page.contains(&says), "{says}");
        }
    }
}
