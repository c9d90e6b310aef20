//! What the proxy shall do to requests: set as a whole over the control port, in JSON. What is left out has its default.

use serde::{Deserialize, Serialize};

/// All settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub latency: Latency,
    pub bandwidth: Bandwidth,
    pub throttle: Throttle,
    pub faults: Faults,
    /// Of keys whose objects are kept in memory and answered without the server.
    pub fast_suffixes: Vec<String>,
    /// How much of them is kept; what was used least recently goes first.
    pub cache_bytes: u64,
    /// Where the random numbers begin, again with each change of the settings.
    pub seed: u64,
    /// Whether requests are logged; they are counted anyway.
    pub log: bool,
}

/// Time from the last byte of a request to the first of its answer, on top of what the server takes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    pub median_ms: f64,
    /// Of the lognormal distribution; 0: always the median.
    pub sigma: f64,
    /// So many requests take `tail_factor` times as long.
    pub tail_share: f64,
    pub tail_factor: f64,
}

/// Of the bodies of answers; 0 is without limit.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bandwidth {
    pub connection_bytes_per_s: f64,
    pub total_bytes_per_s: f64,
}

/// Above this rate the answer is 503 SlowDown; 0 is never.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Throttle {
    pub requests_per_s: f64,
    /// Requests that may come at once after a rest.
    pub burst: f64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { requests_per_s: 0.0, burst: 1.0 }
    }
}

/// Shares of the requests that are disturbed, each at most once.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// 500 InternalError, without asking the server.
    pub error_share: f64,
    /// The connection is reset where the answer should begin; the server has done what was asked.
    pub reset_share: f64,
    /// Half of the body, then the end of the connection.
    pub cut_share: f64,
    /// Half of the body, then nothing for `stall_ms`, then a reset.
    pub stall_share: f64,
    pub stall_ms: f64,
    /// Only requests of these methods.
    pub methods: Vec<String>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            error_share: 0.0,
            reset_share: 0.0,
            cut_share: 0.0,
            stall_share: 0.0,
            stall_ms: 60_000.0,
            methods: vec!["GET".into()],
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency: Latency::default(),
            bandwidth: Bandwidth::default(),
            throttle: Throttle::default(),
            faults: Faults::default(),
            fast_suffixes: vec![".lance".into(), ".parquet".into(), ".idx".into()],
            cache_bytes: 8 << 30,
            seed: 1,
            log: true,
        }
    }
}

impl Settings {
    /// Read and check; the message says what is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let settings: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        let Self { latency, bandwidth, throttle, faults, .. } = self;
        let amounts = [
            ("latency.median_ms", latency.median_ms),
            ("latency.sigma", latency.sigma),
            ("latency.tail_factor", latency.tail_factor),
            ("bandwidth.connection_bytes_per_s", bandwidth.connection_bytes_per_s),
            ("bandwidth.total_bytes_per_s", bandwidth.total_bytes_per_s),
            ("throttle.requests_per_s", throttle.requests_per_s),
            ("faults.stall_ms", faults.stall_ms),
        ];
        for (name, value) in amounts {
            if !value.is_finite() || value < 0.0 {
                return Err(format!("{name} is {value}, expected a number from 0"));
            }
        }
        if !throttle.burst.is_finite() || throttle.burst < 1.0 {
            return Err(format!("throttle.burst is {}, expected a number from 1", throttle.burst));
        }
        let shares = [faults.error_share, faults.reset_share, faults.cut_share, faults.stall_share];
        for (name, share) in [("latency.tail_share", latency.tail_share), ("faults", shares.iter().sum())] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name}: a share of {share}, expected one from 0 to 1"));
            }
        }
        if shares.iter().any(|share| *share < 0.0) {
            return Err("faults: a share below 0".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let settings = Settings::parse(br#"{"latency": {"median_ms": 30}}"#).unwrap();
        assert_eq!((settings.latency.median_ms, settings.latency.sigma), (30.0, 0.0));
        assert_eq!(settings.faults.methods, ["GET"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            r#"{"latencies": {}}"#,
            r#"{"latency": {"median_ms": -1}}"#,
            r#"{"latency": {"tail_share": 2}}"#,
            r#"{"faults": {"cut_share": 0.7, "reset_share": 0.7}}"#,
            r#"{"faults": {"cut_share": 0.7, "reset_share": -0.1}}"#,
            r#"{"throttle": {"burst": 0}}"#,
        ] {
            assert!(Settings::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
