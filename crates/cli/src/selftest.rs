//! `drophammer selftest`.

use crate::args::SelftestArgs;
use crate::clock::secret;
use crate::observer::{Watcher, stop_flag};
use crate::output::err;
use crate::progress::Display;
use crate::run::{VERSION, claim, finish, parent, sweep};
use crate::suite_file::read_own;
use crate::{Ended, Exit, Failure};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::environment::Environment;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{Mask, Suite};
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use drophammer_store::RunWriter;
use drophammer_testbed::selftest::{NAME, SelfTest, run_self_test};
use std::time::Duration;

/// A suite with two ports and default addresses, on the user's interfaces if there are any.
fn suite(args: &SelftestArgs) -> Result<Suite, Failure> {
    let dut = match args.interfaces.as_slice() {
        [] => "{name: loop, kind: linux}".into(),
        [a, b] => format!("{{name: cable, kind: external, interfaces: [{a:?}, {b:?}]}}"),
        other => {
            let text = format!(
                "--interfaces takes two, not {}; name two that a cable connects, as in `eth1,eth2`",
                other.len()
            );
            return Err(Failure::usage(text));
        }
    };
    let speed = &args.speed;
    let text = format!(
        "suite: {NAME}\nprofile: quick\nduts: [{dut}]\nports:\n  - {{name: p1, speed: {speed:?}}}\n  - {{name: p2, speed: \
         {speed:?}}}\ntests:\n  - tester_ceiling\n"
    );
    read_own(&text, "the command line").map_err(|errors| {
        // Print no places: the user gave only the interfaces and the speed of this suite.
        for error in &errors.errors {
            err!("error: {}\n  help: {}", error.message, error.help);
        }
        Failure::told()
    })
}

/// The requested backends, or all backends that this user may use.
fn backends(args: &SelftestArgs) -> Result<Vec<&'static Backend>, Failure> {
    if args.backends.is_empty() {
        let (usable, not): (Vec<_>, Vec<_>) = INTERFACE_BACKENDS.iter().partition(|b| (b.usable)().is_ok());
        for backend in not {
            err!("backend {} is left out: {}", backend.spec.name, (backend.usable)().err().unwrap_or_default());
        }
        return Ok(usable);
    }
    // The command line accepts no other names.
    let asked: Vec<_> = INTERFACE_BACKENDS.iter().filter(|b| args.backends.iter().any(|n| n == b.spec.name)).collect();
    match asked.iter().find_map(|b| (b.usable)().err()) {
        Some(why) => Err(Failure::environment(why)),
        None => Ok(asked),
    }
}

/// `drophammer selftest`.
pub fn run(args: &SelftestArgs) -> Ended {
    let mut suite = suite(args)?;
    let sizes: Result<Vec<PacketSize>, _> = args.frame_sizes.iter().map(|s| s.parse()).collect();
    let sizes = sizes.map_err(|e| Failure::usage(format!("--frame-sizes: {e}")))?;
    let backends = backends(args)?;
    sweep();
    let folder = parent(args.out.as_deref())?;
    // Before the lab is entered: the names of claims belong to the host's network namespace.
    let _claims = claim("drophammer selftest", &args.interfaces)?;
    let options = LabOptions { keep: vec![folder.clone()], ..LabOptions::default() };
    let mut lab = Lab::enter(&options).map_err(Failure::environment)?;
    let writer = match &args.out {
        Some(_) => RunWriter::create_exact(&folder),
        None => RunWriter::create(&folder, NAME),
    };
    let writer = writer.map_err(Failure::store)?;
    lab.pin_current_thread(lab.cpus().tester).map_err(Failure::environment)?;
    let environment = Environment { drophammer: VERSION.into(), ..lab.environment(1) };
    let stop = stop_flag()?;
    let dir = writer.dir().to_owned();
    let work_dir = dir.join("duts");
    let mut watcher = Watcher {
        writer,
        display: Display::new(args.plain),
        live: None,
        rates: None,
        json: false,
        stop,
        mask: Mask::default(),
    };
    let test = SelfTest {
        lab: &mut lab,
        backends,
        cabled: (!args.interfaces.is_empty()).then(|| suite.duts.remove(0)),
        ports: suite.ports,
        sizes,
        trial: Duration::from_secs(if args.long { 10 } else { 1 }),
        repeats: if args.long { 5 } else { 3 },
        seed: suite.seed,
        work_dir: &work_dir,
        command: std::env::args().collect(),
        environment,
        secret: secret(),
    };
    let result = run_self_test(test, &mut watcher);
    watcher.display.finish();
    drop(watcher);
    drop(lab);
    Ok(match finish(result, &dir, false) {
        // The self-test has its own criteria; no suite's criteria were missed.
        Exit::Missed => Exit::Failed,
        exit => exit,
    })
}
