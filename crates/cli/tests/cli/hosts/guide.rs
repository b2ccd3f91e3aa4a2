//! The guide "Two hosts in ten minutes", followed as it is written.

use super::{HOSTS, alone};
use crate::common::{MACHINE, files, kind_of, records, shell, text};
use crate::guides::blocks;
use serde_json::Value;

const PAGE: &str = "hosts.md";

/// The commands of each step are in a file with its name. All hosts share the processors of one machine, so agents may
/// not raise their priority (see [`HOSTS`]).
const FOLLOWED: &str = "\
mkdir bin
ln -s $D bin/drophammer
PATH=$PWD/bin:$PATH
sh -eu server > bed 2> server.errors
for host in host1 host2; do
    mkdir $host
    cp server.pem drophammer-bed/agent.password $host
    sed s/host1/$host/ agent > $host/agent
    (cd $host; ip netns exec $host setpriv --bounding-set -sys_nice --inh-caps -sys_nice sh -eu agent 2> errors) &
done
until sh -eu status > listed 2> status.errors && [ $(grep -c ', free' listed) = 2 ]; do sleep 0.1; done
drophammer plan my-router.yaml --config linux --interfaces r1,r2 > router.conf
ip netns exec router sh -eu router.conf > router.log
sh -eu run > said 2> run.errors
sh -eu status > after
";

/// A block without the indentation of the step that it belongs to.
fn plain(block: &str) -> String {
    let lines = block.trim_end().lines().map(|line| line.strip_prefix("   ").unwrap_or(line).to_owned() + "\n");
    lines.collect()
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn two_hosts_in_ten_minutes_works_as_written() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can lend interfaces");
        return;
    }
    let _alone = alone();
    let shown = blocks(PAGE, "sh");
    let [server, agent, status, run, ..] = &shown[..] else { panic!("{shown:?}") };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for (name, block) in [("server", server), ("agent", agent), ("status", status)] {
        write(name, &plain(block));
    }
    // Other programs on this machine must not spoil the run.
    write("run", &format!("{} --busy-host --plain\n", plain(run).trim_end()));
    // The guide shows only the router of the suite.
    let router = plain(&blocks(PAGE, "yaml")[0]);
    assert!(router.starts_with("duts:\n"), "{router}");
    let suite = format!(
        "suite: my-router\nprofile: quick\nrounds: 1\n{router}\
         ports: [{{name: p1, speed: 1 Gbit/s}}, {{name: p2, speed: 1 Gbit/s}}]\n\
         tests:\n  - soak: {{frame_size: 64, duration: 6 s, interval: 3 s, rate: 1000 fps}}\n"
    );
    write("my-router.yaml", &suite);
    // What comes before the certificate.
    let network = HOSTS.split_once("openssl ").unwrap().0;
    let begun = std::time::Instant::now();
    let output = shell(MACHINE, folder.path(), &format!("{network}{FOLLOWED}")).output().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let said = || {
        let files =
            ["server.errors", "host1/errors", "host2/errors", "status.errors", "router.log", "run.errors", "said"];
        files.map(read).concat()
    };
    assert!(output.status.success(), "{}{}{}", output.status, text(&output.stderr), said());
    // A program that was built from a checkout also tells its commit.
    let of_a_release = |line: &str| match (line.find(" (commit "), line.find("), ")) {
        (Some(from), Some(to)) => format!("{}{}\n", &line[..from], &line[to + 1..]),
        _ => format!("{line}\n"),
    };
    let listed: String = read("listed").lines().map(of_a_release).collect();
    assert_eq!(listed, plain(&blocks(PAGE, "text")[0]));
    assert_eq!(read("after").matches(", free\n").count(), 2, "{}", read("after"));
    let records_file =
        files(&folder.path().join("drophammer-runs")).into_iter().find(|file| file.ends_with("run.jsonl"));
    let all = records(records_file.expect("the records of the run").parent().unwrap());
    assert_eq!(kind_of(all.last().unwrap()), "ended");
    let is_good = |trial: &&Value| {
        kind_of(trial) == "trial" && trial["test"] == "soak" && trial["result"]["validity"]["verdict"] == "valid"
    };
    let trials: Vec<&Value> = all.iter().filter(is_good).collect();
    assert!(!trials.is_empty(), "{}", said());
    for trial in &trials {
        let hosts = trial["result"]["health"]["between_hosts"]["each"].as_array().unwrap();
        assert!(hosts.iter().map(|host| &host["name"]).eq(["host1", "host2"].iter()), "{trial}");
        for group in trial["result"]["groups"].as_array().unwrap() {
            // One host alone would have sent half of 6,000.
            assert!(group["received"].as_u64() > Some(5_900) && group["lost"] == 0, "{group}");
        }
    }
    eprintln!("{} trials on two hosts; the guide takes {:?} here", trials.len(), begun.elapsed());
}
