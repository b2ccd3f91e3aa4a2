//! The connection to the NATS server, and the buckets and stream on it.

use crate::Problem;
use crate::message::{Announcement, LARGEST, Lease, decode, is_host_name};
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::object_store::ObjectStore;
use async_nats::jetstream::stream::{self, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, ServerAddr};
use futures_util::TryStreamExt;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bucket of agents.
pub const AGENTS: &str = "drophammer-agents";
/// Bucket of leases.
pub const LEASES: &str = "drophammer-leases";
/// Stream of reports.
pub const RECORDS: &str = "drophammer-records";
/// Bucket of captured frames, each file an object that its reader deletes.
pub const CAPTURES: &str = "drophammer-captures";
/// Largest size of the bucket in bytes: eight files of the largest size, because files are deleted once they are read.
const CAPTURED: i64 = 512 << 20;
/// How long a file lives whose reader is gone.
const UNREAD: Duration = Duration::from_secs(600);
/// How long an entry lives if nobody renews it.
pub const LIFE: Duration = Duration::from_secs(10);
/// How often entries are renewed.
pub const RENEW: Duration = Duration::from_secs(3);
/// How long reports are kept in the stream.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Largest size of the stream in bytes. When it is full, the server deletes the oldest reports, which were merged long
/// ago.
const ROOM: i64 = 2 << 30;
/// How long the server may take to answer a question before it is asked again.
pub const SOON: Duration = Duration::from_secs(5);
/// How long it is asked.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time between two such questions.
const AGAIN: Duration = Duration::from_millis(100);

/// How to reach the server and authenticate.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Address: `nats://HOST:PORT`, or `tls://HOST:PORT`.
    pub url: String,
    /// Name of the user.
    pub user: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// Seed of an NKey, instead of user and password.
    pub nkey: Option<String>,
    /// File with certificates of authorities, in addition to the system's, that may sign the server's certificate.
    pub ca: Option<PathBuf>,
}

impl Access {
    /// Returns the server, and whether the connection needs TLS and credentials.
    ///
    /// # Errors
    /// The address is invalid, or the server is not on loopback and TLS or credentials are missing.
    fn check(&self) -> Result<ServerAddr, Problem> {
        let example = "write nats://127.0.0.1:4222, or tls://HOST:4222";
        let address: ServerAddr = self
            .url
            .parse()
            .map_err(|e| Problem(format!("`{}` is not the address of a NATS server ({e}); {example}", self.url)))?;
        let host = address.host();
        let is_loopback = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_loopback {
            return Ok(address);
        }
        if !self.is_encrypted() {
            return Err(Problem(format!(
                "{host} is another machine, so the connection must be encrypted; write tls://{host}:{}, and --ca FILE with \
                 the certificate of the server if it signed it itself",
                address.port()
            )));
        }
        if self.nkey.is_none() && (self.user.is_none() || self.password.is_none()) {
            return Err(Problem(format!(
                "{host} is another machine, so the server must know who connects; give --user and --password-file, or --nkey-file"
            )));
        }
        Ok(address)
    }

    fn is_encrypted(&self) -> bool {
        self.url.starts_with("tls://")
    }
}

/// A connection.
#[derive(Clone)]
pub struct Link {
    /// The client. It reconnects by itself.
    pub client: Client,
    /// JetStream of the server.
    pub jetstream: Context,
}

impl Link {
    /// Connects as `name`.
    ///
    /// # Errors
    /// The cause and the remedy.
    pub async fn connect(access: &Access, name: &str) -> Result<Link, Problem> {
        let address = access.check()?;
        let mut options = ConnectOptions::new()
            .name(name)
            .connection_timeout(SOON)
            .request_timeout(Some(SOON))
            .ping_interval(Duration::from_secs(2))
            .subscription_capacity(1 << 14)
            .require_tls(access.is_encrypted());
        if let Some(seed) = &access.nkey {
            options = options.nkey(seed.clone());
        } else if let (Some(user), Some(password)) = (&access.user, &access.password) {
            options = options.user_and_password(user.clone(), password.clone());
            options = options.custom_inbox_prefix(inbox(user));
        }
        if let Some(ca) = &access.ca {
            options = options.add_root_certificates(ca.clone());
        }
        let remedy = "check the address and that the server runs (`drophammer bed up` starts one on this machine)";
        let client = options
            .connect(address)
            .await
            .map_err(|e| Problem(format!("cannot connect to the NATS server {}: {e}; {remedy}", access.url)))?;
        takes_all(&access.url, client.max_payload())?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(SOON);
        Ok(Link { client, jetstream })
    }

    /// Creates buckets and stream, unless they are there.
    ///
    /// # Errors
    /// The server has no JetStream, or does not permit this.
    pub async fn prepare(&self) -> Result<(), Problem> {
        let remedy = |e: Problem| Problem(format!("{e}; does the server have JetStream, and room?"));
        for bucket in [AGENTS, LEASES] {
            // A bucket is a stream by convention (NATS ADR-8). Older servers answer with fewer fields than the client's
            // own function expects.
            let config = stream::Config {
                name: format!("KV_{bucket}"),
                subjects: vec![format!("$KV.{bucket}.>")],
                max_messages_per_subject: 1,
                max_age: LIFE,
                max_message_size: 64 << 10,
                discard: stream::DiscardPolicy::New,
                allow_rollup: true,
                deny_delete: true,
                allow_direct: true,
                duplicate_window: LIFE,
                // Entries must survive a restart of the server.
                storage: stream::StorageType::File,
                num_replicas: 1,
                ..stream::Config::default()
            };
            let create = || self.jetstream.get_or_create_stream(config.clone());
            patiently(&format!("bucket {bucket}"), create).await.map_err(remedy)?;
        }
        let config = stream::Config {
            name: RECORDS.into(),
            subjects: vec!["drophammer.record.>".into()],
            max_age: KEPT,
            max_bytes: ROOM,
            storage: stream::StorageType::File,
            duplicate_window: Duration::from_secs(120),
            ..stream::Config::default()
        };
        let create = || self.jetstream.get_or_create_stream(config.clone());
        patiently(&format!("stream {RECORDS}"), create).await.map(drop).map_err(remedy)
    }

    /// Creates the bucket of captures, unless it is there.
    ///
    /// # Errors
    /// As for [`Link::prepare`].
    pub async fn prepare_captures(&self) -> Result<(), Problem> {
        // An object store is a stream by convention (NATS ADR-20).
        let config = stream::Config {
            name: format!("OBJ_{CAPTURES}"),
            subjects: vec![format!("$O.{CAPTURES}.C.>"), format!("$O.{CAPTURES}.M.>")],
            max_age: UNREAD,
            max_bytes: CAPTURED,
            discard: stream::DiscardPolicy::New,
            allow_rollup: true,
            allow_direct: true,
            storage: stream::StorageType::File,
            num_replicas: 1,
            ..stream::Config::default()
        };
        let create = || self.jetstream.get_or_create_stream(config.clone());
        let remedy = |e: Problem| Problem(format!("{e}; does the server have room?"));
        patiently(&format!("bucket {CAPTURES}"), create).await.map(drop).map_err(remedy)
    }

    /// Opens the bucket of agents.
    ///
    /// # Errors
    /// The server does not answer, or the bucket does not exist.
    pub async fn agents(&self) -> Result<Store, Problem> {
        patiently("the bucket of agents", || self.jetstream.get_key_value(AGENTS)).await
    }

    /// Opens the bucket of leases.
    ///
    /// # Errors
    /// As for [`Link::agents`].
    pub async fn leases(&self) -> Result<Store, Problem> {
        patiently("the bucket of leases", || self.jetstream.get_key_value(LEASES)).await
    }

    /// Opens the stream of reports.
    ///
    /// # Errors
    /// As for [`Link::agents`].
    pub async fn records(&self) -> Result<Stream, Problem> {
        patiently("the stream of records", || self.jetstream.get_stream(RECORDS)).await
    }

    /// Opens the bucket of captured frames.
    ///
    /// # Errors
    /// As for [`Link::agents`].
    pub async fn captures(&self) -> Result<ObjectStore, Problem> {
        patiently("the bucket of captures", || self.jetstream.get_object_store(CAPTURES)).await
    }

    /// Returns the agents that are there, by name.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn announced(&self) -> Result<Vec<(String, Announcement)>, Problem> {
        entries(&self.agents().await?).await
    }

    /// Returns the leases, by key.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn leased(&self) -> Result<Vec<(String, Lease)>, Problem> {
        entries(&self.leases().await?).await
    }
}

/// Where the answers to a user arrive. The server of a bed keeps agents from hearing those to the controller, which
/// contain reports and captures.
pub(crate) fn inbox(user: &str) -> String {
    // A name with a dot or a wildcard would make another subject of it.
    if is_host_name(user) { format!("_INBOX.{user}") } else { "_INBOX".into() }
}

/// Checks that a server that takes messages of up to `most` bytes takes the largest ones of this program.
fn takes_all(url: &str, most: usize) -> Result<(), Problem> {
    if most >= LARGEST {
        return Ok(());
    }
    Err(Problem(format!(
        "the NATS server {url} takes messages of up to {most} bytes, too few; set `max_payload: {LARGEST}` in its configuration"
    )))
}

/// Asks the server until it answers: for a while, it may be busy, restarted or out of reach. Whatever it answers is final.
/// The question must be one that can arrive twice.
///
/// # Errors
/// What the server answered, or that it did not.
pub async fn patiently<T, E: Display, F>(what: &str, ask: impl Fn() -> F) -> Result<T, Problem>
where
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            // The client has many types of errors, which all say this in the same words.
            Err(e) if begun.elapsed() < PATIENCE && e.to_string().contains("timed out") => {
                tokio::time::sleep(AGAIN).await;
            }
            Err(e) => return Err(Problem::of(what, e)),
        }
    }
}

/// Returns all entries of a bucket that can be read.
async fn entries<T: serde::de::DeserializeOwned>(bucket: &Store) -> Result<Vec<(String, T)>, Problem> {
    // The client's own function for listing keys reads messages, and waits forever if one of them expires meanwhile.
    let list = || async { bucket.stream.info_with_subjects(">").await?.try_collect::<Vec<(String, usize)>>().await };
    let subjects = patiently("the server", list).await?;
    let prefix = format!("$KV.{}.", bucket.name);
    let key = |(subject, _): &(String, usize)| subject.strip_prefix(&prefix).map(str::to_owned);
    let mut keys: Vec<String> = subjects.iter().filter_map(key).collect();
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let value = patiently("the server", || bucket.get(key.as_str())).await?;
        if let Some(entry) = value.and_then(|bytes| decode(&bytes).ok()) {
            all.push((key, entry));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::ready;

    #[tokio::test]
    async fn only_a_server_that_does_not_answer_is_asked_again() {
        let asked = Cell::new(0);
        let after = |times: u32, answer: Result<u8, &'static str>| {
            asked.set(asked.get() + 1);
            ready(if asked.get() < times { Err("request: timed out") } else { answer })
        };
        assert_eq!(patiently("q", || after(3, Ok(7))).await, Ok(7));
        asked.set(0);
        assert_eq!(patiently("q", || after(2, Err("no room"))).await, Err(Problem("q: no room".into())));
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn answers_to_each_user_have_a_subject_of_their_own() {
        assert_eq!(
            ["controller", "agent", "a.b", "a b", "*", ""].map(inbox),
            ["_INBOX.controller", "_INBOX.agent", "_INBOX", "_INBOX", "_INBOX", "_INBOX"]
        );
    }

    #[test]
    fn a_server_with_too_small_messages_is_refused() {
        let why = takes_all("nats://h:4222", 1 << 20).unwrap_err().0;
        assert!(why.contains("up to 1048576 bytes") && why.contains("`max_payload: 8388608`"), "{why}");
        assert_eq!(takes_all("nats://h:4222", LARGEST), Ok(()));
    }

    #[test]
    fn other_machines_need_encryption_and_a_name() {
        let access = |url: &str| Access { url: url.into(), ..Access::default() };
        let named = |url: &str| Access { user: Some("u".into()), password: Some("p".into()), ..access(url) };
        for url in ["nats://127.0.0.1:4222", "localhost", "nats://[::1]:4222"] {
            assert!(access(url).check().is_ok(), "{url}");
        }
        let refused = |access: Access| access.check().unwrap_err().0;
        assert!(refused(named("nats://10.0.0.1:4222")).contains("write tls://10.0.0.1:4222"));
        assert!(refused(access("tls://10.0.0.1:4222")).contains("--user and --password-file"));
        assert!(refused(access("http://")).contains("not the address"));
        assert!(named("tls://10.0.0.1:4222").check().is_ok());
        assert!(Access { nkey: Some("S".into()), ..access("tls://h:1") }.check().is_ok());
    }
}
