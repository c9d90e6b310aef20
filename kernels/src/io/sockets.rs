//! Sockets that carry GETs of ranges; one call reads the data of all ready sockets.
//!
//! Only the usual answer is parsed here, see `http.rs`. Everything else is returned to the caller with the bytes
//! received so far, and the caller continues on the same socket.

use crate::buffer::{borrow_fd, Output};
use crate::io::http::plain_part;
use crate::room::{filled, py_bytes, vec_with_capacity, Gather, GatherResults, Grow};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::epoll;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::{retry_on_intr, Errno};
use rustix::net::{recv, send, RecvFlags, SendFlags};
use rustix::time::Timespec;

/// Sockets that one call processes.
const READY_MAX: usize = 1024;
/// Bytes of large bodies that one call receives, plus at most one socket's turn: some milliseconds, which delay the
/// event loop. If the loop was busy longer than that, more data has arrived, and a call may take a share of that time.
const CALL_BYTES: usize = 4 << 20;
const CALL_BYTES_PER_S: f64 = 128e6;
const CALL_BYTES_MAX: f64 = 32e6;
/// Bytes that one socket receives per call, so that one large body does not delay the others.
const TURN_BYTES_MAX: usize = 256 << 10;
/// Bytes that are read for the head of a large answer.
const HEAD_READ_BYTES: usize = 4 << 10;

/// A socket, and the answer that is expected on it.
struct Carrier {
    /// Keeps the descriptor open.
    _socket: Py<PyAny>,
    fd: RawFd,
    answer: Option<Expected>,
}

struct Expected {
    start: u64,
    end: u64,
    is_large: bool,
    has_begun: bool,
    received: usize,
    body: Body,
    heard_s: f64,
}

/// The destination of a body.
enum Body {
    Placed(Output),
    /// Kept here: no part of it has arrived, or not all.
    Kept(Vec<u8>),
}

impl Expected {
    fn length(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Memory for the missing bytes.
    fn room(&mut self) -> &mut [u8] {
        let (length, received) = (self.length(), self.received);
        match &mut self.body {
            Body::Placed(memory) => &mut memory.bytes_mut()[received..],
            Body::Kept(bytes) => {
                bytes.resize(length, 0); // room: at most `small_bytes_max`
                &mut bytes[received..]
            }
        }
    }

    /// The received bytes of a body that is kept here.
    fn kept(self) -> Option<Vec<u8>> {
        match self.body {
            Body::Placed(_) => None,
            Body::Kept(mut bytes) => {
                bytes.truncate(self.received);
                Some(bytes)
            }
        }
    }
}

/// An event on a socket. A complete answer is moved out with it: its memory is Python's, and released under the GIL.
enum News {
    /// Data that is not processed here.
    Ready,
    /// The head of the usual answer has arrived, but not all of its body.
    Begun { size: u64, etag: Option<String> },
    /// The answer is complete; with its head, unless that was reported before.
    Complete { head: Option<(u64, Option<String>)>, answer: Expected },
    /// The first bytes are not those of the usual answer.
    Unusual(Vec<u8>),
    /// The connection ended before the answer, with or without a system error.
    Broken(Option<Errno>),
}

const READY: u8 = 0;
const BEGUN: u8 = 1;
const COMPLETE: u8 = 2;
const UNUSUAL: u8 = 3;
const BROKEN: u8 = 4;

type Told<'py> = (usize, u8, Option<u64>, Option<String>, Option<Bound<'py, PyBytes>>);

/// `RangeSockets` of `_kernels.pyi`.
#[pyclass(module = "lance_io._kernels")]
pub struct RangeSockets {
    poll: OwnedFd,
    carriers: Vec<Option<Carrier>>,
    free: Vec<usize>,
    scratch: Vec<u8>,
    /// Maximum size of a small body.
    small_bytes_max: usize,
    /// In the next call, large bodies are read from this socket on.
    next: usize,
    /// Time of the last call.
    called_s: f64,
}

impl RangeSockets {
    fn carrier(&mut self, slot: usize) -> PyResult<&mut Carrier> {
        let found = self.carriers.get_mut(slot).and_then(Option::as_mut);
        found.ok_or_else(|| PyValueError::new_err(format!("no socket has the number {slot}")))
    }
}

#[pymethods]
impl RangeSockets {
    #[new]
    #[pyo3(signature = (small_bytes_max, scratch_bytes, /))]
    fn new(small_bytes_max: usize, scratch_bytes: usize) -> PyResult<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        Ok(RangeSockets {
            poll,
            carriers: Vec::new(),
            free: Vec::new(),
            scratch: filled(0, scratch_bytes.max(HEAD_READ_BYTES))?,
            small_bytes_max,
            next: 0,
            called_s: f64::INFINITY,
        })
    }

    fn fileno(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    #[pyo3(signature = (socket, /))]
    fn add(&mut self, socket: &Bound<'_, PyAny>) -> PyResult<usize> {
        let fd: RawFd = socket.call_method0("fileno")?.extract()?;
        let slot = self.free.last().copied().unwrap_or(self.carriers.len());
        let data = epoll::EventData::new_u64(slot as u64);
        epoll::add(&self.poll, borrow_fd(&fd)?, data, epoll::EventFlags::IN).map_err(failed)?;
        let carrier = Some(Carrier { _socket: socket.clone().unbind(), fd, answer: None }); // room: a reference
        if self.free.pop().is_some() {
            self.carriers[slot] = carrier;
        } else {
            self.carriers.try_push(carrier)?;
        }
        Ok(slot)
    }

    #[pyo3(signature = (slot, /))]
    fn remove(&mut self, slot: usize) -> PyResult<()> {
        let fd = self.carrier(slot)?.fd;
        self.carriers[slot] = None;
        self.free.try_push(slot)?;
        epoll::delete(&self.poll, borrow_fd(&fd)?).map_err(failed)
    }

    #[pyo3(signature = (gets, now_s, /))]
    #[allow(clippy::type_complexity)]
    fn send(
        &mut self,
        py: Python<'_>,
        gets: Vec<(usize, Bound<'_, PyBytes>, u64, u64, Option<Bound<'_, PyAny>>)>,
        now_s: f64,
    ) -> PyResult<Vec<(usize, usize, i32)>> {
        let mut heads = vec_with_capacity(gets.len())?;
        for (slot, head, start, end, memory) in &gets {
            let length = end.checked_sub(*start).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
            let body = match memory {
                Some(memory) => {
                    let mut memory = Output::new(memory)?;
                    if length == 0 || memory.bytes_mut().len() != length {
                        return Err(PyValueError::new_err(format!("no memory of the {length} bytes of a range")));
                    }
                    Body::Placed(memory)
                }
                None if length == 0 || length > self.small_bytes_max => {
                    return Err(PyValueError::new_err(format!("a range of {length} bytes needs memory")));
                }
                None => Body::Kept(Vec::new()),
            };
            let is_large = length > self.small_bytes_max;
            let carrier = self.carrier(*slot)?;
            if carrier.answer.is_some() {
                return Err(PyValueError::new_err(format!("socket {slot} has a request under way")));
            }
            let (start, end) = (*start, *end);
            carrier.answer =
                Some(Expected { start, end, is_large, has_begun: false, received: 0, body, heard_s: now_s });
            heads.try_push((*slot, carrier.fd, head.as_bytes()))?;
        }
        let unsent = py.detach(|| heads.into_iter().filter_map(send_head).try_vec())?;
        for (slot, _, _) in &unsent {
            self.carrier(*slot)?.answer = None;
        }
        Ok(unsent)
    }

    #[pyo3(signature = (now_s, /))]
    fn receive<'py>(&mut self, py: Python<'py>, now_s: f64) -> PyResult<Vec<Told<'py>>> {
        let (poll, carriers, scratch) = (&self.poll, &mut self.carriers, self.scratch.as_mut_slice());
        let next = &mut self.next;
        let passed_bytes = ((now_s - self.called_s) * CALL_BYTES_PER_S).min(CALL_BYTES_MAX);
        let call_bytes = CALL_BYTES.max(passed_bytes as usize); // a cast saturates
        self.called_s = now_s;
        let news = py.detach(|| -> Result<Vec<_>, Errno> {
            let mut ready = Vec::with_capacity(READY_MAX);
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            retry_on_intr(|| {
                ready.clear();
                epoll::wait(poll, rustix::buffer::spare_capacity(&mut ready), Some(&at_once))
            })?;
            // First the cheap and most urgent work: small answers, and heads.
            // room: at most `READY_MAX`, here and below
            let (mut news, mut large, mut num_bytes) = (Vec::with_capacity(ready.len()), Vec::new(), 0);
            for slot in ready.iter().map(|event| event.data.u64() as usize) {
                let Some(carrier) = carriers.get_mut(slot).and_then(Option::as_mut) else {
                    continue;
                };
                let Some(answer) = carrier.answer.as_mut() else {
                    news.push((slot, News::Ready)); // room: a few
                    continue;
                };
                answer.heard_s = now_s;
                if !answer.has_begun {
                    // room: a few
                    news.extend(read_head(carrier, scratch, &mut num_bytes).map(|told| (slot, told)));
                } else if !answer.is_large {
                    // room: a few
                    news.extend(read_body(carrier, &mut num_bytes).map(|told| (slot, told)));
                }
                if carrier.answer.as_ref().is_some_and(|answer| answer.has_begun && answer.is_large) {
                    large.push(slot); // room: a few
                }
            }
            // Then large bodies, from where the previous call stopped, because not all of them may get a turn.
            large.sort_unstable();
            let first = large.partition_point(|&slot| slot < *next);
            large.rotate_left(first);
            for slot in large {
                if num_bytes >= call_bytes {
                    break; // left to the next call
                }
                if let Some(carrier) = carriers[slot].as_mut() {
                    // room: a few
                    news.extend(read_body(carrier, &mut num_bytes).map(|told| (slot, told)));
                }
                *next = slot + 1;
            }
            Ok(news)
        });
        let news = news.map_err(failed)?;
        for (slot, _) in news.iter().filter(|(_, news)| matches!(news, News::Unusual(_))) {
            self.carrier(*slot)?.answer = None;
        }
        let kept = |answer: Expected| answer.kept().map(|bytes| py_bytes(py, &bytes)).transpose();
        let told = |(slot, news)| {
            Ok(match news {
                News::Ready => (slot, READY, None, None, None),
                News::Begun { size, etag } => (slot, BEGUN, Some(size), etag, None),
                News::Complete { head, answer } => {
                    let (size, etag) = head.map_or((None, None), |(size, etag)| (Some(size), etag));
                    (slot, COMPLETE, size, etag, kept(answer)?)
                }
                News::Unusual(bytes) => (slot, UNUSUAL, None, None, Some(py_bytes(py, &bytes)?)),
                News::Broken(error) => (slot, BROKEN, error.map(|error| error.raw_os_error() as u64), None, None),
            })
        };
        news.into_iter().map(told).try_vec_of()
    }

    #[pyo3(signature = (slot, /))]
    fn give_back<'py>(
        &mut self,
        py: Python<'py>,
        slot: usize,
    ) -> PyResult<Option<(usize, Option<Bound<'py, PyBytes>>)>> {
        let answer = self.carrier(slot)?.answer.take();
        answer
            .map(|answer| {
                let received = answer.received;
                Ok((received, answer.kept().map(|bytes| py_bytes(py, &bytes)).transpose()?))
            })
            .transpose()
    }

    #[pyo3(signature = (slot, /))]
    fn heard_s(&mut self, slot: usize) -> PyResult<Option<f64>> {
        Ok(self.carrier(slot)?.answer.as_ref().map(|answer| answer.heard_s))
    }
}

/// Nothing if the head is sent completely; otherwise the slot, the number of bytes sent, and a system error or 0.
fn send_head((slot, fd, head): (usize, RawFd, &[u8])) -> Option<(usize, usize, i32)> {
    let Ok(fd) = borrow_fd(&fd) else {
        return Some((slot, 0, Errno::BADF.raw_os_error()));
    };
    match retry_on_intr(|| send(fd, head, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
        Ok(sent) if sent == head.len() => None,
        Ok(sent) => Some((slot, sent, 0)),
        Err(Errno::AGAIN) => Some((slot, 0, 0)),
        Err(error) => Some((slot, 0, error.raw_os_error())),
    }
}

/// Read the head of an answer, and the bytes that arrive with it.
fn read_head(carrier: &mut Carrier, scratch: &mut [u8], num_bytes: &mut usize) -> Option<News> {
    let answer = carrier.answer.as_mut()?;
    let most = if answer.is_large { HEAD_READ_BYTES } else { scratch.len() };
    let here = match receive_into(carrier.fd, &mut scratch[..most]) {
        Ok(0) => return Some(News::Broken(None)),
        Ok(here) => here,
        Err(Errno::AGAIN) => return None,
        Err(error) => return Some(News::Broken(Some(error))),
    };
    *num_bytes += here;
    let found = plain_part(&scratch[..here], answer.start, answer.end);
    let Some((head_bytes, size, etag)) = found.filter(|(head_bytes, _, _)| here - head_bytes <= answer.length()) else {
        return Some(News::Unusual(scratch[..here].to_vec())); // room: at most `scratch_bytes`
    };
    answer.has_begun = true;
    let came = &scratch[head_bytes..here];
    answer.room()[..came.len()].copy_from_slice(came);
    answer.received = came.len();
    if answer.received == answer.length() {
        let head = Some((size, etag));
        return carrier.answer.take().map(|answer| News::Complete { head, answer });
    }
    Some(News::Begun { size, etag })
}

/// Read the available bytes of a body, within its turn.
fn read_body(carrier: &mut Carrier, num_bytes: &mut usize) -> Option<News> {
    let answer = carrier.answer.as_mut()?;
    let room = answer.room();
    let most = room.len().min(TURN_BYTES_MAX);
    match receive_into(carrier.fd, &mut room[..most]) {
        Ok(0) => return Some(News::Broken(None)),
        Ok(here) => {
            *num_bytes += here;
            answer.received += here;
        }
        Err(Errno::AGAIN) => return None,
        Err(error) => return Some(News::Broken(Some(error))),
    }
    if answer.received < answer.length() {
        return None;
    }
    carrier.answer.take().map(|answer| News::Complete { head: None, answer })
}

fn receive_into(fd: RawFd, room: &mut [u8]) -> Result<usize, Errno> {
    let fd = borrow_fd(&fd).map_err(|_| Errno::BADF)?;
    retry_on_intr(|| recv(fd, &mut *room, RecvFlags::DONTWAIT)).map(|(here, _)| here)
}

fn failed(error: Errno) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}
