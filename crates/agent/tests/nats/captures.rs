//! Captures and links of ports of agents.

use crate::anew::Checked;
use crate::bench::{self, Bed, Bench, access, agent, agents, ensure, spec};
use drophammer_agent::link::Link;
use drophammer_model::trial::TrialSpec;
use drophammer_rig::{Act, CaptureOrder, CaptureSettings};
use drophammer_wire::pcap::frames;
use std::time::{Duration, Instant};

/// Frames of IPv4 with 1,518 bytes in the file of port 1.
fn captured(bench: &mut Bench) -> Result<usize, String> {
    let coming = bench.rig.captured(1).map_err(|e| e.to_string())?;
    let file = coming.recv_timeout(bench::LONG).map_err(|e| e.to_string())??;
    let found = frames(&file).map_err(|e| format!("{e:?}"))?;
    Ok(found.iter().filter(|frame| frame.length == 1_518 && frame.bytes[12..14] == [8, 0]).count())
}

/// Bytes in the object store.
fn stored(bed: &Bed) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let link = Link::connect(&access(bed, "controller"), "test").await.map_err(|e| e.0)?;
        let stream = link.jetstream.get_stream("OBJ_drophammer-captures").await.map_err(|e| e.to_string())?;
        Ok(stream.cached_info().state.bytes)
    })
}

pub fn whole_and_deleted() -> Checked {
    let bed = Bed::up()?;
    let mut hosts = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    let large = |duration| TrialSpec { size: "1518".parse().unwrap(), ..spec(duration) };
    let start = || CaptureOrder::Start { settings: CaptureSettings::default(), origin_ns: 0 };
    let unknown = bench.rig.captured(1).err().map_or(String::new(), |e| e.to_string());
    ensure(unknown.contains("no capture of port 1 was started"), unknown)?;
    let run = |bench: &mut Bench| {
        bench.rig.capture(1, &start()).map_err(|e| e.to_string())?;
        bench.run(&large(Duration::from_millis(300)))
    };
    let result = bench.when_ready(run)?;
    ensure((result.offered(), result.received()) == (1_200, 1_200), format!("{:?}", result.groups))?;
    let begun = Instant::now();
    let first = captured(&mut bench)?;
    ensure(first == 600, format!("{first} frames"))?;
    eprintln!("a file of 0.9 MB in {:?}", begun.elapsed());
    let left = stored(&bed)?;
    ensure(left < 1_000, format!("{left} bytes are left in the store"))?;
    // The capture has ended. What comes later is not in it, and its frames stay.
    bench.complete(&large(Duration::from_millis(100)))?;
    let again = captured(&mut bench)?;
    ensure(again == 600, format!("{again} frames after the end of the capture"))?;
    // An agent that starts again knows nothing of it, which must not look like a capture without frames.
    hosts[1] = {
        let _ = hosts[1].0.kill();
        let _ = hosts[1].0.wait();
        agent(&bed, "host2", "t1", &[])?
    };
    let gone = captured(&mut bench).err().ok_or("an agent that was killed has a capture")?;
    // The new agent may not be there yet.
    ensure(gone.contains("no longer lends") || gone.contains("agent host2 does not answer"), gone)?;
    bench.complete(&large(Duration::from_millis(100)))?;
    let gone = captured(&mut bench).err().ok_or("an agent that was started again has a capture")?;
    ensure(gone.contains("start the capture again"), gone)?;
    let result = bench.when_ready(run)?;
    let fresh = captured(&mut bench)?;
    ensure((result.received(), fresh) == (1_200, 600), format!("{fresh} frames"))
}

/// The link of a port goes down and up while the agent's lane drives the port.
pub fn links() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    let result = bench.when_ready(|bench| {
        // Long enough for a busy machine to bring the link up before the end.
        let mut spec = spec(Duration::from_secs(5));
        spec.flows.truncate(1);
        bench.start(&spec)?;
        for (at_ms, up) in [(400, false), (700, true)] {
            let begun = Instant::now();
            let elapsed = |bench: &Bench| bench.rig.traffic_start().map(|start| bench.rig.now().since(start));
            while elapsed(bench).is_none_or(|elapsed| elapsed < Duration::from_millis(at_ms)) {
                ensure(begun.elapsed() < bench::LONG, "the trial does not start")?;
                let until = bench.rig.now() + Duration::from_millis(5);
                bench.rig.drive(until, &|| false).map_err(|e| e.to_string())?;
            }
            bench.rig.command(0, &Act::Link(up)).map_err(|e| e.to_string())?;
            let carrier = bench.rig.has_carrier(0).map_err(|e| e.to_string())?;
            ensure(carrier || !up, "the link is up again")?;
            ensure(up || !carrier, "the link is down")?;
        }
        bench.finish()
    })?;
    let group = &result.groups[0];
    // Whatever the machine did in between, the first 400 ms had a link, and so had the end.
    ensure((group.offered, group.stray) == (10_000, 0), format!("{group:?}"))?;
    ensure(group.lost > 0 && group.received > 800, format!("{} of {} are lost", group.lost, group.offered))?;
    bench::whole(&mut bench)?;
    bench.rig.command(0, &Act::Link(false)).map_err(|e| e.to_string())?;
    drop(bench);
    // The next holder finds the link up.
    bench::whole(&mut bench::rig(&bed, "the next")?)
}

/// True if an interface is up, whether or not it has carrier.
fn is_up(interface: &str) -> Result<bool, String> {
    let flags = std::fs::read_to_string(format!("/sys/class/net/{interface}/flags")).map_err(|e| e.to_string())?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).map_err(|e| e.to_string())?;
    Ok(flags & 1 == 1)
}

/// An agent is killed while the link of its port is down on order.
pub fn left_down() -> Checked {
    let bed = Bed::up()?;
    let [mut first, _second] = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    bench.rig.command(0, &Act::Link(false)).map_err(|e| e.to_string())?;
    first.0.kill().and_then(|()| first.0.wait()).map_err(|e| e.to_string())?;
    ensure(!is_up("t0")?, "the link came up by itself")?;
    let _next = agent(&bed, "host1", "t0", &[])?;
    bench::until("the link is up", || is_up("t0") == Ok(true))?;
    bench::whole(&mut bench)
}
