//! What the server of a bed, with the configuration that `drophammer bed up` writes, refuses the user `agent`.

use crate::anew::Checked;
use crate::bench::{Bed, LONG, access, agents, ensure, rig, until, whole};
use crate::mesh;
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt;
use futures_util::stream::select_all;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::timeout;

/// Take a lease, command another agent, answer it, speak for a controller, read or delete what others have stored,
/// change the server.
const NOT_SENT: [&str; 15] = [
    "$KV.drophammer-leases.host3.t0",
    "drophammer.agent.host2",
    "_INBOX.agent.1.2",
    "drophammer.beat.lease",
    "drophammer.down.lease.0",
    "$JS.API.STREAM.MSG.GET.drophammer-records",
    "$JS.API.CONSUMER.CREATE.drophammer-records",
    "$JS.API.STREAM.DELETE.drophammer-records",
    "$JS.API.STREAM.PURGE.KV_drophammer-leases",
    "$JS.API.STREAM.MSG.DELETE.KV_drophammer-leases",
    "$JS.API.STREAM.UPDATE.KV_drophammer-agents",
    "$JS.API.STREAM.MSG.GET.OBJ_drophammer-captures",
    "$JS.API.DIRECT.GET.OBJ_drophammer-captures.$O.drophammer-captures.C.1",
    "$JS.API.STREAM.CREATE.other",
    "$SYS.REQ.SERVER.PING",
];
/// Hear what other agents report, or what the server answers the controller, or everything.
const NOT_HEARD: [&str; 9] = [
    ">",
    "_INBOX.>",
    "_INBOX.controller.>",
    "drophammer.record.>",
    "drophammer.state.*",
    "drophammer.up.*",
    "$KV.>",
    "$O.>",
    "$JS.>",
];
/// What an agent may send, so the controller hears it.
const SENT: &str = "drophammer.up.lease";
const FORGED: &str = "forged";

/// Connects as `user`. What the server refuses is added to `refused`.
async fn connect(bed: &Bed, user: &str, refused: Arc<Mutex<Vec<String>>>) -> Result<Client, String> {
    let access = access(bed, user);
    let (user, password) = access.user.zip(access.password).ok_or("no password")?;
    let server: ServerAddr = access.url.parse().map_err(|e| format!("{}: {e}", access.url))?;
    let told = move |event: Event| {
        let refused = refused.clone();
        async move {
            if let Event::ServerError(e) = event {
                refused.lock().unwrap_or_else(PoisonError::into_inner).push(e.to_string());
            }
        }
    };
    let options = ConnectOptions::new().user_and_password(user, password).require_tls(true).event_callback(told);
    let options = options.add_root_certificates(access.ca.ok_or("no certificate")?);
    options.connect(server).await.map_err(|e| e.to_string())
}

pub fn least() -> Checked {
    let bed = Bed::up_with(|_, folder| mesh::server(folder, "127.0.0.1"))?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    whole(&mut bench)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let refused = Arc::<Mutex<Vec<String>>>::default();
    let names = |what: &str| {
        let refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().any(|why| why.to_lowercase().contains(&what.to_lowercase()))
    };
    // The connections are served by the thread of the runtime, so this one may wait.
    let checked: Checked = runtime.block_on(async {
        let text = |e: async_nats::SubscribeError| e.to_string();
        let controller = connect(&bed, "controller", Arc::default()).await?;
        let mut heard = Vec::new();
        for subject in NOT_SENT.into_iter().filter(|subject| subject.starts_with("drophammer.")).chain([SENT]) {
            heard.push(controller.subscribe(subject).await.map_err(text)?);
        }
        controller.flush().await.map_err(|e| e.to_string())?;
        let agent = connect(&bed, "agent", refused.clone()).await?;
        for subject in NOT_SENT.into_iter().chain([SENT]) {
            agent.publish(subject, FORGED.into()).await.map_err(|e| e.to_string())?;
        }
        for subject in NOT_HEARD {
            agent.subscribe(subject).await.map_err(text)?;
        }
        agent.flush().await.map_err(|e| e.to_string())?;
        for (way, subjects) in [("Publish", &NOT_SENT[..]), ("Subscription", &NOT_HEARD[..])] {
            for subject in subjects {
                let says = format!("Permissions Violation for {way} to \"{subject}\"");
                until(&says, || names(&says))?;
            }
        }
        ensure(!names(SENT), "an agent may not pass frames")?;
        // Messages of one sender come in their order, so whatever was sent before the last one would have come before
        // it. The real controller sends other messages.
        let mut forged = select_all(heard).filter(|message| ready(message.payload[..] == *FORGED.as_bytes()));
        let first = timeout(LONG, forged.next()).await.ok().flatten().ok_or("the controller hears nothing")?;
        ensure(first.subject.as_str() == SENT, format!("an agent has sent {}", first.subject))
    });
    checked?;
    let (_, leases) = bench.controller.inventory().map_err(|e| e.0)?;
    let held: Vec<_> = leases.iter().map(|(key, lease)| (key.as_str(), lease.holder.as_str())).collect();
    ensure(held == [("host1.t0", "tester"), ("host2.t1", "tester")], format!("{held:?}"))?;
    whole(&mut bench)?;
    ensure(bed.records()? >= 4, "records are gone")
}
