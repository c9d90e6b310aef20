//! A proxy in front of a server of S3, Google Cloud Storage or Azure, for benchmarks: adds latency, limits bandwidth, throttles, disturbs, logs.
//!
//!     latency-proxy SERVER_HOST:PORT [s3 | gcs | azure]
//!
//! It prints one line of JSON with the ports that it listens on, `{"port": 1, "control_port": 2}`, and ends with its
//! standard input. `settings.rs` says what it does to requests, `control.rs` how it is told, `ledger.rs` what it logs.
//!
//! Requests pass unchanged, the Host header too (but for `gcs`), so signatures hold; `dialect.rs` has what differs. GETs of data files are answered out of memory: the
//! whole object is fetched once, without credentials, which the server must allow for them; otherwise the client's own
//! request is passed on. A PUT, POST or DELETE through the proxy makes it forget the object.

mod answer;
mod connection;
mod control;
mod dialect;
mod http;
mod ledger;
mod model;
mod objects;
mod serve;
mod settings;
mod upstream;

use std::io::{Error, Read};
use std::net::{TcpListener, ToSocketAddrs};
use std::thread;
use std::time::Instant;

use rustix::net::listen;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use control::Board;
use dialect::Dialect;
use model::Model;
use settings::Settings;

const BACKLOG: i32 = 4096;
const USAGE: &str = "usage: latency-proxy SERVER_HOST:PORT [s3 | gcs | azure]";

fn main() -> Result<(), Error> {
    let server = std::env::args()
        .nth(1)
        .and_then(|name| name.to_socket_addrs().ok()?.next())
        .ok_or_else(|| Error::other(USAGE))?;
    let dialect = std::env::args().nth(2).map_or(Some(Dialect::S3), |name| Dialect::named(&name));
    let dialect = dialect.ok_or_else(|| Error::other(USAGE))?;
    let files = getrlimit(Resource::Nofile); // a connection is one, an object is one
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });

    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Clients open hundreds of connections at once. Of more than the 128 of the standard library, some wait a second.
    listen(&listener, BACKLOG)?;
    let control_listener = TcpListener::bind("127.0.0.1:0")?;
    let ports = (listener.local_addr()?.port(), control_listener.local_addr()?.port());
    let board = Board::new(Instant::now(), Model::new(Settings::default(), 0));
    control::serve(control_listener, board.clone());
    println!("{{\"port\": {}, \"control_port\": {}}}", ports.0, ports.1);
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    serve::Proxy::new(listener, server, dialect, board)?.run()
}
