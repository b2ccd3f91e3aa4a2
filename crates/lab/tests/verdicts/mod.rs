//! Verdicts of a test program without harness, told as cargo's own harness tells them; what failed is told once more at the
//! end, where a reader of a long log finds it.

use std::process::ExitCode;
use std::time::Instant;

/// Verdicts so far.
pub struct Verdicts {
    begun: Instant,
    passed: usize,
    left_out: usize,
    failed: Vec<(String, String)>,
}

impl Verdicts {
    /// None yet.
    pub fn begin() -> Verdicts {
        Verdicts { begun: Instant::now(), passed: 0, left_out: 0, failed: Vec::new() }
    }

    /// Tells the verdict on test `name`.
    pub fn count(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                println!("test {name} ... ok");
                self.passed += 1;
            }
            Err(why) => {
                println!("test {name} ... FAILED\n    {why}");
                self.failed.push((name.to_owned(), why));
            }
        }
    }

    /// This many were not asked for.
    #[allow(dead_code)] // not every program has a filter
    pub fn leave_out(&mut self, tests: usize) {
        self.left_out += tests;
    }

    /// The end, with what failed and the line that cargo's own harness ends with, for those who add such lines up.
    pub fn end(self) -> ExitCode {
        let Verdicts { begun, passed, left_out, failed } = self;
        if !failed.is_empty() {
            println!("\nfailures:");
            failed.iter().for_each(|(name, why)| println!("    {name}: {why}"));
        }
        println!(
            "\ntest result: {}. {passed} passed; {} failed; 0 ignored; 0 measured; {left_out} filtered out; finished in {:.2}s",
            if failed.is_empty() { "ok" } else { "FAILED" },
            failed.len(),
            begun.elapsed().as_secs_f64()
        );
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
