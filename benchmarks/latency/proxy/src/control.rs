//! The control port: settings, counts, the log. Small HTTP/1.1 with JSON, one request per connection.
//!
//!     GET  /settings   all settings            PUT /settings   replace them; what is left out has its default
//!     GET  /stats      counts and times        POST /reset     forget counts and log
//!     GET  /log        records, which are forgotten then

use std::io::{Error, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use rustix::time::{clock_gettime, ClockId};
use serde_json::json;

use crate::http::{self, Length};
use crate::ledger::{as_json, Ledger};
use crate::model::Model;

/// What both ports look at.
pub struct State {
    pub model: Model,
    pub ledger: Ledger,
    pub kept_bytes: u64,
}

/// `State` under its lock, and the clock.
pub struct Board {
    started: Instant,
    state: Mutex<State>,
}

impl Board {
    pub fn new(started: Instant, model: Model) -> Arc<Self> {
        let state = Mutex::new(State { model, ledger: Ledger::default(), kept_bytes: 0 });
        Arc::new(Self { started, state })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn answer(&self, method: &str, target: &str, body: &[u8]) -> (u16, String) {
        match (method, target) {
            ("GET", "/settings") => {
                let settings = self.state().model.settings().clone();
                (200, serde_json::to_string(&settings).expect("settings"))
            }
            ("PUT", "/settings") => match crate::settings::Settings::parse(body) {
                Ok(settings) => {
                    self.state().model = Model::new(settings, self.now_us());
                    (200, "{}".into())
                }
                Err(message) => (400, json!({ "error": message }).to_string()),
            },
            ("GET", "/stats") => (200, self.stats()),
            ("GET", "/log") => {
                let (records, lost) = self.state().ledger.take();
                (200, as_json(&records, lost))
            }
            ("POST", "/reset") => {
                self.state().ledger.reset();
                (200, "{}".into())
            }
            _ => (404, json!({ "error": format!("{method} {target} is not known") }).to_string()),
        }
    }

    fn stats(&self) -> String {
        let state = self.state();
        let counts = &state.ledger.counts;
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        json!({
            "requests": counts.requests,
            "sent_bytes": counts.sent_bytes,
            "received_bytes": counts.received_bytes,
            "throttled": counts.throttled,
            "disturbed": counts.disturbed,
            "left": counts.left,
            "connections": counts.connections,
            "connections_open": counts.connections_open,
            "in_flight": counts.in_flight,
            "in_flight_max": counts.in_flight_max,
            "kept_bytes": state.kept_bytes,
            "cpu_s": cpu.tv_sec as f64 + cpu.tv_nsec as f64 * 1e-9,
            "now_us": self.now_us(),
        })
        .to_string()
    }
}

/// Answer until the process ends.
pub fn serve(listener: TcpListener, board: Arc<Board>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let board = board.clone();
            thread::spawn(move || exchange(stream, &board)); // its end concerns only who asked
        }
    });
}

fn exchange(mut stream: TcpStream, board: &Board) -> Result<(), Error> {
    let mut input = Vec::new();
    let mut piece = [0; 4096];
    let (request, body) = loop {
        let read = stream.read(&mut piece)?;
        input.extend_from_slice(&piece[..read]);
        let Some(request) = http::request(&input).map_err(Error::other)? else {
            if read == 0 {
                return Ok(());
            }
            continue;
        };
        let Length::Known(size) = request.body else {
            return Err(Error::other("a body of unknown length"));
        };
        if let Some(body) = input.get(request.head_bytes..request.head_bytes + size) {
            break (request, body.to_vec());
        }
    };
    let (status, text) = board.answer(&request.method, &request.target, &body);
    let head = format!(
        "HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())
}
