//! Results of a test program without harness, in the format of cargo's own harness; failures are repeated at the end,
//! where a reader of a long log finds them.

use std::process::ExitCode;
use std::time::Instant;

/// Results so far.
pub struct Verdicts {
    begun: Instant,
    passed: usize,
    left_out: usize,
    failed: Vec<(String, String)>,
}

impl Verdicts {
    /// No results yet.
    pub fn begin() -> Verdicts {
        Verdicts { begun: Instant::now(), passed: 0, left_out: 0, failed: Vec::new() }
    }

    /// Prints the result of test `name`.
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

    /// Counts tests that a filter excluded.
    #[allow(dead_code)] // not every program has a filter
    pub fn leave_out(&mut self, tests: usize) {
        self.left_out += tests;
    }

    /// Prints the failures and the final line of cargo's own harness, for tools that sum up these lines.
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
