//! What was asked and answered: one record for each request, and counts.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

const RECORDS_MAX: usize = 4_000_000;

/// Names of the values of a record, in the order in which the log gives them.
pub const FIELDS: [&str; 14] = [
    "method",
    "key",
    "range_start",
    "range_end",
    "status",
    "sent_bytes",
    "received_bytes",
    "from_us",
    "first_us",
    "until_us",
    "connection",
    "in_flight",
    "fast",
    "event",
];

/// One request. Times are microseconds since the start of the proxy.
#[derive(Clone, Debug)]
pub struct Record {
    pub method: String,
    pub key: Arc<str>,
    /// The bytes asked for, where the proxy knows them; both 0 otherwise.
    pub range: (u64, u64),
    /// 0: there was no answer.
    pub status: u16,
    /// Of the body.
    pub sent_bytes: u64,
    /// Of the body of the request.
    pub received_bytes: u64,
    /// All of the request was there.
    pub from_us: u64,
    /// The answer began, and its last byte was handed to the kernel.
    pub first_us: u64,
    pub until_us: u64,
    pub connection: u32,
    /// Requests without a whole answer, this one included, when it came.
    pub in_flight: u32,
    /// Answered without the server.
    pub fast: bool,
    /// `throttled`, the name of a fault, `left` where the client went away, or nothing.
    pub event: &'static str,
}

/// Sums since the last reset, except for what is open.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub requests: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub throttled: u64,
    pub disturbed: u64,
    pub left: u64,
    /// Opened by clients.
    pub connections: u64,
    pub in_flight_max: u32,
    pub in_flight: u32,
    pub connections_open: u32,
}

#[derive(Default)]
pub struct Ledger {
    pub counts: Counts,
    records: Vec<Record>,
    lost: u64,
    keys: HashMap<String, Arc<str>>,
}

impl Ledger {
    /// The one copy of a key that all records share.
    pub fn key(&mut self, key: &str) -> Arc<str> {
        if let Some(known) = self.keys.get(key) {
            return known.clone();
        }
        let shared: Arc<str> = key.into();
        self.keys.insert(key.to_owned(), shared.clone());
        shared
    }

    /// A request is there; gives the number in flight.
    pub fn began(&mut self) -> u32 {
        self.counts.in_flight += 1;
        self.counts.in_flight_max = self.counts.in_flight_max.max(self.counts.in_flight);
        self.counts.in_flight
    }

    /// It has been answered, or will not be any more.
    pub fn ended(&mut self, record: Record, log: bool) {
        let counts = &mut self.counts;
        counts.in_flight -= 1;
        counts.requests += 1;
        counts.sent_bytes += record.sent_bytes;
        counts.received_bytes += record.received_bytes;
        match record.event {
            "" => (),
            "throttled" => counts.throttled += 1,
            "left" => counts.left += 1,
            _ => counts.disturbed += 1,
        }
        if log && self.records.len() < RECORDS_MAX {
            self.records.push(record);
        } else if log {
            self.lost += 1;
        }
    }

    pub fn reset(&mut self) {
        let Counts { in_flight, connections_open, .. } = self.counts;
        self.counts = Counts { in_flight, in_flight_max: in_flight, connections_open, ..Counts::default() };
        self.records = Vec::new();
        self.keys = HashMap::new();
        self.lost = 0;
    }

    /// The log so far, and begin a new one. Records in the order in which answers ended.
    pub fn take(&mut self) -> (Vec<Record>, u64) {
        self.keys.clear();
        (std::mem::take(&mut self.records), std::mem::take(&mut self.lost))
    }
}

/// `{"fields": [...], "keys": [...], "records": [[...], ...], "lost": 0}`; keys are given by their number.
pub fn as_json(records: &[Record], lost: u64) -> String {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut keys: Vec<&str> = Vec::new();
    let mut rows = String::with_capacity(records.len() * 96);
    for record in records {
        let key = *numbers.entry(&record.key).or_insert_with(|| {
            keys.push(&record.key);
            keys.len() - 1
        });
        let separator = if rows.is_empty() { "" } else { ",\n" };
        let (start, end) = record.range;
        let Record { method, status, sent_bytes, received_bytes, from_us, first_us, until_us, .. } = record;
        let Record { connection, in_flight, fast, event, .. } = record;
        write!(
            rows,
            "{separator}[{:?},{key},{start},{end},{status},{sent_bytes},{received_bytes},{from_us},{first_us},\
             {until_us},{connection},{in_flight},{fast},{event:?}]",
            method
        )
        .expect("writing into a string");
    }
    let fields = serde_json::to_string(&FIELDS).expect("names");
    let keys = serde_json::to_string(&keys).expect("names");
    format!("{{\"fields\": {fields}, \"keys\": {keys}, \"lost\": {lost}, \"records\": [{rows}]}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: Arc<str>, in_flight: u32, event: &'static str) -> Record {
        Record {
            method: "GET".into(),
            key,
            range: (5, 9),
            status: 206,
            sent_bytes: 4,
            received_bytes: 0,
            from_us: 1,
            first_us: 2,
            until_us: 3,
            connection: 7,
            in_flight,
            fast: true,
            event,
        }
    }

    #[test]
    fn records_are_counted_and_told() {
        let mut ledger = Ledger::default();
        let in_flight: Vec<u32> = (0..3).map(|_| ledger.began()).collect();
        for (number, event) in in_flight.into_iter().zip(["", "cut", "throttled"]) {
            let key = ledger.key("/b/\"k\".lance");
            ledger.ended(record(key, number, event), true);
        }
        let counts = ledger.counts.clone();
        assert_eq!((counts.requests, counts.in_flight, counts.in_flight_max, counts.sent_bytes), (3, 0, 3, 12));
        assert_eq!((counts.throttled, counts.disturbed), (1, 1));
        let (records, lost) = ledger.take();
        let told: serde_json::Value = serde_json::from_str(&as_json(&records, lost)).unwrap();
        assert_eq!(told["keys"], serde_json::json!(["/b/\"k\".lance"]));
        assert_eq!(told["records"][1].as_array().unwrap().len(), FIELDS.len());
        assert_eq!(told["records"][1][13], "cut");
        assert_eq!(ledger.take().0.len(), 0);
    }
}
