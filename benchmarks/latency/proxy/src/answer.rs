//! An answer on its way to the client, and how far it has come.

use std::io::Error;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{send, SendFlags};

use crate::dialect::Dialect;
use crate::http::{self, Asked};
use crate::model::Fault;
use crate::objects::Object;
use crate::upstream;

const JOINED_MAX: u64 = 64 << 10; // bodies up to this leave in one call with their head
const PIECE_BYTES: u64 = 1 << 20;

enum Body {
    Bytes(Vec<u8>),
    Object(Arc<Object>),
}

/// What happens behind the last byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum After {
    Keep,
    Close,
    Stall,
}

/// How a step of sending ended.
pub enum Step {
    /// The client takes no more at present.
    Blocked,
    /// All that is allowed has gone out.
    Spent,
    Complete,
    Gone,
}

pub struct Answer {
    pub status: u16,
    /// Of the object, where the proxy knows it.
    pub range: (u64, u64),
    pub after: After,
    /// How many bytes of the body may still go out for now.
    pub allowed_bytes: u64,
    head: Vec<u8>,
    head_sent: usize,
    body: Body,
    first: u64,
    at: u64,
    end: u64,
}

impl Answer {
    fn new(status: u16, head: Vec<u8>, body: Body, (first, end): (u64, u64)) -> Self {
        Self {
            status,
            range: (0, 0),
            after: After::Keep,
            allowed_bytes: u64::MAX,
            head,
            head_sent: 0,
            body,
            first,
            at: first,
            end,
        }
    }

    /// What the server said.
    pub fn of_server(answer: upstream::Answer) -> Self {
        let mut head = answer.bytes;
        let body = head.split_off(answer.head_bytes);
        let size = body.len() as u64;
        let mut passed = Self::new(answer.status, head, Body::Bytes(body), (0, size));
        if answer.closes {
            passed.after = After::Close;
        }
        passed
    }

    /// An error in the words of the store.
    pub fn error(dialect: Dialect, status: u16, code: &str, key: &str) -> Self {
        let reason = match status {
            416 => "Requested Range Not Satisfiable",
            500 => "Internal Server Error",
            502 => "Bad Gateway",
            _ => "Service Unavailable",
        };
        let (lines, body) = dialect.error(status, code, reason, key);
        let head = format!("HTTP/1.1 {status} {reason}\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
        let size = body.len() as u64;
        Self::new(status, head.into_bytes(), Body::Bytes(body.into_bytes()), (0, size))
    }

    /// What `range` asks of an object in memory; None where only the server can say.
    pub fn of_object(dialect: Dialect, object: &Arc<Object>, range: Option<&str>, key: &str) -> Option<Self> {
        let size = object.size_bytes;
        let (status, part, content_range) = match http::asked(range, size) {
            Asked::All => (200, 0..size, String::new()),
            Asked::Part(part) => {
                let text = format!("Content-Range: bytes {}-{}/{size}\r\n", part.start, part.end - 1);
                (206, part, text)
            }
            Asked::Outside => return Some(Self::error(dialect, 416, "InvalidRange", key)),
            Asked::Several => return None,
        };
        let head = format!(
            "HTTP/1.1 {status} {}\r\n{}{content_range}Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
            if status == 200 { "OK" } else { "Partial Content" },
            object.headers,
            part.end - part.start
        );
        let bounds = (part.start, part.end);
        let mut answer = Self::new(status, head.into_bytes(), Body::Object(object.clone()), bounds);
        answer.range = bounds;
        Some(answer)
    }

    /// Only half of the body will go out.
    pub fn disturb(&mut self, fault: Fault) {
        match fault {
            Fault::Cut => self.after = After::Close,
            Fault::Stall => self.after = After::Stall,
            Fault::Error | Fault::Reset => return,
        }
        self.end = self.at + (self.end - self.at) / 2;
    }

    /// Of the body, to the kernel.
    pub fn sent_bytes(&self) -> u64 {
        self.at - self.first
    }

    pub fn left_bytes(&self) -> u64 {
        self.end - self.at
    }

    /// Send what is allowed and what the client takes.
    pub fn step(&mut self, socket: &TcpStream) -> Step {
        match self.try_step(socket) {
            Ok(step) => step,
            Err(Errno::AGAIN) => Step::Blocked,
            Err(_) => Step::Gone,
        }
    }

    fn try_step(&mut self, socket: &TcpStream) -> Result<Step, Errno> {
        if self.head_sent == 0 && self.left_bytes() <= JOINED_MAX.min(self.allowed_bytes) && self.join().is_err() {
            return Ok(Step::Gone);
        }
        while self.head_sent < self.head.len() {
            let more = if self.left_bytes() > 0 { SendFlags::MORE } else { SendFlags::empty() };
            self.head_sent += send(socket, &self.head[self.head_sent..], SendFlags::NOSIGNAL | more)?;
        }
        while self.at < self.end {
            let size = self.left_bytes().min(self.allowed_bytes).min(PIECE_BYTES);
            if size == 0 {
                return Ok(Step::Spent);
            }
            let sent = match &self.body {
                Body::Bytes(bytes) => {
                    send(socket, &bytes[self.at as usize..(self.at + size) as usize], SendFlags::NOSIGNAL)?
                }
                Body::Object(object) => sendfile(socket, &object.file, Some(&mut self.at.clone()), size as usize)?,
            } as u64;
            self.at += sent;
            if self.allowed_bytes != u64::MAX {
                self.allowed_bytes -= sent;
            }
        }
        Ok(Step::Complete)
    }

    /// Put a small body behind the head.
    fn join(&mut self) -> Result<(), Error> {
        let size = self.left_bytes() as usize;
        match &self.body {
            Body::Bytes(bytes) => self.head.extend_from_slice(&bytes[self.at as usize..self.end as usize]),
            Body::Object(object) => {
                let before = self.head.len();
                self.head.resize(before + size, 0);
                object.file.read_exact_at(&mut self.head[before..], self.at)?;
            }
        }
        self.at = self.end;
        Ok(())
    }
}
