//! One connection of a client: what has come on it, and the request that is being answered.

use std::io::Write;
use std::net::TcpStream;

use crate::answer::Answer;
use crate::http::{self, Chunks, Length, Request};
use crate::ledger::Record;
use crate::model::Fault;

/// A request that has come as a whole, up to the end of its answer.
pub struct Exchange {
    pub record: Record,
    pub request: Request,
    /// As it came, until it is passed on.
    pub bytes: Vec<u8>,
    pub latency_us: u64,
    pub fault: Option<Fault>,
    /// Which entry of the heap concerns it; older ones do not.
    pub timer: u64,
    pub answer: Option<Answer>,
    pub sending: bool,
    /// Goes on when the client takes more.
    pub blocked: bool,
}

pub struct Connection {
    pub socket: TcpStream,
    pub token: u64,
    pub number: u32,
    pub input: Vec<u8>,
    /// Head of the request whose body is still coming.
    pub coming: Option<(Request, Chunks)>,
    pub exchange: Option<Exchange>,
    /// When what was sent so far has passed, at the bandwidth of a connection.
    pub clock_us: f64,
}

impl Connection {
    pub fn new(socket: TcpStream, token: u64, number: u32) -> Self {
        Self { socket, token, number, input: Vec::new(), coming: None, exchange: None, clock_us: 0.0 }
    }
}

/// The next whole request on a connection, out of its input.
pub fn next_request(connection: &mut Connection) -> Result<Option<(Request, Vec<u8>)>, String> {
    if connection.coming.is_none() {
        if connection.input.is_empty() {
            return Ok(None);
        }
        let Some(request) = http::request(&connection.input)? else {
            return Ok(None);
        };
        if request.expects_continue {
            let _ = connection.socket.write(b"HTTP/1.1 100 Continue\r\n\r\n"); // who has gone is found out later
        }
        if let Length::Known(size) = request.body {
            connection.input.reserve((request.head_bytes + size).saturating_sub(connection.input.len()));
        }
        connection.coming = Some((request, Chunks::default()));
    }
    let Some((request, chunks)) = connection.coming.as_mut() else {
        return Ok(None);
    };
    let size = match request.body {
        Length::Known(size) => Some(size),
        Length::Chunked => chunks.end(&connection.input[request.head_bytes..])?,
        Length::UntilClose => return Err("a request without an end".into()),
    };
    let end = size.map(|size| request.head_bytes + size).filter(|end| *end <= connection.input.len());
    let (Some(end), Some((request, _))) = (end, end.and_then(|_| connection.coming.take())) else {
        return Ok(None);
    };
    let rest = connection.input.split_off(end);
    Ok(Some((request, std::mem::replace(&mut connection.input, rest))))
}
