//! Parses times by patterns, which `lance_io/filters/functions/time_formats.py` describes and splits into parts.

use super::arguments::{checked_present, is_present, Arguments, Given, Held, Row, BYTES_PER_STEP};
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A part of a pattern: a field by its letter, `text` or `space`; and the text.
type Part = (String, String);

/// The fields of a text, as written.
#[derive(Default)]
struct Fields<'a> {
    year: Option<&'a str>,
    century: Option<&'a str>,
    short_year: Option<&'a str>,
    month: Option<&'a str>,
    month_name: Option<&'a str>,
    day: Option<&'a str>,
    ordinal: Option<&'a str>,
    weekday: Option<&'a str>,
    hour: Option<&'a str>,
    half_hour: Option<&'a str>,
    half: Option<&'a str>,
    minute: Option<&'a str>,
    second: Option<&'a str>,
    nanosecond: Option<&'a str>,
    fraction: Option<&'a str>,
    offset: Option<&'a str>,
    zone: Option<&'a str>,
    timestamp: Option<&'a str>,
}

/// `read_times` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, texts, present, patterns, of_day, /))]
pub fn read_times(
    py: Python<'_>,
    num_rows: usize,
    texts: Given<'_>,
    present: Option<&Bound<'_, PyAny>>,
    patterns: Vec<Vec<Part>>,
    of_day: bool,
) -> PyResult<(OwnedBuffer, Option<usize>)> {
    let held = [Held::new(&texts)?];
    let arguments = Arguments::new(&held, num_rows)?;
    let present = present.map(Input::new).transpose()?;
    let present = checked_present(present.as_ref(), num_rows)?;
    gil::release(py, num_rows + arguments.num_bytes / BYTES_PER_STEP, || {
        let texts = arguments.texts(0)?;
        let mut found: Vec<i64> = vec_with_capacity(num_rows)?;
        for row in 0..num_rows {
            let value = match is_present(present, row) {
                true => {
                    let text = texts.text(row)?;
                    patterns.iter().find_map(|pattern| read(text, pattern, of_day))
                }
                false => Some(0),
            };
            match value {
                Some(value) => found.try_push(value)?,
                None => return Ok((found.into(), Some(row))),
            }
        }
        PyResult::Ok((found.into(), None))
    })
}

fn read(text: &str, pattern: &[Part], of_day: bool) -> Option<i64> {
    let fields = Fields::of(text, pattern)?;
    if of_day {
        fields.time_of_day()
    } else {
        fields.time()
    }
}

/// The unread rest of a text.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_space(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// Digits, up to a maximum number of them.
    fn digits(&mut self, most: usize) -> Option<&'a str> {
        let count = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        (count > 0).then(|| self.take(count))
    }

    fn number(&mut self, most: usize) -> Option<&'a str> {
        self.skip_space();
        self.digits(most)
    }

    fn exactly(&mut self, count: usize) -> Option<&'a str> {
        self.digits(count).filter(|digits| digits.len() == count)
    }

    /// A number with an optional sign; without a sign it may have fewer digits.
    fn signed(&mut self, signed_most: usize, unsigned_most: usize) -> Option<&'a str> {
        self.skip_space();
        if !self.0.starts_with(['+', '-']) {
            return self.digits(unsigned_most);
        }
        let whole = self.0;
        self.take(1);
        let digits = self.digits(signed_most)?;
        Some(&whole[..1 + digits.len()])
    }

    fn name(&mut self, names: &[&str], long: bool) -> Option<&'a str> {
        let begins = |name: &&str| {
            self.0.len() >= name.len() && self.0.as_bytes()[..name.len()].eq_ignore_ascii_case(name.as_bytes())
        };
        let whole = names.iter().copied().filter(|_| long).find(|name| begins(name));
        let found = whole.or_else(|| names.iter().map(|name| &name[..3]).find(|name| begins(name)));
        found.map(|name| self.take(name.len()))
    }

    fn half(&mut self) -> Option<&'a str> {
        match self.0.as_bytes() {
            [b'a' | b'A' | b'p' | b'P', b'm' | b'M', ..] => Some(self.take(2)),
            _ => None,
        }
    }

    /// The digits after a point, if there are any.
    fn fraction(&mut self) -> Option<&'a str> {
        let digits = self.0.strip_prefix('.').and_then(|rest| Rest(rest).digits(9));
        digits.inspect(|found| {
            self.take(1 + found.len());
        })
    }

    fn offset(&mut self) -> Option<&'a str> {
        self.skip_space();
        let whole = self.0;
        if !whole.starts_with(['+', '-']) {
            return None;
        }
        self.take(1);
        self.exactly(2)?;
        self.0 = self.0.trim_start_matches([':', ' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        self.exactly(2)?;
        Some(&whole[..whole.len() - self.0.len()])
    }

    fn word(&mut self) -> &'a str {
        let length = self.0.find([' ', '\t', '\n', '\r', '\x0b', '\x0c']).unwrap_or(self.0.len());
        self.take(length)
    }
}

/// Store a field's value; `None` if it had another value before.
fn put<'a>(field: &mut Option<&'a str>, value: &'a str) -> Option<()> {
    match field {
        Some(before) => (*before == value).then_some(()),
        None => {
            *field = Some(value);
            Some(())
        }
    }
}

impl<'a> Fields<'a> {
    fn of(text: &'a str, pattern: &[Part]) -> Option<Self> {
        let (mut fields, mut rest) = (Fields::default(), Rest(text));
        for (kind, literal) in pattern {
            match kind.as_str() {
                "space" => rest.skip_space(),
                "text" => rest.0 = rest.0.strip_prefix(literal.as_str())?,
                "Y" => put(&mut fields.year, rest.signed(9, 4)?)?,
                "C" => put(&mut fields.century, rest.number(2)?)?,
                "y" => put(&mut fields.short_year, rest.number(2)?)?,
                "m" => put(&mut fields.month, rest.number(2)?)?,
                "d" | "e" => put(&mut fields.day, rest.number(2)?)?,
                "j" => put(&mut fields.ordinal, rest.number(3)?)?,
                "b" | "h" => put(&mut fields.month_name, rest.name(&MONTHS, false)?)?,
                "B" => put(&mut fields.month_name, rest.name(&MONTHS, true)?)?,
                "a" => put(&mut fields.weekday, rest.name(&DAYS, false)?)?,
                "A" => put(&mut fields.weekday, rest.name(&DAYS, true)?)?,
                "H" | "k" => put(&mut fields.hour, rest.number(2)?)?,
                "I" | "l" => put(&mut fields.half_hour, rest.number(2)?)?,
                "p" | "P" => put(&mut fields.half, rest.half()?)?,
                "M" => put(&mut fields.minute, rest.number(2)?)?,
                "S" => put(&mut fields.second, rest.number(2)?)?,
                "f" => put(&mut fields.nanosecond, rest.number(9)?)?,
                "3f" => put(&mut fields.fraction, rest.exactly(3)?)?,
                "6f" => put(&mut fields.fraction, rest.exactly(6)?)?,
                "9f" => put(&mut fields.fraction, rest.exactly(9)?)?,
                ".f" | ".3f" | ".6f" | ".9f" => {
                    if let Some(digits) = rest.fraction() {
                        put(&mut fields.fraction, digits)?;
                    }
                }
                "z" | ":z" => put(&mut fields.offset, rest.offset()?)?,
                "Z" => put(&mut fields.zone, rest.word())?,
                "s" => put(&mut fields.timestamp, rest.signed(18, 18)?)?,
                _ => return None,
            }
        }
        rest.0.is_empty().then_some(fields)
    }

    /// Nanoseconds since 1970 in UTC.
    fn time(&self) -> Option<i64> {
        if let Some(seconds) = self.timestamp {
            return value(seconds)?.checked_mul(SECOND)?.checked_add(self.fraction()?);
        }
        let midnight = self.days()?.checked_mul(DAY)?;
        let has_time = (self.hour.is_some() || self.half_hour.is_some()) && self.minute.is_some();
        let Some(offset) = self.offset else {
            return midnight.checked_add(if has_time { self.time_of_day()? } else { 0 });
        };
        let digits: String = offset.chars().filter(char::is_ascii_digit).collect(); // room: four digits
        let seconds = value(digits.get(..2)?)? * 3600 + value(digits.get(2..)?)? * 60;
        let sign = if offset.starts_with('+') { -1 } else { 1 };
        midnight.checked_add(self.time_of_day()?)?.checked_add(sign * seconds * SECOND)
    }

    /// Days since 1970.
    fn days(&self) -> Option<i64> {
        let year = match (self.year, self.short_year, self.century) {
            (Some(year), _, _) => value(year)?,
            (None, Some(short), Some(century)) => value(century)? * 100 + value(short)?,
            (None, Some(short), None) => {
                let short = value(short)?;
                short + if short >= 70 { 1900 } else { 2000 }
            }
            _ => return None,
        };
        if !(1..=9999).contains(&year) {
            return None;
        }
        let found = match self.ordinal {
            Some(ordinal) => {
                let number = value(ordinal)?;
                let length = days_before(year + 1, 1) - days_before(year, 1);
                (1..=length).contains(&number).then(|| days_before(year, 1) + number - 1)?
            }
            None => {
                let (month, day) = (self.month()?, value(self.day?)?);
                let length = (1..=12).contains(&month).then(|| length_of(year, month))?;
                (1..=length).contains(&day).then(|| days_before(year, month) + day - 1)?
            }
        };
        if let Some(name) = self.weekday {
            let wanted = DAYS[(found + 3).rem_euclid(7) as usize]; // 1970 began with a Thursday
            wanted.as_bytes()[..name.len().min(wanted.len())].eq_ignore_ascii_case(name.as_bytes()).then_some(())?;
        }
        Some(found)
    }

    fn month(&self) -> Option<i64> {
        let Some(name) = self.month_name else {
            return value(self.month?);
        };
        let begins = |month: &&str| month.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        MONTHS.iter().position(begins).map(|place| place as i64 + 1)
    }

    fn time_of_day(&self) -> Option<i64> {
        let hour = match (self.hour, self.half_hour, self.half) {
            (Some(hour), _, _) => value(hour)?,
            (None, Some(hour), Some(half)) => {
                let hour = value(hour).filter(|hour| (1..=12).contains(hour))?;
                hour % 12 + if half.starts_with(['p', 'P']) { 12 } else { 0 }
            }
            _ => return None,
        };
        let (minute, second) = (value(self.minute?)?, self.second.map_or(Some(0), value)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some(((hour * 60 + minute) * 60 + second) * SECOND + self.fraction()?)
    }

    fn fraction(&self) -> Option<i64> {
        match (self.fraction, self.nanosecond) {
            (Some(digits), _) => Some(value(digits)? * 10i64.pow(9u32.checked_sub(digits.len() as u32)?)),
            (None, Some(number)) => value(number),
            (None, None) => Some(0),
        }
    }
}

/// Format a time, seconds since 1970, by a pattern of some fields; for years of four digits.
pub fn format_time(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (seconds, pattern) = (row.number(0)?, row.text(1)?);
    let (days, second) = (seconds.div_euclid(DAY / SECOND), seconds.rem_euclid(DAY / SECOND));
    let (year, month, day) = date_of(days);
    if !(0..=9999).contains(&year) {
        return Err(invalid(format!("a time in the year {year}")));
    }
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.try_push(byte)?;
            continue;
        }
        let (number, num_digits) = match bytes.next() {
            Some(b'Y') => (year, 4),
            Some(b'y') => (year % 100, 2),
            Some(b'm') => (month, 2),
            Some(b'd') => (day, 2),
            Some(b'j') => (days - days_before(year, 1) + 1, 3),
            Some(b'H') => (second / 3600, 2),
            Some(b'M') => (second / 60 % 60, 2),
            Some(b'S') => (second % 60, 2),
            Some(b'%') => {
                out.try_push(b'%')?;
                continue;
            }
            other => return Err(invalid(format!("no field of times is named {other:?}"))),
        };
        let powers = [1000, 100, 10, 1];
        out.try_extend(powers[4 - num_digits..].iter().map(|power| b'0' + (number / power % 10) as u8))?;
    }
    Ok(())
}

/// Year, month and day of a day since 1970; the reverse of `days_before`.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100); // from March on
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

fn value(digits: &str) -> Option<i64> {
    digits.parse().ok()
}

/// Days from 1970 to the first of a month.
fn days_before(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (month * 153 + 2) / 5 - 719_468
}

fn length_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_are_each_others_reverse() {
        for days in (-800_000..3_000_000).step_by(17) {
            let (year, month, day) = date_of(days);
            assert_eq!(days_before(year, month) + day - 1, days);
            assert!((1..=length_of(year, month)).contains(&day));
        }
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(11_016), (2000, 2, 29));
    }
}
