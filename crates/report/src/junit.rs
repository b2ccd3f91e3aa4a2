//! `junit.xml` for continuous integration: one test suite per DUT, one test case per DUT and test.

use crate::view::{DutResult, Section, Standing, View};
use drophammer_model::figure::Decision;
use drophammer_model::outcome::Blame;
use drophammer_model::record::TestStatus;
use drophammer_model::visible::is_hidden;

/// Escapes text for XML. Characters that XML 1.0 forbids, that are hidden, or that reverse the text become U+FFFD.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if is_hidden(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The result of a test case.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Pass,
    Failure(Vec<String>),
    Undecided(Vec<String>),
    Error(String),
    Skipped(String),
}

fn finding(result: &DutResult) -> Finding {
    // A test that did not run to its end has not passed, regardless of its criteria.
    let (skipped, not_whole) = match &result.standing {
        Standing::Ended(TestStatus::Skipped(why)) => (Some(why), Some(result.standing.text())),
        Standing::Ended(TestStatus::Failed(cause)) => return Finding::Error(cause.clone()),
        standing if standing.is_measured() => (None, None),
        other => (None, Some(other.text())),
    };
    let verdicts = || result.record.iter().flat_map(|t| &t.outcome.verdicts);
    let lines = |decision, word: &str| -> Vec<String> {
        let own = verdicts().filter(|v| v.decision() == decision);
        own.map(|v| format!("{word}{}; found {}", v.criterion, v.found)).collect()
    };
    let (failed, undecided) = (lines(Decision::Missed, ""), lines(Decision::Undecided, "undecided: "));
    let spoilt = unmeasured(result);
    match (skipped, not_whole) {
        // Even a test that ended early can miss a criterion for certain.
        (_, status) if !failed.is_empty() => {
            Finding::Failure(failed.into_iter().chain(undecided).chain(status).collect())
        }
        (None, Some(status)) => Finding::Error(status),
        (_, status) if !spoilt.is_empty() => {
            Finding::Error(spoilt.into_iter().chain(undecided).chain(status).collect::<Vec<_>>().join("; "))
        }
        (Some(why), _) if undecided.is_empty() => Finding::Skipped(why.clone()),
        // A criterion must not pass because nothing was measured.
        (Some(_), status) => Finding::Undecided(undecided.into_iter().chain(status).collect()),
        (None, None) if undecided.is_empty() => Finding::Pass,
        (None, None) => Finding::Undecided(undecided),
    }
}

/// The figures that the tester or its host spoilt in every round.
fn unmeasured(result: &DutResult) -> Vec<String> {
    let figures = result.record.iter().flat_map(|test| &test.outcome.ranks).filter(|figure| figure.figure().is_none());
    let spoilt = figures.filter_map(|figure| {
        let missing = figure.missing.as_ref().filter(|missing| missing.by == Blame::Spoilt)?;
        Some(format!("{} could not be measured: {}", figure.title, missing.why))
    });
    spoilt.collect()
}

/// The JUnit report.
pub fn report(view: &View) -> String {
    let mut body = String::new();
    let mut total = [0usize; 4];
    for (index, dut) in view.duts.iter().enumerate() {
        let mut cases = String::new();
        let mut counts = [0usize; 4];
        let mut seconds = 0.0;
        for section in &view.sections {
            let Some(result) = section.results.iter().find(|r| r.dut == index) else { continue };
            counts[0] += 1;
            let elapsed = result.record.map_or(0.0, |t| t.elapsed_s);
            seconds += elapsed;
            let found = finding(result);
            match found {
                Finding::Failure(_) => counts[1] += 1,
                // The test has not passed, but it is not the DUT that failed.
                Finding::Error(_) | Finding::Undecided(_) => counts[2] += 1,
                Finding::Skipped(_) => counts[3] += 1,
                Finding::Pass => {}
            }
            cases += &case(&dut.label(), section, result, elapsed, &found);
        }
        for (sum, n) in total.iter_mut().zip(counts) {
            *sum += n;
        }
        body += &format!(
            "  <testsuite name=\"{}\" {} time=\"{seconds:.3}\" timestamp=\"{}\">\n{cases}  </testsuite>\n",
            escape(&dut.label()),
            counts_text(counts),
            escape(view.run.started.time.trim_end_matches('Z')),
        );
    }
    let name = escape(&view.run.started.suite);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{name}\" {}>\n{body}</testsuites>\n",
        counts_text(total)
    )
}

fn counts_text([tests, failures, errors, skipped]: [usize; 4]) -> String {
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"")
}

fn case(dut: &str, section: &Section, result: &DutResult, elapsed: f64, finding: &Finding) -> String {
    let mut out = format!(
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{elapsed:.3}\">\n",
        escape(dut),
        escape(&section.id)
    );
    let with_lines = |tag: &str, kind: &str, lines: &[String]| {
        let (message, all) = (escape(&lines.join(" | ")), escape(&lines.join("\n")));
        format!("      <{tag} type=\"{kind}\" message=\"{message}\">{all}</{tag}>\n")
    };
    out += &match finding {
        Finding::Pass => String::new(),
        Finding::Failure(lines) => with_lines("failure", "verdict", lines),
        Finding::Undecided(lines) => with_lines("error", "undecided", lines),
        Finding::Error(cause) => format!("      <error type=\"test\" message=\"{}\"/>\n", escape(cause)),
        Finding::Skipped(why) => format!("      <skipped message=\"{}\"/>\n", escape(why)),
    };
    // The other rounds say nothing about the DUT.
    let fewer = (result.standing.is_measured() && !result.standing.is_completed()).then(|| result.standing.text());
    let notes = result.record.iter().flat_map(|t| &t.outcome.notes);
    let notes: Vec<_> = fewer.iter().chain(notes).map(|n| escape(n)).collect();
    if !notes.is_empty() {
        out += &format!("      <system-out>{}</system-out>\n", notes.join("&#10;"));
    }
    out + "    </testcase>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::{Missing, Outcome, RankFigure, Verdict};

    /// What the report contains for a test with this status and these verdicts.
    fn found(status: TestStatus, verdicts: Vec<Verdict>) -> Finding {
        of_outcome(status, Outcome { verdicts, ..Outcome::default() })
    }

    fn of_outcome(status: TestStatus, outcome: Outcome) -> Finding {
        let record = crate::synthetic::record("d", "throughput", "Throughput", status.clone(), outcome);
        let standing = Standing::Ended(status);
        finding(&DutResult { dut: 0, record: Some(&record), rounds: 1, standing, trials: Vec::new() })
    }

    #[test]
    fn a_test_does_not_pass_if_the_tester_spoilt_a_figure() {
        let of_status = |status, by, verdicts| {
            let missing = Some(Missing { why: "host busy".into(), by });
            let figure = RankFigure { missing, ..RankFigure::new("k", "Rate", "fps", None) };
            of_outcome(status, Outcome { ranks: vec![figure], verdicts, ..Outcome::default() })
        };
        let with = |by, verdicts| of_status(TestStatus::Completed, by, verdicts);
        let spoilt = "Rate could not be measured: host busy";
        assert_eq!(with(Blame::Spoilt, vec![]), Finding::Error(spoilt.into()));
        let open = Verdict { undecided: true, ..Verdict::decided("rate >= 5", false, "not measured") };
        let both = format!("{spoilt}; undecided: rate >= 5; found not measured");
        assert_eq!(with(Blame::Spoilt, vec![open]), Finding::Error(both));
        let missed = Verdict::decided("loss <= 1", false, "2");
        assert_eq!(with(Blame::Spoilt, vec![missed]), Finding::Failure(vec!["loss <= 1; found 2".into()]));
        // What was spoilt before the test turned out not to apply counts for the exit code too.
        let skipped = of_status(TestStatus::Skipped("no more".into()), Blame::Spoilt, vec![]);
        assert!(matches!(&skipped, Finding::Error(text) if text.starts_with(spoilt)), "{skipped:?}");
        for by in [Blame::Dut, Blame::Beyond, Blame::Nothing] {
            assert_eq!(with(by, vec![]), Finding::Pass, "{by:?}");
        }
    }

    #[test]
    fn a_missed_criterion_is_a_failure_even_if_the_test_ended_early() {
        let missed = || Verdict::decided("rate >= 5", false, "4");
        let open = || Verdict { undecided: true, ..Verdict::decided("loss <= 1", false, "0 to 2") };
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        for (status, text) in [
            (TestStatus::Partly("in 5 of 6 rounds".into()), "completed only in 5 of 6 rounds"),
            (TestStatus::Unfit("the host was busy".into()), "not measured: the host was busy"),
            (TestStatus::Interrupted, "stopped by the user"),
        ] {
            let failure = lines(&["rate >= 5; found 4", "undecided: loss <= 1; found 0 to 2", text]);
            assert_eq!(found(status.clone(), vec![open(), missed()]), Finding::Failure(failure));
            for verdicts in [vec![], vec![open()], vec![Verdict::decided("rate >= 5", true, "6")]] {
                assert_eq!(found(status.clone(), verdicts), Finding::Error(text.into()));
            }
        }
        for status in [TestStatus::Completed, TestStatus::FewerRounds("in 5 of 6 rounds".into())] {
            let failure = Finding::Failure(lines(&["rate >= 5; found 4"]));
            assert_eq!(found(status.clone(), vec![missed()]), failure);
            assert_eq!(found(status, vec![]), Finding::Pass);
        }
        assert_eq!(found(TestStatus::Failed("it died".into()), vec![missed()]), Finding::Error("it died".into()));
        let undecided = lines(&["undecided: loss <= 1; found 0 to 2"]);
        assert_eq!(found(TestStatus::Completed, vec![open()]), Finding::Undecided(undecided));
        assert_eq!(found(TestStatus::Completed, vec![]), Finding::Pass);
        // Without a measurement, a criterion stays undecided, followed by the reason.
        let skipped = || TestStatus::Skipped("no throughput was found".into());
        assert_eq!(found(skipped(), vec![]), Finding::Skipped("no throughput was found".into()));
        let undecided = lines(&["undecided: loss <= 1; found 0 to 2", "skipped: no throughput was found"]);
        assert_eq!(found(skipped(), vec![open()]), Finding::Undecided(undecided));
    }
}
