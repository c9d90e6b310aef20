//! Decisions about one request after the other: how long it takes, whether it is refused, how it is disturbed, when its
//! bytes may go out. Times are microseconds since the start of the process; nothing here asks a clock.

use crate::settings::Settings;

/// How a request is disturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Error,
    Reset,
    Cut,
    Stall,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Reset => "reset",
            Self::Cut => "cut",
            Self::Stall => "stall",
        }
    }
}

/// Random numbers that are the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// From 0, below 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Mean 0, deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// The state of all random and rate-limited decisions.
pub struct Model {
    settings: Settings,
    random: Random,
    tokens: f64,
    tokens_at_us: u64,
    /// When all bytes that were promised so far have gone out.
    total_clock_us: f64,
}

impl Model {
    pub fn new(settings: Settings, now_us: u64) -> Self {
        Self {
            random: Random(settings.seed),
            tokens: settings.throttle.burst,
            tokens_at_us: now_us,
            total_clock_us: 0.0,
            settings,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Of the next request.
    pub fn latency_us(&mut self) -> u64 {
        let latency = &self.settings.latency;
        let mut value_ms = latency.median_ms;
        if latency.sigma > 0.0 {
            value_ms *= (latency.sigma * self.random.normal()).exp();
        }
        if latency.tail_share > 0.0 && self.random.uniform() < latency.tail_share {
            value_ms *= latency.tail_factor;
        }
        (value_ms * 1e3) as u64
    }

    /// Whether the rate allows the next request.
    pub fn admits(&mut self, now_us: u64) -> bool {
        let throttle = &self.settings.throttle;
        if throttle.requests_per_s <= 0.0 {
            return true;
        }
        let gained = now_us.saturating_sub(self.tokens_at_us) as f64 * 1e-6 * throttle.requests_per_s;
        self.tokens = (self.tokens + gained).min(throttle.burst);
        self.tokens_at_us = now_us;
        let admitted = self.tokens >= 1.0;
        if admitted {
            self.tokens -= 1.0;
        }
        admitted
    }

    /// Of the next request.
    pub fn fault(&mut self, method: &str) -> Option<Fault> {
        let faults = &self.settings.faults;
        let shares = [
            (Fault::Error, faults.error_share),
            (Fault::Reset, faults.reset_share),
            (Fault::Cut, faults.cut_share),
            (Fault::Stall, faults.stall_share),
        ];
        if shares.iter().all(|(_, share)| *share == 0.0) || !faults.methods.iter().any(|one| one == method) {
            return None;
        }
        let mut drawn = self.random.uniform();
        for (fault, share) in shares {
            if drawn < share {
                return Some(fault);
            }
            drawn -= share;
        }
        None
    }

    /// How many bytes go out at a time; None: as many as there are.
    pub fn piece_bytes(&self) -> Option<u64> {
        let limits = &self.settings.bandwidth;
        let rate = [limits.connection_bytes_per_s, limits.total_bytes_per_s]
            .into_iter()
            .filter(|rate| *rate > 0.0)
            .fold(f64::INFINITY, f64::min);
        rate.is_finite().then(|| ((rate * 2e-3) as u64).clamp(4 << 10, 256 << 10))
    }

    /// When so many more bytes of a connection have passed; `clock_us` is when its earlier ones have.
    pub fn passed_at_us(&mut self, clock_us: &mut f64, size_bytes: u64, now_us: u64) -> u64 {
        let limits = &self.settings.bandwidth;
        let clocks = [(clock_us, limits.connection_bytes_per_s), (&mut self.total_clock_us, limits.total_bytes_per_s)];
        let mut passed_us = now_us as f64;
        for (clock, rate) in clocks {
            if rate > 0.0 {
                *clock = clock.max(now_us as f64) + size_bytes as f64 / rate * 1e6;
                passed_us = passed_us.max(*clock);
            }
        }
        passed_us as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> Model {
        Model::new(Settings::parse(text.as_bytes()).unwrap(), 0)
    }

    #[test]
    fn latency_is_lognormal_with_a_tail() {
        let mut fixed = model(r#"{"latency": {"median_ms": 30}}"#);
        assert_eq!(fixed.latency_us(), 30_000);
        let settings = r#"{"latency": {"median_ms": 30, "sigma": 0.3, "tail_share": 0.01, "tail_factor": 50}}"#;
        let mut spread = model(settings);
        let mut drawn: Vec<u64> = (0..20_000).map(|_| spread.latency_us()).collect();
        drawn.sort_unstable();
        assert!(drawn[10_000].abs_diff(30_000) < 1_000, "{}", drawn[10_000]);
        let deviated = drawn[(20_000.0 * 0.8413 * 0.99) as usize] as f64; // one deviation above the median
        assert!((deviated / 30_000.0).ln() - 0.3 < 0.02, "{deviated}");
        let tail = drawn.iter().filter(|value| **value > 300_000).count();
        assert!((150..250).contains(&tail), "{tail}");
    }

    #[test]
    fn a_rate_admits_its_burst_and_then_its_rate() {
        let mut model = model(r#"{"throttle": {"requests_per_s": 100, "burst": 10}}"#);
        assert_eq!((0..50).filter(|_| model.admits(0)).count(), 10);
        assert_eq!((0..1000).filter(|number| model.admits(number * 1_000)).count(), 99);
    }

    #[test]
    fn shares_of_faults_are_kept_and_other_methods_spared() {
        let mut model = model(r#"{"faults": {"cut_share": 0.1, "reset_share": 0.2}}"#);
        let drawn: Vec<_> = (0..10_000).map(|_| model.fault("GET")).collect();
        let count = |fault| drawn.iter().filter(|one| **one == fault).count();
        assert!((900..1100).contains(&count(Some(Fault::Cut))));
        assert!((1850..2150).contains(&count(Some(Fault::Reset))));
        assert_eq!(count(Some(Fault::Stall)), 0);
        assert!((0..1000).all(|_| model.fault("PUT").is_none()));
    }

    #[test]
    fn bytes_pass_at_the_slower_of_both_rates() {
        let mut model = model(r#"{"bandwidth": {"connection_bytes_per_s": 1e6, "total_bytes_per_s": 1.5e6}}"#);
        let (mut one, mut other) = (0.0, 0.0);
        assert_eq!(model.passed_at_us(&mut one, 300_000, 0), 300_000);
        assert_eq!(model.passed_at_us(&mut other, 300_000, 0), 400_000);
        assert_eq!(model.passed_at_us(&mut one, 0, 900_000), 900_000);
        assert_eq!(model.piece_bytes(), Some(4 << 10));
    }
}
