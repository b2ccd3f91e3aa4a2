//! UTC as text, for the names of run folders and the `time` fields of records.

use std::time::{SystemTime, UNIX_EPOCH};

/// Year, month, day of the proleptic Gregorian calendar for a day number counted from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    // The calendar repeats every 400 years = 146,097 days. Years start on 1 March here, so that a leap day is the last day
    // of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn parts(time: SystemTime) -> (i64, i64, i64, i64) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    (year, month, day, seconds.rem_euclid(86_400))
}

/// Formats a time as `2026-11-21T03:44:55Z` (RFC 3339).
pub fn utc_text(time: SystemTime) -> String {
    let (year, month, day, s) = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

/// Formats a time as `20261121-034455`, for names of folders; sorts by time.
pub fn utc_compact(time: SystemTime) -> String {
    let (year, month, day, s) = parts(time);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// The current time, as formatted by [`utc_text`].
pub fn utc_now() -> String {
    utc_text(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_instants() {
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(utc_text(at(0)), "1970-01-01T00:00:00Z");
        assert_eq!(utc_text(at(951_782_399)), "2000-02-28T23:59:59Z");
        assert_eq!(utc_text(at(951_782_400)), "2000-02-29T00:00:00Z");
        assert_eq!(utc_text(at(1_709_251_199)), "2024-02-29T23:59:59Z");
        assert_eq!(utc_compact(at(1_795_232_695)), "20261121-034455");
        assert_eq!(utc_text(at(4_107_542_400)), "2100-03-01T00:00:00Z");
    }
}
