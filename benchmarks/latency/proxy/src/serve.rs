//! The loop that serves all clients: one thread, sockets that never block, latency as a heap of moments.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::fd::OwnedFd;

use crate::answer::{After, Answer, Step};
use crate::connection::{next_request, Connection, Exchange};
use crate::control::{Board, State};
use crate::dialect::Dialect;
use crate::http::Request;
use crate::ledger::Record;
use crate::model::Fault;
use crate::objects::{Object, Objects};
use crate::upstream::{Done, Job, Upstream};

const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;
const FETCH: u64 = 1 << 63; // tokens with this bit are fetches of whole objects, others connections
const BACKLOG: i32 = 4096;
const EVENTS: usize = 256;
const INPUT_BYTES: usize = 64 << 10;

/// Requests that wait for the same object.
struct Fetch {
    token: u64,
    moment: u64,
    waiting: Vec<u64>,
}

pub struct Proxy {
    board: Arc<Board>,
    listener: TcpListener,
    upstream: Upstream,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    connections_made: u32,
    timers: BinaryHeap<Reverse<(u64, u64, u64)>>,
    timers_made: u64,
    objects: Objects,
    fetches: HashMap<String, Fetch>,
    fetched_keys: HashMap<u64, String>,
    fetches_made: u64,
    scratch: Vec<u8>,
    server: SocketAddr,
    dialect: Dialect,
}

impl Proxy {
    pub fn new(listener: TcpListener, server: SocketAddr, dialect: Dialect, board: Arc<Board>) -> Result<Self, Error> {
        rustix::net::listen(&listener, BACKLOG)?; // hundreds of connections may be opened at once
        listener.set_nonblocking(true)?;
        let upstream = Upstream::new(server)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, upstream.wake(), epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self {
            board,
            listener,
            upstream,
            epoll,
            connections: Vec::new(),
            free: Vec::new(),
            connections_made: 0,
            timers: BinaryHeap::new(),
            timers_made: 0,
            objects: Objects::default(),
            fetches: HashMap::new(),
            fetched_keys: HashMap::new(),
            fetches_made: 0,
            scratch: vec![0; INPUT_BYTES],
            server,
            dialect,
        })
    }

    /// Serve until the process ends.
    pub fn run(&mut self) -> Result<(), Error> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.timers.peek().map(|Reverse((due_us, _, _))| {
                let left = Duration::from_micros(due_us.saturating_sub(self.board.now_us()));
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
            });
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    WAKE => {
                        for done in self.upstream.take_done() {
                            self.server_answered(done);
                        }
                    }
                    token => self.happened(token, event.flags),
                }
            }
            self.fire();
        }
    }

    // -- connections ---------------------------------------------------------------------------------------------------

    fn accept(&mut self) -> Result<(), Error> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.connections_made += 1;
            let token = u64::from(self.connections_made & 0x3FFF_FFFF) << 32 | index as u64;
            let flags =
                epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(token), flags)?;
            self.connections[index] = Some(Connection::new(socket, token, self.connections_made));
            let mut state = self.board.state();
            state.ledger.counts.connections += 1;
            state.ledger.counts.connections_open += 1;
        }
    }

    fn connection(&mut self, token: u64) -> Option<&mut Connection> {
        let index = (token & 0xFFFF_FFFF) as usize;
        self.connections.get_mut(index)?.as_mut().filter(|connection| connection.token == token)
    }

    /// The client has gone, or is sent away.
    fn drop_connection(&mut self, token: u64, reset: bool) {
        let board = self.board.clone();
        self.drop_noted(token, reset, &mut board.state());
    }

    fn drop_noted(&mut self, token: u64, reset: bool, state: &mut State) {
        let index = (token & 0xFFFF_FFFF) as usize;
        if self.connection(token).is_none() {
            return;
        }
        let connection = self.connections[index].take().expect("it was there");
        self.free.push(index);
        if reset {
            let _ = rustix::net::sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
        }
        let now_us = self.board.now_us();
        state.ledger.counts.connections_open -= 1;
        if let Some(exchange) = connection.exchange {
            let mut record = exchange.record;
            if let Some(answer) = &exchange.answer {
                record.sent_bytes = answer.sent_bytes();
            }
            if record.event.is_empty() {
                record.event = "left";
            }
            record.until_us = now_us;
            let log = state.model.settings().log;
            state.ledger.ended(record, log);
        }
    }

    fn happened(&mut self, token: u64, flags: epoll::EventFlags) {
        if flags.intersects(
            epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
        ) && !self.read(token)
        {
            return self.drop_connection(token, false);
        }
        self.advance(token);
        let blocked = self.connection(token).and_then(|one| one.exchange.as_ref()).is_some_and(|one| one.blocked);
        if flags.contains(epoll::EventFlags::OUT) && blocked {
            self.send(token);
        }
    }

    /// Take in what has come; false at the end of the connection.
    fn read(&mut self, token: u64) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let open = self.connection(token).is_some_and(|connection| loop {
            match connection.socket.read(&mut scratch) {
                Ok(0) => break false,
                Ok(size) => {
                    connection.input.extend_from_slice(&scratch[..size]);
                    if size < scratch.len() {
                        break true;
                    }
                }
                Err(error) => break error.kind() == ErrorKind::WouldBlock,
            }
        });
        self.scratch = scratch;
        open
    }

    // -- requests ------------------------------------------------------------------------------------------------------

    /// Begin with the next request, if it has come as a whole and none is being answered.
    fn advance(&mut self, token: u64) {
        let Some(connection) = self.connection(token) else {
            return;
        };
        if connection.exchange.is_some() {
            return;
        }
        match next_request(connection) {
            Ok(Some((request, bytes))) => self.begin(token, request, bytes),
            Ok(None) => (),
            Err(_) => self.drop_connection(token, true),
        }
    }

    fn begin(&mut self, token: u64, request: Request, bytes: Vec<u8>) {
        let now_us = self.board.now_us();
        let key = self.dialect.key_of(&request.target);
        let mut state = self.board.state();
        let in_flight = state.ledger.began();
        let admitted = state.model.admits(now_us);
        let latency_us = state.model.latency_us();
        let fault = if admitted { state.model.fault(&request.method) } else { None };
        let suffixes = &state.model.settings().fast_suffixes;
        let fast = self.dialect.is_plain_read(&request) && suffixes.iter().any(|one| key.ends_with(one.as_str()));
        let shared_key = state.ledger.key(&key);
        drop(state);
        let received_bytes = (bytes.len() - request.head_bytes) as u64;
        let Some(connection) = self.connection(token) else {
            return;
        };
        let record = Record {
            method: request.method.clone(),
            key: shared_key,
            range: (0, 0),
            status: 0,
            sent_bytes: 0,
            received_bytes,
            from_us: now_us,
            first_us: 0,
            until_us: 0,
            connection: connection.number,
            in_flight,
            fast,
            event: if admitted { fault.map_or("", Fault::name) } else { "throttled" },
        };
        let exchange = Exchange {
            record,
            request,
            bytes,
            latency_us,
            fault,
            timer: 0,
            answer: None,
            sending: false,
            blocked: false,
        };
        connection.exchange = Some(exchange);
        if !admitted {
            self.answer(token, Answer::error(self.dialect, 503, "SlowDown", &key), now_us);
        } else if fault == Some(Fault::Error) {
            self.answer(token, Answer::error(self.dialect, 500, "InternalError", &key), now_us);
        } else if fast {
            match self.objects.get(&key) {
                Some(object) => self.answer_fast(token, &object, now_us),
                None => self.fetch(token, key),
            }
        } else {
            self.pass_on(token);
        }
    }

    fn answer_fast(&mut self, token: u64, object: &Arc<Object>, now_us: u64) {
        let dialect = self.dialect;
        let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_mut()) else {
            return;
        };
        let found = Answer::of_object(dialect, object, exchange.request.range.as_deref(), &exchange.record.key);
        match found {
            Some(answer) => self.answer(token, answer, now_us),
            None => self.pass_on(token),
        }
    }

    /// Ask the server, with the client's own request.
    fn pass_on(&mut self, token: u64) {
        let (dialect, server) = (self.dialect, self.server.to_string());
        let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_mut()) else {
            return;
        };
        exchange.record.fast = false;
        let bytes = std::mem::take(&mut exchange.bytes);
        let changed = dialect.changed_keys(&exchange.request, &exchange.record.key, &bytes);
        let request = dialect.passed_on(bytes, exchange.request.head_bytes, &server);
        let job = Job { token, method: exchange.request.method.clone(), request };
        for key in changed {
            self.forget(&key);
        }
        self.upstream.submit(job);
    }

    /// Somebody changes an object: what was fetched is old, also what is being fetched.
    fn forget(&mut self, key: &str) {
        self.objects.changed(key);
        if let Some(fetch) = self.fetches.remove(key) {
            for token in fetch.waiting {
                self.pass_on(token);
            }
        }
        self.board.state().kept_bytes = self.objects.size_bytes();
    }

    /// Get the whole object, once for all who wait for it.
    fn fetch(&mut self, token: u64, key: String) {
        if let Some(fetch) = self.fetches.get_mut(&key) {
            return fetch.waiting.push(token);
        }
        let server = self.server;
        let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_ref()) else {
            return;
        };
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", exchange.request.target, server);
        self.fetches_made += 1;
        let fetch_token = FETCH | self.fetches_made;
        self.upstream.submit(Job { token: fetch_token, method: "GET".into(), request: request.into_bytes() });
        self.fetched_keys.insert(fetch_token, key.clone());
        let fetch = Fetch { token: fetch_token, moment: self.objects.moment(), waiting: vec![token] };
        self.fetches.insert(key, fetch);
    }

    // -- answers -------------------------------------------------------------------------------------------------------

    fn server_answered(&mut self, done: Done) {
        if done.token & FETCH != 0 {
            return self.fetched(done);
        }
        let Some(exchange) = self.connection(done.token).and_then(|one| one.exchange.as_ref()) else {
            return;
        };
        let key = exchange.record.key.clone();
        if exchange.request.method != "GET" && exchange.request.method != "HEAD" {
            self.forget(&key);
        }
        let answer = match done.answer {
            Ok(answer) => Answer::of_server(answer),
            Err(message) => {
                let _ = writeln!(std::io::stderr(), "latency-proxy: {key}: {message}");
                Answer::error(self.dialect, 502, "BadGateway", &key)
            }
        };
        let now_us = self.board.now_us();
        self.answer(done.token, answer, now_us);
    }

    fn fetched(&mut self, done: Done) {
        let Some(key) = self.fetched_keys.remove(&done.token) else {
            return;
        };
        if self.fetches.get(&key).is_none_or(|fetch| fetch.token != done.token) {
            return; // the object has changed since
        }
        let fetch = self.fetches.remove(&key).expect("it was there");
        let found = done
            .answer
            .ok()
            .filter(|answer| answer.status == 200)
            .and_then(|answer| Object::new(&answer.bytes[answer.head_bytes..], &answer.object_lines).ok());
        let Some(object) = found.map(Arc::new) else {
            for token in fetch.waiting {
                self.pass_on(token);
            }
            return;
        };
        let mut state = self.board.state();
        self.objects.put(&key, object.clone(), fetch.moment, state.model.settings().cache_bytes);
        state.kept_bytes = self.objects.size_bytes();
        drop(state);
        let now_us = self.board.now_us();
        for token in fetch.waiting {
            self.answer_fast(token, &object, now_us);
        }
    }

    /// The answer is known: it begins when its latency is over.
    fn answer(&mut self, token: u64, mut answer: Answer, now_us: u64) {
        let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_mut()) else {
            return;
        };
        exchange.record.status = answer.status;
        exchange.record.range = answer.range;
        if let Some(fault) = exchange.fault {
            answer.disturb(fault);
        }
        if exchange.request.closes && answer.after == After::Keep {
            answer.after = After::Close;
        }
        let due_us = now_us + exchange.latency_us;
        exchange.answer = Some(answer);
        self.wake_at(token, due_us);
    }

    fn wake_at(&mut self, token: u64, due_us: u64) {
        self.timers_made += 1;
        let timer = self.timers_made;
        if let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_mut()) {
            exchange.timer = timer;
            self.timers.push(Reverse((due_us, timer, token)));
        }
    }

    fn fire(&mut self) {
        let now_us = self.board.now_us();
        while let Some(Reverse((due_us, timer, token))) = self.timers.peek().copied() {
            if due_us > now_us {
                return;
            }
            self.timers.pop();
            let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_mut()) else {
                continue;
            };
            if exchange.timer == timer {
                self.due(token, now_us);
            }
        }
    }

    /// What an exchange waited for has come: its latency is over, its bytes have passed, or it has stalled long enough.
    fn due(&mut self, token: u64, now_us: u64) {
        let Some(exchange) = self.connection(token).and_then(|one| one.exchange.as_mut()) else {
            return;
        };
        let Some(answer) = exchange.answer.as_mut() else { return };
        let stalled = answer.after == After::Stall && exchange.sending && answer.left_bytes() == 0;
        if stalled || exchange.fault == Some(Fault::Reset) {
            if !stalled {
                exchange.record.status = 0;
            }
            return self.drop_connection(token, true);
        }
        if !exchange.sending {
            exchange.sending = true;
            exchange.record.first_us = now_us;
            if self.board.state().model.piece_bytes().is_some() {
                let exchange = self.connection(token).and_then(|one| one.exchange.as_mut());
                exchange.and_then(|one| one.answer.as_mut()).expect("it was there").allowed_bytes = 0;
            }
        }
        self.send(token);
    }

    /// Send what may go out. Who has the whole answer finds it in the log: it is noted before anybody can look.
    fn send(&mut self, token: u64) {
        let board = self.board.clone();
        let mut state = board.state();
        let Some(connection) = self.connection(token) else { return };
        let Some(exchange) = connection.exchange.as_mut() else { return };
        let Some(answer) = exchange.answer.as_mut() else { return };
        exchange.blocked = false;
        loop {
            match answer.step(&connection.socket) {
                Step::Blocked => {
                    exchange.blocked = true;
                    return;
                }
                Step::Gone => return self.drop_noted(token, false, &mut state),
                Step::Spent => {
                    let now_us = board.now_us();
                    let size = state.model.piece_bytes().unwrap_or(u64::MAX).min(answer.left_bytes());
                    let due_us = state.model.passed_at_us(&mut connection.clock_us, size, now_us);
                    answer.allowed_bytes = size;
                    if due_us > now_us {
                        return self.wake_at(token, due_us);
                    }
                }
                Step::Complete => break,
            }
        }
        match answer.after {
            After::Keep => {
                self.completed(token, &mut state);
                drop(state);
                self.advance(token);
            }
            After::Close => {
                if exchange.fault.is_none() {
                    self.completed(token, &mut state); // the end of the connection is all that is special about it
                }
                self.drop_noted(token, false, &mut state);
            }
            After::Stall => {
                let stall_us = (state.model.settings().faults.stall_ms * 1e3) as u64;
                self.wake_at(token, board.now_us() + stall_us);
            }
        }
    }

    /// The whole answer has gone out.
    fn completed(&mut self, token: u64, state: &mut State) {
        let now_us = self.board.now_us();
        let Some(exchange) = self.connection(token).and_then(|connection| connection.exchange.take()) else { return };
        let mut record = exchange.record;
        record.sent_bytes = exchange.answer.map_or(0, |answer| answer.sent_bytes());
        record.until_us = now_us;
        let log = state.model.settings().log;
        state.ledger.ended(record, log);
    }
}
