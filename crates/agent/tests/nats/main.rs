//! Agents in processes of their own, and a real nats-server on loopback. Each case has its own network namespace, with two
//! interfaces that are connected to each other.

#[path = "../../../lab/tests/anew/mod.rs"]
mod anew;
mod bench;
mod captures;
mod chrony;
mod cost;
mod disk;
mod faults;
mod hostile;
mod mesh;
mod random;
mod rights;
mod slow;
mod twice;

use anew::{Case, Checked};
use bench::{Bed, agent, agents, controller, ensure, spec};
use drophammer_agent::link::Access;
use drophammer_agent::message::LARGEST;
use drophammer_model::trial::{TrialResult, TrialSpec};
use drophammer_rig::{Lender as _, Until};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs this program as a case, or as one of its helper processes.
fn main() -> ExitCode {
    if let Some(code) = bench::as_other_process() {
        return code;
    }
    let case = |name: &str, body: fn() -> Checked| Case::alone(name, body).waits();
    let cases = vec![
        case("a_trial_on_two_agents_counts_every_frame_and_its_records_are_stored", counts),
        case("a_trial_that_a_host_cannot_plan_fails_without_waiting_for_the_host", impossible),
        case("ports_are_held_by_one_controller_at_a_time", leases),
        case("another_version_is_refused_with_both_named", versions),
        case("of_two_agents_with_one_name_that_start_together_one_stays", names),
        case("an_nkey_opens_a_server_that_knows_it_and_nothing_else_does", nkey),
        case("a_display_sees_the_sums_of_all_hosts", live),
        case("hosts_with_other_clocks_have_an_uncertainty", clocks),
        case("hosts_and_controllers_that_wait_sleep", idle),
        case("captured_frames_come_through_the_object_store_and_lost_ones_are_told", captures::whole_and_deleted),
        case("a_link_is_switched_in_the_middle_of_a_trial", captures::links),
        case("a_link_that_a_killed_agent_left_down_comes_up_at_its_next_start", captures::left_down),
        case("a_user_who_stops_is_heard_while_a_trial_waits_for_a_host", faults::user_stops),
        case("four_hosts_in_a_full_mesh_count_every_frame", mesh::four),
        case("the_server_of_a_bed_refuses_an_agent_what_it_need_not_do", rights::least),
        case("messages_that_come_twice_or_late_change_nothing", faults::messages_repeated).long(),
        case("a_slow_network_makes_times_uncertain_and_loses_nothing", faults::slow_network).long(),
        case("bounds_of_chrony_make_the_difference_of_two_clocks_exact", chrony::narrows).long(),
        case("a_wall_clock_that_messages_contradict_is_ignored", chrony::is_contradicted).long(),
        case("a_wall_clock_that_frames_contradict_leaves_no_latency", chrony::is_refuted).long(),
        case("a_trial_in_which_a_clock_jumps_is_void", faults::clock_stepped).long(),
        case("steps_of_the_wall_clock_of_a_host_or_the_controller_change_no_count", faults::wall_clock_stepped).long(),
        case("a_trial_that_a_full_disk_cannot_store_is_void_and_says_so", disk::full).long(),
        case("traffic_stops_when_the_controller_is_killed", faults::controller_killed),
        // Sixteen threads that never sleep leave no processor for other cases.
        Case::alone("sixteen_hosts_in_a_full_mesh_count_every_frame_with_few_messages", mesh::sixteen).long(),
        case("a_trial_whose_agent_is_killed_is_void_and_the_next_is_whole", faults::agent_killed).long(),
        case("a_trial_during_which_the_server_stands_still_is_complete_or_void", faults::server_stopped).long(),
        case("a_server_that_is_restarted_loses_no_lease", faults::server_restarted).long(),
        case("trials_are_whole_or_void_if_one_of_four_hosts_is_cut_off", mesh::one_cut_off).long(),
        case("trials_are_whole_or_void_if_an_agent_is_killed_at_any_instant", random::agent_killed).long(),
        case("trials_are_whole_or_void_if_the_network_is_cut_at_any_instant", random::network_cut).long(),
        case("trials_are_whole_or_void_if_the_network_loses_packets", random::network_lossy).long(),
        case("trials_are_whole_or_void_if_an_agent_stands_still", random::agent_stopped).long(),
        case("trials_are_whole_or_void_if_a_clock_jumps_at_any_instant", random::clock_stepped).long(),
        case("trials_are_whole_or_void_if_the_server_is_restarted_at_any_instant", random::server_restarted).long(),
        case("ports_are_free_again_if_the_controller_is_killed_at_any_instant", random::controller_killed).long(),
        case("traffic_stops_if_the_controller_is_killed_at_any_instant_of_it", random::controller_killed_in_traffic)
            .long(),
        case("trials_are_whole_or_void_if_the_network_is_cut_for_good", random::network_cut_for_good).long(),
        case("trials_are_whole_or_void_if_one_of_four_hosts_is_gone_for_good", mesh::one_gone).long(),
        case("trials_are_whole_or_void_if_messages_come_twice_or_late_from_any_instant_on", random::messages_repeated)
            .long(),
        case("trials_are_whole_or_void_if_the_disk_is_full_at_any_instant", random::disk_full).long(),
        case("agents_keep_their_trial_and_their_memory_under_hostile_messages", random::hostile_messages)
            .long()
            .again(),
        // Its threads never sleep and always have frames to send.
        Case::alone("counts_once_per_second_cost_an_agent_nothing_per_frame", cost::of_counts).long().again(),
    ];
    // Their processes are small.
    anew::run_at_once(6, cases)
}

fn counts() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    for trial in 1..=2 {
        let result = bench.complete(&spec(Duration::from_millis(300)))?;
        let counts = (result.intended(), result.offered(), result.received(), result.lost());
        ensure(counts == (1_200, 1_200, 1_200, 0), format!("trial {trial}: {counts:?} {:?}", result.health))?;
        let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
        // Both agents run on this kernel, so they share a clock.
        ensure((between.hosts, between.clock_uncertainty_ns) == (2, 0), format!("{between:?}"))?;
        ensure(between.start_skew_ns < 1_000_000_000, format!("{between:?}"))?;
        ensure(result.groups.iter().all(|g| g.latency.frames == 600), "latencies are known")?;
    }
    let records = bed.records()?;
    ensure(records == 4, format!("{records} records of two trials on two hosts"))
}

fn impossible() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    let begun = Instant::now();
    let wrong = TrialSpec { drain_s: -1.0, ..spec(Duration::from_millis(200)) };
    let why = bench.run(&wrong).err().ok_or("a trial with a negative time has a result")?;
    ensure(why.contains("agent host") && why.contains("is negative"), &why)?;
    // It would wait 45 s for a host that is gone.
    ensure(begun.elapsed() < Duration::from_secs(20), format!("{why}, after {:?}", begun.elapsed()))?;
    let begun = Instant::now();
    let large = TrialSpec { purpose: "x".repeat(LARGEST), ..spec(Duration::from_millis(200)) };
    let why = bench.run(&large).err().ok_or("a trial that no message can hold has a result")?;
    ensure(why.contains(&format!("more than {LARGEST}")), &why)?;
    ensure(begun.elapsed() < Duration::from_secs(20), format!("{why}, after {:?}", begun.elapsed()))?;
    bench::whole(&mut bench)
}

fn leases() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let first = bench::rig(&bed, "the first user")?;
    let (agents, leases) = first.controller.inventory().map_err(|e| e.0)?;
    ensure(agents.len() == 2 && agents[0].1.ports[0].0 == "t0", format!("{agents:?}"))?;
    let held: Vec<_> = leases.iter().map(|(key, lease)| (key.as_str(), lease.holder.as_str())).collect();
    ensure(held == [("host1.t0", "the first user"), ("host2.t1", "the first user")], format!("{held:?}"))?;
    let other = controller(&bed, "the second user")?;
    let open = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        other.open(&names, drophammer_port::SystemClock::start()).map(drop).err().unwrap_or_default()
    };
    let refused = open(&["host2/t1", "host1/t0"]);
    ensure(refused.contains("host2/t1 is held by the first user"), refused)?;
    let refused = open(&["host3/t0", "host1/t0"]);
    ensure(refused.contains("there is no agent `host3` (there are host1, host2)"), refused)?;
    let refused = open(&["host1/t9", "host2/t1"]);
    ensure(refused.contains("host1 does not lend t9; it lends t0"), refused)?;
    drop(first);
    let refused = open(&["host1/t0", "host2/t1"]);
    ensure(refused.is_empty(), format!("a lease ends with its holder: {refused}"))
}

fn live() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    let (result, seen) = bench.when_ready(|bench| {
        let live = bench.start(&spec(Duration::from_secs(600)))?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let display = scope.spawn(|| {
                let mut seen = Vec::new();
                let both = bench::until("sums", || {
                    let totals = live.totals(Duration::from_secs(1));
                    seen.extend(totals.filter(|totals| totals.offered > 2_000 && totals.received > 2_000));
                    seen.len() >= 2 || over.load(Ordering::Relaxed)
                });
                live.end_sending();
                both.map(|()| seen)
            });
            let result = bench.finish();
            over.store(true, Ordering::Relaxed);
            let seen = display.join().map_err(|_| "the display failed")?;
            Ok((result?, seen?))
        })
    })?;
    ensure(seen.len() == 2, format!("{seen:?}"))?;
    let grows = seen.windows(2).all(|pair| pair[0].offered <= pair[1].offered && pair[0].elapsed < pair[1].elapsed);
    ensure(grows && seen.iter().all(|totals| totals.offered <= result.offered()), format!("{seen:?}"))?;
    // Frames that will never be due do not count as intended: there would be 2,400,000.
    ensure(result.lost() == 0 && result.offered() < 1_000_000, format!("{:?}", result.groups))
}

/// Returns the processor time of a process.
fn worked(process: u32) -> Result<Duration, String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).map_err(|e| e.to_string())?;
    // Fields 14 and 15 of proc_pid_stat(5), in hundredths of a second. The name before them is in parentheses.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Ok(fields.flat_map(str::parse::<u64>).map(|ticks| Duration::from_millis(ticks * 10)).sum())
}

fn idle() -> Checked {
    let bed = Bed::up()?;
    let agents = agents(&bed)?;
    let mut bench = bench::rig(&bed, "tester")?;
    bench::whole(&mut bench)?;
    let processes = [agents[0].0.id(), agents[1].0.id(), std::process::id()];
    let times = || processes.iter().map(|process| worked(*process)).collect::<Result<Vec<_>, _>>();
    let (before, end) = (times()?, bench.rig.now() + Duration::from_secs(3));
    bench.rig.serve(&Until::At(end), &|| false).map_err(|e| e.to_string())?;
    let worked: Vec<Duration> = times()?.iter().zip(&before).map(|(now, then)| *now - *then).collect();
    eprintln!("processor time of two hosts and a controller in 3 s: {worked:?}");
    ensure(worked.iter().all(|time| *time < Duration::from_millis(150)), format!("{worked:?} of 3 s"))
}

fn versions() -> Checked {
    let bed = Bed::up()?;
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[("VERSION", "0.0.9")])?];
    let refused = bench::rig(&bed, "tester").err().ok_or("an agent of another version was taken")?;
    let named =
        refused.contains("host2 is version 0.0.9") && refused.contains(&format!("is version {}", bench::VERSION));
    ensure(named, refused)
}

fn names() -> Checked {
    let bed = Bed::up()?;
    let start = |port: &str| {
        let mut command = bench::command("agent", &bed, &[("NAME", "host1"), ("PORT", port)])?;
        command.spawn().map(bench::Process).map_err(|e| e.to_string())
    };
    let mut both = [start("t0")?, start("t1")?];
    bench::until("one of them ends", || both.iter_mut().any(|agent| !agent.runs()))?;
    ensure(both.iter_mut().any(|agent| agent.runs()), "both have ended")
}

/// Public key and seed of a user that exists only for this test.
const USER: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

fn nkey() -> Checked {
    let bed = Bed::up()?;
    let (conf, store) = (bed.server.folder.join("nkey.conf"), bed.server.folder.join("nkey"));
    let text = format!(
        "listen: \"127.0.0.1:4223\"\nmax_payload: {LARGEST}\njetstream {{ store_dir: {store:?} }}\nauthorization {{ users = [ \
         {{ nkey: {USER} }} ] }}\n"
    );
    std::fs::write(&conf, text).map_err(|e| e.to_string())?;
    let server =
        std::process::Command::new("nats-server").arg("-c").arg(&conf).stderr(std::process::Stdio::null()).spawn();
    let _server = bench::Process(server.map_err(|e| e.to_string())?);
    let connect = |nkey: Option<&str>| {
        let url = "nats://127.0.0.1:4223".to_owned();
        bench::connect(Access { url, nkey: nkey.map(str::to_owned), ..Access::default() }, "with a key")
    };
    bench::until("the server knows the key", || connect(Some(SEED)).is_ok_and(|c| c.inventory().is_ok()))?;
    let refused = connect(None).err().ok_or("the server takes everybody")?;
    ensure(refused.contains("cannot connect"), refused)
}

fn clocks() -> Checked {
    // A clock with another name, and one that shows another time: a time namespace, a day ahead.
    for variable in [("CLOCK", "two"), (bench::AHEAD, "86400")] {
        let bed = Bed::up()?;
        let _agents = [agent(&bed, "host1", "t0", &[("CLOCK", "one")])?, agent(&bed, "host2", "t1", &[variable])?];
        uncertain(&bed)?;
    }
    Ok(())
}

fn uncertain(bed: &Bed) -> Checked {
    let mut bench = bench::rig(bed, "tester")?;
    let result = bench.complete(&spec(Duration::from_millis(200)))?;
    ensure((result.offered(), result.received()) == (800, 800), format!("{:?}", result.groups))?;
    let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
    ensure(between.clock_uncertainty_ns > 0 && between.start_skew_ns > 0, format!("{between:?}"))?;
    bounded(&result)
}

/// Checks that a latency is reported exactly where it is above the uncertainty of the clocks.
fn bounded(result: &TrialResult) -> Checked {
    let between = result.health.between_hosts.as_ref().ok_or("no conditions between hosts")?;
    let right = result.groups.iter().all(|group| {
        let unknown = between.unmeasurable.contains(&group.group);
        unknown == (group.latency.frames == 0) && (unknown || group.latency.min_ns > between.clock_uncertainty_ns)
    });
    ensure(right, format!("{between:?} {:?}", result.groups))
}
