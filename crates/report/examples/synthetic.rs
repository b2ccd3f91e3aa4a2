//! Writes the report of a made-up run: `cargo run -p drophammer-report --example synthetic -- FOLDER [DUTS] [TRIALS]`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

#[path = "../tests/synthetic/routes.rs"]
#[allow(dead_code)]
mod routes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("name a folder")?;
    let duts: usize = arguments.next().map_or(Ok(4), |n| n.parse())?;
    let mut run = synthetic::run(duts.clamp(1, synthetic::NAMES.len()));
    // With a number of trials, a long run: its trials and their dots are repeated.
    match arguments.next() {
        None => routes::add(&mut run, 100_000),
        Some(trials) => synthetic::lengthen(&mut run, trials.parse()?),
    }
    let run = synthetic::in_rounds(&run, 6);
    for path in drophammer_report::write_all(&run, dir.as_ref())? {
        println!("{}", path.display());
    }
    print!("{}", drophammer_report::summary_text(&run, true));
    Ok(())
}
