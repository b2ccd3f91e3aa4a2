//! Runs over several hosts, as far as this works without interfaces: a private server, and errors.

use crate::common::{good, run, suite, text};
use std::net::TcpListener;

#[test]
fn a_server_of_ones_own_starts_shows_who_is_there_and_ends() {
    let found = std::process::Command::new("nats-server").arg("--version").output();
    assert!(found.is_ok(), "the program nats-server is missing; install it (Debian: apt install nats-server)");
    let folder = tempfile::tempdir().unwrap();
    let bed = folder.path().join("bed");
    let bed = bed.to_str().unwrap();
    // The port is still free when the server binds it, unless another test is faster.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, url) = (format!("127.0.0.1:{port}"), format!("nats://127.0.0.1:{port}"));
    let up = ["bed", "up", "--folder", bed, "--listen", &listen];
    let output = run(&up);
    good(&output);
    assert!(text(&output.stdout).contains(&format!("drophammer agent --nats {url} --name HOST")));
    let again = run(&up);
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again.stderr).contains("already runs in"), "{}", text(&again.stderr));
    let status = run(&["bed", "status", "--nats", &url]);
    good(&status);
    assert_eq!(text(&status.stdout), "no agent is there\n");
    let json = run(&["bed", "status", "--nats", &url, "--json"]);
    assert_eq!(text(&json.stdout), "{\"agents\":[]}\n");
    let down = run(&["bed", "down", "--folder", bed]);
    assert!(text(&down.stdout).contains("the server has ended"), "{}", text(&down.stdout));
    let down = run(&["bed", "down", "--folder", bed]);
    assert!(text(&down.stdout).contains("no server runs in"), "{}", text(&down.stdout));
    let gone = run(&["bed", "status", "--nats", &url]);
    assert_eq!(gone.status.code(), Some(3));
    assert!(text(&gone.stderr).contains("drophammer bed up"), "{}", text(&gone.stderr));
}

#[test]
fn what_cannot_be_reached_or_trusted_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let external = |interfaces: &str| {
        let dut = format!("  - {{name: box, kind: external, interfaces: [{interfaces}]}}\n");
        suite(folder.path(), &dut, "  - throughput\n").to_str().unwrap().to_owned()
    };
    let path = external("host1/eth1, host2/eth1");
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(says), "{arguments:?}: {:?} {said}", output.status);
    };
    refused(&["run", &path], 2, "host1/eth1 is on another host");
    refused(&["bed", "status", "--nats", "nats://192.0.2.1:4222"], 3, "write tls://192.0.2.1:4222");
    refused(&["bed", "status", "--nats", "tls://192.0.2.1:4222"], 3, "give --user and --password-file");
    refused(&["bed", "up", "--listen", "192.0.2.1", "--folder", "bed"], 3, "give --cert and --key");
    let agent = ["agent", "--nats", "nats://127.0.0.1:9", "--name", "h", "--ports", "nothing0"];
    refused(&agent, 3, "no interface nothing0");
    let mixed = external("host1/eth1, eth7");
    refused(&["check", &mixed], 0, "");
    let wrong = external("host 1/eth1, host2/eth1");
    refused(&["check", &wrong], 2, "cannot be the name of an interface");
}
