//! The guides to the Open Traffic Generator API: they show the same code as the examples, and the examples work.

use crate::common::pages::root;
use crate::common::{MACHINE, Ran};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(file)).unwrap()
}

/// The blocks of a page in this language.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    read(page).split(begin.as_str()).skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

const FROM_SNAPPI: &str = "guides/from-snappi.md";
const CONTAINERLAB: &str = "guides/containerlab.md";

#[test]
fn guides_show_what_the_examples_have() {
    let (script, topology) = (read("examples/otg_bgp.py"), read("examples/containerlab-serve.yml"));
    let shown = blocks(FROM_SNAPPI, "python");
    assert!(!shown.is_empty() && shown.iter().all(|block| script.contains(block.as_str())), "{shown:?}");
    let prints = [FROM_SNAPPI, CONTAINERLAB].map(|page| blocks(page, "text").pop().unwrap());
    assert_eq!(prints[0], prints[1]);
    // The file for containerlab says how it is used, as the guide does.
    let lines = blocks(CONTAINERLAB, "sh").concat();
    let commands: Vec<&str> = topology.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
    assert_eq!(commands.len(), 2);
    assert!(commands.iter().all(|command| lines.contains(command)), "{lines}");
    for page in [FROM_SNAPPI, CONTAINERLAB] {
        for file in read(page).split("](../examples/").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()) {
            assert!(root().join("docs/examples").join(&file).exists(), "{page}: {file}");
        }
    }
}

/// The lines of a workflow that run something, with the folder in which they run it.
fn steps(workflow: &str) -> Vec<(&str, bool)> {
    let mut steps: Vec<(&str, bool)> = Vec::new();
    for line in workflow.lines().map(str::trim_start) {
        match (line.strip_prefix("- run: "), steps.last_mut()) {
            (Some(command), _) => steps.push((command, false)),
            (None, Some(last)) if line == "working-directory: drophammer" => last.1 = true,
            _ => {}
        }
    }
    steps
}

#[test]
fn jobs_for_github_use_what_there_is() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    for file in ["examples/github-actions.yml", "examples/github-actions-pytest.yml"] {
        let workflow = read(file);
        let mut seen = 0;
        for (command, inside) in steps(&workflow) {
            let words: Vec<&str> = command.split(' ').collect();
            if let ["make", target] = words[..] {
                assert!(makefile.contains(&format!("\n{target}: ")), "{file}: {command}");
                seen += 1;
            }
            for word in words {
                let path = if inside { Some(word) } else { word.strip_prefix("drophammer/") };
                let Some(path) = path.filter(|path| path.contains('/') && !path.starts_with("target/")) else {
                    continue;
                };
                assert!(root().join(path).exists(), "{file}: {command}: {path}");
                seen += 1;
            }
        }
        assert!(seen >= 2, "{file}: {seen} paths and targets");
    }
}

/// A server as `cmd` in the topology starts it, FRR behind its two interfaces as `exec` configures it, and the script.
const SCRIPT: &str = r#"
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link set lo up
for dir in /run /var/tmp /etc/frr; do mount -t tmpfs none $dir; done
mkdir -p /run/frr
touch /etc/frr/vtysh.conf
chown -R frr:frr /run/frr /etc/frr
unshare --net sleep 600 & ROUTER=$!
until [ "$(readlink /proc/$ROUTER/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
for n in 1 2; do
    ip link add eth$n type veth peer name r$n
    ip link set eth$n up
    ip link set r$n netns $ROUTER name eth$n up
done
within() { nsenter --net=/proc/$ROUTER/ns/net "$@"; }
within sysctl -qw net.ipv4.ip_forward=1
within ip link set lo up
for daemon in zebra bgpd; do
    within /usr/lib/frr/$daemon -d -f /dev/null > $daemon.log 2>&1
    for i in $(seq 100); do [ -S /run/frr/$daemon.vty ] && break; sleep 0.1; done
done
within vtysh -f $DOCS/examples/otg-frr.conf > vtysh.log 2>&1
$D $(sed -n 's/^ *cmd: drophammer //p' $DOCS/examples/containerlab-serve.yml) > served 2> said & SERVER=$!
until grep -q :// served; do kill -0 $SERVER; sleep 0.02; done
curl -sk https://127.0.0.1:8443/config -d '{"lags": [{"name": "l"}], "devices": [{"name": "d", "isis": {}}]}' > refused
python3 $DOCS/examples/otg_bgp.py > printed
kill -INT $SERVER
wait $SERVER
"#;

#[test]
fn the_script_of_the_guides_works_with_frr() {
    let works = |program: &str, words: &[&str]| {
        Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
    };
    let has = |program: &str| Path::new(program).exists();
    if !nix::unistd::geteuid().is_root() || !has("/usr/lib/frr/bgpd") || !has("/usr/bin/vtysh") {
        println!("NOT CHECKED: this needs root and FRR; remedy: run as root, apt-get install frr");
        return;
    }
    if !works("python3", &["-c", "import snappi"]) || !works("curl", &["--version"]) {
        println!("NOT CHECKED: this needs snappi and curl; remedy: pip install snappi, apt-get install curl");
        return;
    }
    let script = format!("DOCS={}\n{SCRIPT}", root().join("docs").display());
    let ran = Ran::script(MACHINE, &script);
    assert_eq!((ran.read("printed"), ran.read("said")), (blocks(FROM_SNAPPI, "text").pop().unwrap(), String::new()));
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(json(&ran.read("refused")), json(&blocks(FROM_SNAPPI, "json")[0]));
}
