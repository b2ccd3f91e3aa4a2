//! The command line.

mod commands;
mod hosts;
mod neighbour;

pub use commands::{BgpArgs, BlastArgs, ListenArgs, PlanArgs, ServeArgs, Transport, WatchArgs};
pub use hosts::{AccessArgs, AgentArgs, BedCommand};
pub use neighbour::{BfdArgs, LdpArgs, NeighbourLink, OspfArgs, OspfNetwork, RsvpArgs};

use crate::Exit;
use crate::diagnostics::of_command_line;
use crate::output::err;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use drophammer_lab::kinds::uml::guest;
use drophammer_model::quantity::parse_duration;
use drophammer_model::suite::{MAX_ROUNDS, Profile};
use drophammer_port::INTERFACE_BACKENDS;
use drophammer_port::auto::AUTO;
use drophammer_suite::set::Setting;
use drophammer_suite::variables::Variable;
use drophammer_testbed::device::SUBCOMMAND;
use drophammer_testbed::xdp_router;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  drophammer run suites/quick-look.yaml              two software routers side by side, in namespaces
  drophammer run suites/quick-look.yaml --dut frr    only one of them
  drophammer run my.yaml --profile conformant        with the durations of the RFCs
  drophammer blast eth1 eth2 --rate 100kfps          frames from one interface to another, counted live
  drophammer bgp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --routes 1000000
                                                     one BGP session and a table
  drophammer init --ports eth1,eth2                  a suite for my own router
  drophammer check my.yaml                           what is wrong with my suite?
  drophammer plan my.yaml                            what will be done, and what must my router be configured with?
  drophammer selftest                                how good is this machine as a tester?
  drophammer doctor                                  what should I change on it?
  drophammer list tests                              what can be tested, by which procedure
  drophammer watch                                   how far is the run in the background?
  drophammer report drophammer-runs/latest           write the report of a run again
  drophammer history                                 which runs are there, and which got worse?
  drophammer compare results/old results/new         is anything worse than before?

Exit codes: 0 done; 1 a router failed a test; 2 the command line or the suite is wrong; 3 the machine lacks something; 4 results \
could not be stored; 5 a criterion is undecided, because the rounds do not show whether it is met; 6 the tester or its machine \
spoilt a test, so that nothing is known of the router; 7 a criterion was missed; 130 stopped by Ctrl-C. Measurements are always \
kept.";

/// Open router tester: find the rate at which your router drops its first packet.
#[derive(Debug, Parser)]
#[command(name = "drophammer", version = env!("DROPHAMMER_VERSION"), about, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a suite: every test on every router in it, then write the report
    #[command(after_help = "\
Examples:
  drophammer run suites/quick-look.yaml
  drophammer run suites/quick-look.yaml --dut bird --test throughput --test latency
  drophammer run my-router.yaml --out results/monday --profile conformant
  drophammer run my-router.yaml --live=8080               and watch it in a browser
  drophammer run my-router.yaml --baseline results/old    criteria relative to an earlier run
  drophammer run my-router.yaml --detach                  and go home; `drophammer watch` shows it

Ctrl-C ends the current trial, keeps what was measured and writes the report; a second one stops immediately. \
Traffic stays on interfaces that the program made, except for routers of kind `external`: RFC 6815 forbids such tests on \
production networks.")]
    Run(RunArgs),
    /// Follow a background run, or show how it ended
    #[command(after_help = "\
Examples:
  drophammer watch                                        the newest run in drophammer-runs
  drophammer watch results/monday --lines 100

It starts with the last lines of output and stops when the run ends. Ctrl-C stops only `watch`, not the run.

Exit codes: as of the run; 1 also if it was killed; 2 the folder does not hold a run.")]
    Watch(WatchArgs),
    /// End a run as Ctrl-C does, and wait for its report
    #[command(after_help = "\
Example:
  drophammer stop results/monday

What was measured is kept. A second `stop` more than a second later ends the run immediately and without a report, as a second \
Ctrl-C does.

Exit codes: 0 the run has ended; 2 the folder does not hold a run; 3 the run cannot be reached from here.")]
    Stop {
        /// Folder of the run
        dir: PathBuf,
    },
    /// Send frames from one interface to another; report rates, loss and latency
    #[command(after_help = "\
Examples:
  drophammer blast eth1 eth2 --rate 100kfps --size 64 --for 10s
  drophammer blast eth1 eth2 --rate 1G --size imix --bidirectional
  drophammer blast eth1 eth2 --rate 100k --size imix:58.33x64,33.33x570,8.33x1518
  drophammer blast eth1 eth2 --rate 100kfps --until-loss --step 5%
  drophammer blast eth1 eth2 --vlan 10 --dscp ef --flows 1000
  drophammer blast eth1 eth2 --size 64,512,1518 --for 10s --family ipv6 --transport tcp
  drophammer blast eth1 --vlan 7,8 --address 10.7.0.2/24,10.8.0.2/24 --gateway 10.7.0.1,10.8.0.1
  drophammer blast --dut linux --rate 100kfps --for 10s
  drophammer blast eth1 eth2 --address 198.18.1.2/24,198.19.1.2/24 --gateway 198.18.1.1,198.19.1.1

Without addresses, a cable, a veth pair, a bridge or a switch must join the two interfaces. With addresses and gateways, the \
frames go through routers. With one interface, they go through a router between two VLANs of it. With --dut, they go through a \
router that the command brings up. Every second, a line shows the rates and latencies of that second, and all frames lost and \
reordered so far. Ctrl-C ends sending, waits for the last frames and prints the summary; a second one stops immediately.

Exit codes: 0 every frame arrived, or --until-loss has its answer; 1 frames were lost, corrupted or astray, or less than 99 % of \
the requested frames were sent; 2 the command line is wrong; 3 an interface cannot be used or a neighbour does not answer; 130 \
stopped by a second Ctrl-C.")]
    Blast(BlastArgs),
    /// Count and classify frames arriving on an interface; sends nothing
    #[command(after_help = "\
Examples:
  drophammer listen eth2
  drophammer listen eth2 --for 10s --json
  drophammer listen eth2 --top 50

Every second, a line shows how much arrived. At the end, or after Ctrl-C, a table shows what it was: tags, labels, tunnels, \
addresses and ports, with the most frequent first.

Exit codes: 0 done, with or without frames; 1 the machine was too slow and lost frames; 2 the command line is wrong; 3 the \
interface cannot be used.")]
    Listen(ListenArgs),
    /// Serve the Open Traffic Generator API, so that scripts configure and start traffic, devices and BGP routers, and run suites
    #[command(after_help = "\
Examples:
  drophammer serve
  drophammer serve --listen 0.0.0.0:8443 --idle-stop 10min
  drophammer serve --listen 127.0.0.1:8080 --http
  drophammer serve --grpc 127.0.0.1:50051 --grpc-tls
  drophammer serve --listen 0.0.0.0:8443 --grpc 0.0.0.0:40051 --token-file drophammer.token
  drophammer serve --suites suites --runs results

Clients, such as snappi and otgen, connect to https://127.0.0.1:8443, or to 127.0.0.1:40051 with gRPC, and name interfaces of this \
machine as locations of ports. The certificate is made at the start. Without --token-file, whoever reaches the address can send \
traffic. What is supported, and what is not: docs/api.md.

Exit codes: 0 stopped by Ctrl-C; 2 the command line is wrong; 3 the address or the backend cannot be used.")]
    Serve(ServeArgs),
    /// Bring up one BGP session, advertise a table to the peer, and report what it advertises
    #[command(after_help = "\
Examples:
  drophammer bgp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --routes 1000000
  drophammer bgp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --as 65000 --routes 1000 --rate 100
  drophammer bgp eth1 --address 2001:db8::2/64 --to 2001:db8::1 --table rib.bz2
  drophammer bgp eth1 --address fe80::2/64 --to fe80::1 --routes 1000
  drophammer bgp eth1 --address 192.0.2.2/31 --gateway 192.0.2.3 --source 10.0.0.2 --to 10.0.0.1
  drophammer bgp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --as 65000 --vpn 1504 --routes 100
  drophammer bgp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --for 10s --json

The tester answers ARP and TCP itself: the interface needs no address. The routes are made up and look like routes of the \
Internet; advertise them only in a laboratory (RFC 6815). Ctrl-C ends the session with a NOTIFICATION and prints the summary; a \
second one stops immediately.

Exit codes: 0 the session stayed up, and the peer acknowledged all routes; 1 the session went down, or the peer did not take the \
routes; 2 the command line is wrong; 3 the interface cannot be used, or the peer does not answer.")]
    Bgp(BgpArgs),
    /// Bring up one OSPFv2 adjacency, advertise a topology to the neighbour, and report what it advertises
    #[command(after_help = "\
Examples:
  drophammer ospf eth1 --address 192.0.2.2/24 --to 192.0.2.1
  drophammer ospf eth1 --address 192.0.2.2/24 --to 192.0.2.1 --routers 100 --externals 10000
  drophammer ospf eth1 --address 192.0.2.2/24 --to 192.0.2.1 --network broadcast --area 0.0.0.1

The tester answers ARP itself: the interface needs no address. --to is the neighbour's address on the link. Ctrl-C ends the \
adjacency and prints the summary; a second one stops immediately.

Exit codes: 0 the adjacency became Full and stayed so; 1 it went down; 2 the command line is wrong; 3 the interface cannot be \
used, or the adjacency did not become Full within 60 s.")]
    Ospf(OspfArgs),
    /// Bring up one LDP session, advertise labels to the peer, and report the labels that it advertises
    #[command(after_help = "\
Examples:
  drophammer ldp eth1 --address 192.0.2.2/24 --to 192.0.2.1
  drophammer ldp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --fecs 10000 --first 10.0.0.0/32
  drophammer ldp eth1 --address 192.0.2.2/24 --to 192.0.2.1 --transport-address 10.0.0.2

The tester answers ARP and TCP itself: the interface needs no address. Ctrl-C ends the session with a Shutdown notification and \
prints the summary; a second one stops immediately.

Exit codes: 0 the session stayed up; 1 it went down; 2 the command line is wrong; 3 the interface cannot be used, or the session \
is not up after 60 s.")]
    Ldp(LdpArgs),
    /// Set LSPs up through a router by RSVP-TE, keep them, and answer LSPs that end here
    #[command(after_help = "\
Examples:
  drophammer rsvp eth1 --address 10.1.1.2/30 --to 10.1.1.1 --endpoint 10.1.2.2 --lsps 1000
  drophammer rsvp eth2 --address 10.1.2.2/30 --to 10.1.2.1
  drophammer rsvp eth1 --address 10.1.1.2/30 --to 10.1.1.1 --endpoint 10.1.2.2 --lsps 9 --hello 5s

Without --lsps, the tester is an egress only: it answers every Path to its address with a label. Ctrl-C tears the LSPs down and \
prints the summary; a second one stops immediately.

Exit codes: 0 all LSPs came up and stayed up; 1 one of them went down; 2 the command line is wrong; 3 the interface cannot be \
used, or not all LSPs are up after 60 s.")]
    Rsvp(RsvpArgs),
    /// Bring up one BFD session and report when it goes down
    #[command(after_help = "\
Examples:
  drophammer bfd eth1 --address 192.0.2.2/24 --to 192.0.2.1
  drophammer bfd eth1 --address 2001:db8::2/64 --to 2001:db8::1 --interval 50ms --for 60s

Ctrl-C ends the session (AdminDown) and prints the summary; a second one stops immediately.

Exit codes: 0 the session stayed up; 1 it went down; 2 the command line is wrong; 3 the interface cannot be used, or the session \
is not up after 60 s.")]
    Bfd(BfdArgs),
    /// Check a suite and report its errors; starts nothing
    #[command(after_help = "Example:\n  drophammer check suites/quick-look.yaml")]
    Check(SuiteArgs),
    /// Write a commented suite for a router of your own, connected to interfaces of this machine
    #[command(after_help = "\
Examples:
  drophammer init --ports eth1,eth2
  drophammer init --ports eth1,eth2,eth3,eth4 --out four-ports.yaml

Without --ports, and on a terminal, it lists the interfaces of this machine and asks. It never overwrites a file.")]
    Init {
        /// Interfaces that lead to the router, in pairs
        #[arg(long, value_name = "A,B", value_delimiter = ',')]
        ports: Vec<String>,
        /// File to write
        #[arg(long, value_name = "FILE", default_value = "my-router.yaml")]
        out: PathBuf,
    },
    /// Print what a suite would do, how long it takes, and how the router must be configured; starts nothing
    #[command(after_help = "\
Examples:
  drophammer plan my-router.yaml
  drophammer plan my-router.yaml --profile conformant
  drophammer plan my-router.yaml --config frr --interfaces eth1,eth2 > frr.conf

Times are estimates, as in `check`. No command of the suite is run. The configurations for frr, bird and linux were loaded on \
routers; the others come from the same data, but were never loaded on a device.")]
    Plan(PlanArgs),
    /// Print the JSON Schema of suite files, for editors
    #[command(after_help = "Example:\n  drophammer schema > suite.schema.json")]
    Schema,
    /// List tests, routers or backends
    #[command(after_help = "Examples:\n  drophammer list tests\n  drophammer list duts\n  drophammer list backends")]
    List {
        /// What to list
        what: Listing,
    },
    /// Write the report of a stored run again, even of an interrupted one
    #[command(after_help = "\
Examples:
  drophammer report drophammer-runs/latest
  drophammer report drophammer-runs/latest --pdf     report.pdf next to report.html; needs Chromium or Google Chrome")]
    Report {
        /// Folder of the run
        dir: PathBuf,
        /// Folder for the report files [default: the run's own]
        #[arg(long)]
        out: Option<PathBuf>,
        /// Also print the page to report.pdf, using a browser on this machine without network access
        #[arg(long)]
        pdf: bool,
    },
    /// Compare runs: what got better or worse, and what else changed
    #[command(after_help = "\
Examples:
  drophammer compare results/monday results/tuesday           what changed since Monday?
  drophammer compare results/old results/new --json           for a pipeline
  drophammer compare base results/a results/b                 both against the first

Figures are compared by test, figure and name of the DUT. Runs of fewer than four rounds prove nothing; `run --rounds 6` \
makes six.

Exit codes: 0 nothing is proven to be worse than in the first run; 1 something is; 2 the command line is wrong, or a folder holds \
no readable run; 5 nothing of a run could be compared.")]
    Compare {
        /// Folders of the runs; the others are compared with the first
        #[arg(value_name = "RUN", num_args = 2.., required = true)]
        runs: Vec<PathBuf>,
        /// Print one JSON object instead of tables
        #[arg(long)]
        json: bool,
    },
    /// List the runs in a folder by suite and time, and show figures over time: what got worse, and when?
    #[command(after_help = "\
Examples:
  drophammer history                                      the runs in drophammer-runs
  drophammer history results --suite my-router            the runs of one suite
  drophammer history results --figure throughput          figures over time
  drophammer history results --figure latency --dut frr --json

Each run is compared with the previous one of the same suite, as by `drophammer compare`.

Exit codes: 0 no newest run of a suite is proven to be worse than the one before; 1 one is; 2 the command line is wrong, or there \
are no runs; 5 nothing of a newest run could be compared.")]
    History(HistoryArgs),
    /// Measure what this machine and its ports can do as a tester
    #[command(after_help = "\
Examples:
  drophammer selftest                                every backend, over virtual links
  drophammer selftest --backend af_packet --long     only one, with trials of 10 s
  drophammer selftest --interfaces eth1,eth2         over two ports connected by a cable

For each backend it measures the ceiling, the load up to which the tester itself loses nothing, how late frames leave, and the \
latency that the tester adds. It also checks every counter against a device that knows what it did to each frame.

Exit codes: 0 good; 1 a verdict failed or a step could not be done; 6 the machine spoilt a step; 2 the command line is wrong; 3 the \
machine lacks something; 4 results could not be stored; 130 interrupted.")]
    Selftest(SelftestArgs),
    /// Report what this machine can do as a tester, and what to change; starts nothing
    #[command(after_help = "\
Examples:
  drophammer doctor
  sudo drophammer doctor --json

Exit codes: 0 routers can be brought up in namespaces; 3 they cannot.")]
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  drophammer completions bash > ~/.local/share/bash-completion/completions/drophammer
  drophammer completions fish > ~/.config/fish/completions/drophammer.fish")]
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    #[command(after_help = "Example:\n  drophammer man --out ~/.local/share/man/man1")]
    Man {
        /// Folder for the pages
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
    /// Lend interfaces of this machine to runs on other machines
    #[command(after_help = "\
Examples:
  drophammer agent --nats nats://127.0.0.1:4222 --name host1 --ports eth1,eth2
  drophammer agent --nats tls://192.0.2.1:4222 --ca ca.pem --nkey-file key --name h2 --ports eth1

A suite names the interfaces host1/eth1 and so on. Ctrl-C ends the agent and closes its ports.

Exit codes: 0 ended; 2 the command line is wrong; 3 the server or an interface cannot be reached.")]
    Agent(AgentArgs),
    /// Start and end a NATS server for runs over several machines, or show what is there
    #[command(
        subcommand,
        after_help = "\
Examples:
  drophammer bed up                                       on this machine only
  drophammer bed up --listen 192.0.2.1 --cert server.pem --key server.key
  drophammer bed status
  drophammer bed down"
    )]
    Bed(BedCommand),
    /// Remove what a killed run left behind, and list it
    #[command(after_help = "Example:\n  sudo drophammer clean")]
    Clean,
    /// Run as the first process of a User Mode Linux guest; started by the lab
    #[command(name = guest::SUBCOMMAND, hide = true)]
    UmlGuest {
        /// Job file, and arguments of the kernel
        arguments: Vec<OsString>,
    },
    /// Run as the fast path of a router of kind `xdp`; started by the lab
    #[command(name = xdp_router::SUBCOMMAND, hide = true)]
    XdpRouter {
        /// Socket, interfaces
        arguments: Vec<OsString>,
    },
    /// Run as the reference device; started by the lab
    #[command(name = SUBCOMMAND, hide = true)]
    ReferenceDevice {
        /// Configuration, socket, interfaces
        arguments: Vec<OsString>,
    },
}

/// What `list` can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    /// Tests with their parameters.
    Tests,
    /// Kinds of routers under test.
    Duts,
    /// Port backends.
    Backends,
}

/// A suite, and the part of it to run.
#[derive(Debug, Args)]
pub struct SuiteArgs {
    /// Suite file (YAML)
    pub suite: PathBuf,
    /// Run only this router of the suite; may be repeated
    #[arg(long = "dut", value_name = "NAME")]
    pub duts: Vec<String>,
    /// Run only this test of the suite, by its name or id; may be repeated
    #[arg(long = "test", value_name = "NAME")]
    pub tests: Vec<String>,
    /// Default durations: `quick` takes seconds per trial, `conformant` those of the RFCs
    #[arg(long, value_name = "PROFILE", value_parser = one_of(PROFILES))]
    pub profile: Option<Profile>,
    /// How often each router is brought up and tested with all tests [default: 1 for one router; 6 for several, or 10 with
    /// the profile conformant]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_ROUNDS as i64))]
    pub rounds: Option<u32>,
    /// Run as many rounds as fit into this time, for instance 30min, but at least the default number. The number is
    /// estimated before the run. Trials that the host disturbs are repeated in the remaining time
    #[arg(long, visible_alias = "within", value_name = "DURATION", value_parser = parse_duration, conflicts_with = "rounds")]
    pub time: Option<Duration>,
    /// Seed of every pseudo-random choice
    #[arg(long)]
    pub seed: Option<u64>,
    /// Set a variable of the suite, as in `rate=200kfps`; may be repeated
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = Variable::from_str)]
    pub variables: Vec<Variable>,
    /// Set a parameter of a test, as in `throughput.frame_sizes=[64]`; may be repeated. With the id of a test instead of its name, only
    /// that test changes. See `drophammer list tests`
    #[arg(long, value_name = "TEST.KEY=VALUE", value_parser = Setting::from_str)]
    pub set: Vec<Setting>,
}

const PROFILES: Words<Profile> =
    &[("quick", Profile::Quick, "Seconds per trial"), ("conformant", Profile::Conformant, "The durations of the RFCs")];

/// A run.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub suite: SuiteArgs,
    /// Folder for this run's results, which must be new or empty [default: drophammer-runs/<suite>-<time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in this folder, which was stopped or killed. The suite, the options that change what is measured, the program, the machine and
    /// the routers must be the same. A router whose tests were interrupted repeats all tests of that round
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Earlier run that criteria such as `">= 95 % of baseline"` refer to; overrides the baseline of the suite
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// Backend for routers that are not simulated; see `drophammer list backends`
    #[arg(long, value_name = "NAME", value_parser = choices(), default_value = AUTO.spec.name)]
    pub backend: String,
    /// Threads of the tester. They share the queues of the ports, and each has its own processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), default_value_t = 1)]
    pub threads: u16,
    /// Queues of each port, so that several threads can share it. The order of frames in different queues is unknown
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), default_value_t = 1)]
    pub queues: u16,
    /// Capture everything except test frames (ARP, routing protocols and so on) in duts/<name>/<port>.pcap; not for simulated routers
    #[arg(long)]
    pub capture: bool,
    /// Keep trials that other programs or a hypervisor disturbed, instead of repeating them: for tests of software on a shared machine. Do not
    /// compare the figures of such a run
    #[arg(long)]
    pub busy_host: bool,
    /// Run in the background, without this terminal, once all checks have passed. The output goes into console.log in the folder of the run, and the
    /// events of --json into events.jsonl. See `drophammer watch` and `drophammer stop`
    #[arg(long)]
    pub detach: bool,
    /// This is the process in the background; started by `run --detach`
    #[arg(long, hide = true, requires = "detach")]
    pub detached: bool,
    /// This is the process of a run that a client of the API has started; started by `serve`
    #[arg(long, hide = true, conflicts_with_all = ["detach", "resume"], requires = "out")]
    pub served: bool,
    #[command(flatten)]
    pub hosts: AccessArgs,
    /// Traffic of agents stops if they hear nothing of this run for so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2s", requires = "nats")]
    pub silence: Duration,
    /// Print plain lines instead of a live display
    #[arg(long)]
    pub plain: bool,
    /// Serve a page on 127.0.0.1 that shows the run live, with metrics for Prometheus under /metrics [default port: any]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub live: Option<u16>,
    /// Print events as JSON objects, one per line, instead of the summary; the display stays on standard error
    #[arg(long)]
    pub json: bool,
}

/// Runs over time.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Folders that contain runs, or folders of single runs [default: drophammer-runs]
    #[arg(value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// Only runs of this suite
    #[arg(long, value_name = "NAME")]
    pub suite: Option<String>,
    /// Show figures whose title or name (`throughput.throughput_64_pps`) contains this
    #[arg(long, value_name = "TEXT")]
    pub figure: Option<String>,
    /// Show figures of this router only
    #[arg(long, value_name = "NAME")]
    pub dut: Option<String>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

/// A self-test.
#[derive(Debug, Args)]
pub struct SelftestArgs {
    /// Test only this backend; may be repeated [default: all backends that this user may use]
    #[arg(long = "backend", value_name = "NAME", value_parser = backends())]
    pub backends: Vec<String>,
    /// Two interfaces connected by a cable, instead of virtual links
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub interfaces: Vec<String>,
    /// Line speed of the ports
    #[arg(long, value_name = "SPEED", default_value = "10 Gbit/s")]
    pub speed: String,
    /// Frame sizes or mixes
    #[arg(long = "frame-sizes", value_name = "LIST", value_delimiter = ',', default_value = "64,1518")]
    pub frame_sizes: Vec<String>,
    /// Trials of 10 s instead of 1 s, five for each figure instead of three
    #[arg(long)]
    pub long: bool,
    /// Folder for the results, which must be new or empty [default: drophammer-runs/selftest-<time>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print plain lines instead of a live display
    #[arg(long)]
    pub plain: bool,
}

/// The words that an option accepts, each with its value and its help.
type Words<T> = &'static [(&'static str, T, &'static str)];

/// Parses one of these words.
fn one_of<T: Clone + Send + Sync>(words: Words<T>) -> impl TypedValueParser<Value = T> {
    let known = words.iter().map(|(word, _, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(known).map(|given| {
        let (_, value, _) = words.iter().find(|(word, ..)| *word == given).expect("clap refuses other words");
        value.clone()
    })
}

/// The automatic choice, and the backends that a run can use.
fn choices() -> PossibleValuesParser {
    [&AUTO].into_iter().chain(INTERFACE_BACKENDS).map(|b| b.spec.name).collect::<Vec<_>>().into()
}

/// Names of the backends that a run can use.
fn backends() -> PossibleValuesParser {
    INTERFACE_BACKENDS.iter().map(|b| b.spec.name).collect::<Vec<_>>().into()
}

/// Reads the command line; on an error prints it and ends the program.
pub fn parse() -> Command {
    match Cli::try_parse() {
        Ok(cli) => cli.command,
        // Help and version are not errors. Without any argument, help is shown as an error.
        Err(e) if !e.use_stderr() || e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => e.exit(),
        Err(e) => {
            err!("{}", of_command_line(&e.render().to_string()));
            std::process::exit(Exit::Usage as i32);
        }
    }
}

/// All commands, for completions and manual pages.
pub fn commands() -> clap::Command {
    Cli::command()
}

/// Reads the arguments of a command.
#[cfg(test)]
pub fn parsed<A: Args>(line: &str) -> Result<A, String> {
    #[derive(Parser)]
    struct Line<A: Args> {
        #[command(flatten)]
        args: A,
    }
    let words = ["command"].into_iter().chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.args).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_breaks_the_lines_of_help() {
        fn check(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            // Only examples have lines of their own.
            let prose = |line: &str| !line.is_empty() && !line.starts_with("  ");
            for pair in lines.windows(2) {
                assert!(!prose(pair[0]) || !prose(pair[1]), "{}: {}", command.get_name(), pair[0]);
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
