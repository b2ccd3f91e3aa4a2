//! Messages that come twice and late: whatever controller and agents say is said again at once, and again later.

use crate::bench::{Bed, access};
use async_nats::HeaderMap;
use drophammer_agent::link::Link;
use futures_util::StreamExt;
use futures_util::stream::select_all;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Marks what is said again.
const AGAIN: &str = "Again";
/// When it is said again, after the first time: also after the next trial has begun.
const AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(300), Duration::from_secs(2)];

/// Repeats requests to agents, states of hosts, and beats, until the returned value is dropped.
pub fn repeat(bed: &Bed) -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let access = access(bed, "controller");
    let messages = runtime.block_on(async {
        let client = Link::connect(&access, "everything twice").await.map_err(|e| e.0)?.client;
        let mut all = Vec::new();
        for subject in ["drophammer.agent.*", "drophammer.state.*", "drophammer.beat.*"] {
            all.push(client.subscribe(subject).await.map_err(|e| e.to_string())?);
        }
        client.flush().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((client, select_all(all)))
    });
    let (client, mut messages) = messages?;
    runtime.spawn(async move {
        while let Some(message) = messages.next().await {
            if message.headers.as_ref().is_some_and(|headers| headers.get(AGAIN).is_some()) {
                continue;
            }
            let client = client.clone();
            tokio::spawn(async move {
                for after in AFTER {
                    tokio::time::sleep(after).await;
                    let mut headers = HeaderMap::new();
                    headers.insert(AGAIN, "1");
                    let (subject, bytes) = (message.subject.clone(), message.payload.clone());
                    // Agents answer only those who ask, so there must be somewhere to answer to.
                    let _ = client.publish_with_reply_and_headers(subject, client.new_inbox(), headers, bytes).await;
                }
            });
        }
    });
    Ok(runtime)
}
