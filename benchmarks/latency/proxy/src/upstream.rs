//! Exchanges with the server behind, on threads of their own, each with a connection that it keeps.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::event::{eventfd, EventfdFlags};
use rustix::fd::OwnedFd;

use crate::http::{self, Length};

const THREADS_MAX: usize = 64;
const PIECE_BYTES: usize = 256 << 10;

/// What a thread shall do.
pub struct Job {
    /// Given back with the answer.
    pub token: u64,
    pub method: String,
    /// Head and body, as they go out.
    pub request: Vec<u8>,
}

/// What the server said: head and body as they came.
pub struct Answer {
    pub status: u16,
    pub bytes: Vec<u8>,
    pub head_bytes: usize,
    pub closes: bool,
    pub object_lines: String,
}

/// The end of a job.
pub struct Done {
    pub token: u64,
    pub answer: Result<Answer, String>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

struct Shared {
    server: SocketAddr,
    queue: Mutex<Queue>,
    more: Condvar,
    done: Mutex<Vec<Done>>,
    wake: OwnedFd,
}

/// The threads; `wake` becomes readable when `take_done` has something.
pub struct Upstream(Arc<Shared>);

impl Upstream {
    pub fn new(server: SocketAddr) -> Result<Self, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared {
            server,
            queue: Mutex::default(),
            more: Condvar::new(),
            done: Mutex::default(),
            wake,
        })))
    }

    pub fn wake(&self) -> &OwnedFd {
        &self.0.wake
    }

    pub fn submit(&self, job: Job) {
        let mut queue = self.0.queue.lock().unwrap();
        queue.jobs.push_back(job);
        if queue.idle < queue.jobs.len() && queue.threads < THREADS_MAX {
            queue.threads += 1;
            let shared = self.0.clone();
            thread::spawn(move || shared.work());
        }
        drop(queue);
        self.0.more.notify_one();
    }

    pub fn take_done(&self) -> Vec<Done> {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
        std::mem::take(&mut self.0.done.lock().unwrap())
    }
}

impl Shared {
    fn work(&self) {
        let mut connection = None;
        loop {
            let job = self.next();
            let answer = self.exchange(&mut connection, &job).map_err(|error| error.to_string());
            self.done.lock().unwrap().push(Done { token: job.token, answer });
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn next(&self) -> Job {
        let mut queue = self.queue.lock().unwrap();
        queue.idle += 1;
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.idle -= 1;
                return job;
            }
            queue = self.more.wait(queue).unwrap();
        }
    }

    /// Ask, once more on a new connection if the server had closed the old one meanwhile.
    fn exchange(&self, connection: &mut Option<TcpStream>, job: &Job) -> Result<Answer, Error> {
        if let Some(mut kept) = connection.take() {
            match ask(&mut kept, job) {
                Ok(Some(answer)) => {
                    *connection = (!answer.closes).then_some(kept);
                    return Ok(answer);
                }
                Ok(None) => (),
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => (),
                Err(error) => return Err(error),
            }
        }
        let mut fresh = TcpStream::connect(self.server)?;
        fresh.set_nodelay(true)?;
        let answer = ask(&mut fresh, job)?.ok_or_else(|| Error::other("the server closed the connection"))?;
        *connection = (!answer.closes).then_some(fresh);
        Ok(answer)
    }
}

/// One exchange; None where the connection was closed before anything came.
fn ask(stream: &mut TcpStream, job: &Job) -> Result<Option<Answer>, Error> {
    let broken = |text: String| Error::new(ErrorKind::InvalidData, text);
    stream.write_all(&job.request)?;
    let mut bytes = Vec::new();
    let head = loop {
        match http::response(&bytes, &job.method).map_err(broken)? {
            Some(head) if head.status < 200 => drop(bytes.drain(..head.head_bytes)),
            Some(head) => break head,
            None if read_more(stream, &mut bytes, PIECE_BYTES)? > 0 => (),
            None if bytes.is_empty() => return Ok(None),
            None => return Err(ErrorKind::UnexpectedEof.into()),
        }
    };
    match head.body {
        Length::Known(size) => {
            let end = head.head_bytes + size;
            bytes.reserve(end.saturating_sub(bytes.len()));
            while bytes.len() < end {
                let wanted = (end - bytes.len()).min(4 * PIECE_BYTES);
                if read_more(stream, &mut bytes, wanted)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Length::Chunked => {
            let mut chunks = http::Chunks::default();
            while chunks.end(&bytes[head.head_bytes..]).map_err(broken)?.is_none() {
                if read_more(stream, &mut bytes, PIECE_BYTES)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Length::UntilClose => while read_more(stream, &mut bytes, PIECE_BYTES)? > 0 {},
    }
    Ok(Some(Answer {
        status: head.status,
        bytes,
        head_bytes: head.head_bytes,
        closes: head.closes,
        object_lines: head.object_lines,
    }))
}

fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>, size: usize) -> Result<usize, Error> {
    let before = bytes.len();
    bytes.resize(before + size, 0);
    let read = stream.read(&mut bytes[before..]);
    bytes.truncate(before + *read.as_ref().unwrap_or(&0));
    read
}
