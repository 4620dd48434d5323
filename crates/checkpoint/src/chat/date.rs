//! The date that templates are given.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const SECONDS_A_DAY: u64 = 86_400;

/// The time, in seconds since the beginning of 1970 in UTC.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The parts of a time in UTC.
struct Parts {
    year: u64,
    /// From 1.
    month: usize,
    /// From 1.
    day: u64,
    /// Since the first of January, from 0.
    day_of_year: u64,
    /// Monday is 0.
    weekday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

impl Parts {
    fn of(seconds: u64) -> Self {
        let (days, rest) = (seconds / SECONDS_A_DAY, seconds % SECONDS_A_DAY);
        // A cycle of the calendar has 400 years, and the first of 1970 begins in 1600.
        let (cycle, start) = (146_097, 135_140);
        let mut year = 1600 + (days + start) / cycle * 400;
        let mut day_of_year = (days + start) % cycle;
        let length = |year| 365 + u64::from(is_leap(year));
        while day_of_year >= length(year) {
            day_of_year -= length(year);
            year += 1;
        }
        let february = 28 + u64::from(is_leap(year));
        let (mut month, mut day) = (0, day_of_year);
        for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if day < days {
                break;
            }
            day -= days;
            month += 1;
        }
        Self {
            year,
            month: month + 1,
            day: day + 1,
            day_of_year,
            // The first day of 1970 was a Thursday.
            weekday: (days + 3) % 7,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// The hour on a clock of twelve hours.
    fn clock(&self) -> u64 {
        (self.hour + 11) % 12 + 1
    }

    /// The year and the number of the week by ISO 8601: a week is of the year that has its Thursday.
    fn week(&self) -> (u64, u64) {
        let last = |year: u64| 364 + u64::from(is_leap(year));
        match (self.day_of_year + 3).checked_sub(self.weekday) {
            None => (self.year - 1, (self.day_of_year + 4 + last(self.year - 1) - self.weekday) / 7 + 1),
            Some(thursday) if thursday > last(self.year) => (self.year + 1, 1),
            Some(thursday) => (self.year, thursday / 7 + 1),
        }
    }

    /// The number of the week whose first day is `days` after Monday; days before the first of them are in week 0.
    fn week_from(&self, days: u64) -> u64 {
        (self.day_of_year + 7 - (self.weekday + 7 - days) % 7) / 7
    }

    /// The part that a code names, with leading zeros.
    fn part(&self, code: char) -> Option<String> {
        let (month, weekday) = (MONTHS[self.month - 1], DAYS[self.weekday as usize]);
        let date = format!("{:02}/{:02}/{:02}", self.month, self.day, self.year % 100);
        let time = format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second);
        Some(match code {
            'Y' => self.year.to_string(),
            'G' => self.week().0.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year + 1),
            'A' => weekday.into(),
            'a' => weekday[..3].into(),
            'u' => (self.weekday + 1).to_string(),
            'w' => ((self.weekday + 1) % 7).to_string(),
            'V' => format!("{:02}", self.week().1),
            'W' => format!("{:02}", self.week_from(0)),
            'U' => format!("{:02}", self.week_from(6)),
            'H' => format!("{:02}", self.hour),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'I' => format!("{:02}", self.clock()),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'f' => "000000".into(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'D' | 'x' => date,
            'T' | 'X' => time,
            'R' => format!("{:02}:{:02}", self.hour, self.minute),
            'c' => format!("{} {} {:2} {time} {}", &weekday[..3], &month[..3], self.day, self.year),
            // A time without a zone.
            'z' | 'Z' => String::new(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            _ => return None,
        })
    }
}

/// `strftime_now` of a template, at a time in seconds since 1970 in UTC: the time by Python's format codes.
///
/// # Errors
/// For a code that this does not know.
pub(super) fn strftime(seconds: u64, format: &str) -> Result<String, Error> {
    let parts = Parts::of(seconds);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            // Without a leading zero or space.
            Some('-') => {
                let code = characters.next().filter(|code| "dmyjHMSIUWVe".contains(*code));
                let part = code.and_then(|code| parts.part(code)).ok_or_else(|| unknown("-", code))?;
                let short = part.trim_start_matches(['0', ' ']);
                text.push_str(if short.is_empty() { "0" } else { short });
            }
            code => text.push_str(&code.and_then(|code| parts.part(code)).ok_or_else(|| unknown("", code))?),
        }
    }
    Ok(text)
}

fn unknown(flag: &str, code: Option<char>) -> Error {
    let code = code.map_or(String::new(), String::from);
    Error::new(
        ErrorKind::InvalidOperation,
        format!("strftime_now: expected a known format code, found `%{flag}{code}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::strftime;

    /// The texts are those of Python's `strftime`.
    #[test]
    fn times_are_written_as_python_writes_them() {
        const FORMAT: &str = "%Y|%G|%y|%m|%B|%b|%d|%e|%j|%A|%a|%u|%w|%V|%W|%U|%H|%M|%S|%I|%p|%F|%D|%T|%R|%c|%-d|%-m|%-j|%-H|%-I|%%";
        for (seconds, expected) in [
            (
                0,
                "1970|1970|70|01|January|Jan|01| 1|001|Thursday|Thu|4|4|01|00|00|00|00|00|12|AM|1970-01-01|01/01/70|00:00:00|00:00|Thu Jan  1 00:00:00 1970|1|1|1|0|12|%",
            ),
            (
                1_721_952_000,
                "2024|2024|24|07|July|Jul|26|26|208|Friday|Fri|5|5|30|30|29|00|00|00|12|AM|2024-07-26|07/26/24|00:00:00|00:00|Fri Jul 26 00:00:00 2024|26|7|208|0|12|%",
            ),
            (
                1_709_208_309,
                "2024|2024|24|02|February|Feb|29|29|060|Thursday|Thu|4|4|09|09|08|12|05|09|12|PM|2024-02-29|02/29/24|12:05:09|12:05|Thu Feb 29 12:05:09 2024|29|2|60|12|12|%",
            ),
            (
                1_735_603_199,
                "2024|2025|24|12|December|Dec|30|30|365|Monday|Mon|1|1|01|53|52|23|59|59|11|PM|2024-12-30|12/30/24|23:59:59|23:59|Mon Dec 30 23:59:59 2024|30|12|365|23|11|%",
            ),
            (
                1_672_578_001,
                "2023|2022|23|01|January|Jan|01| 1|001|Sunday|Sun|7|0|52|00|01|13|00|01|01|PM|2023-01-01|01/01/23|13:00:01|13:00|Sun Jan  1 13:00:01 2023|1|1|1|13|1|%",
            ),
            (
                1_609_666_200,
                "2021|2020|21|01|January|Jan|03| 3|003|Sunday|Sun|7|0|53|00|01|09|30|00|09|AM|2021-01-03|01/03/21|09:30:00|09:30|Sun Jan  3 09:30:00 2021|3|1|3|9|9|%",
            ),
            (
                978_261_071,
                "2000|2000|00|12|December|Dec|31|31|366|Sunday|Sun|7|0|52|52|53|11|11|11|11|AM|2000-12-31|12/31/00|11:11:11|11:11|Sun Dec 31 11:11:11 2000|31|12|366|11|11|%",
            ),
            (
                1_796_017_927,
                "2026|2026|26|11|November|Nov|30|30|334|Monday|Mon|1|1|49|48|48|05|52|07|05|AM|2026-11-30|11/30/26|05:52:07|05:52|Mon Nov 30 05:52:07 2026|30|11|334|5|5|%",
            ),
            (
                4_107_546_123,
                "2100|2100|00|03|March|Mar|01| 1|060|Monday|Mon|1|1|09|09|09|01|02|03|01|AM|2100-03-01|03/01/00|01:02:03|01:02|Mon Mar  1 01:02:03 2100|1|3|60|1|1|%",
            ),
        ] {
            assert_eq!(strftime(seconds, FORMAT).unwrap(), expected, "{seconds}");
        }
        let error = strftime(0, "%Q").unwrap_err().to_string();
        assert!(error.contains("found `%Q`"), "{error}");
    }
}
