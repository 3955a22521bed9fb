//! One worker: a ring, its connections, and the reads in flight.
//!
//! A `get` takes a slot: a block of the registered buffer and the name to be answered. A connection's slots
//! are answered in the order of its requests. All slots that are ready after a batch of completions go out in
//! one send, and a connection has one send in flight.
//!
//! Invariant: a slot's memory and a connection's output are not touched between the submission of an
//! operation on them and its completion. A connection is forgotten only when no operation on it is in flight.

use std::collections::VecDeque;
use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{IoUring, cqueue, opcode, squeue};
use memchr::memchr;

use crate::pages::Pages;

/// Bytes that one request reads.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Longest value, in bytes: one block.
pub(crate) const MAX_VALUE_BYTES: usize = BLOCK_BYTES;
/// Reads in flight on one worker.
const SLOTS: usize = 4096;
/// Connections of one worker.
const MAX_CONNECTIONS: usize = 16_384;
/// Buffers for received bytes; they are returned before the worker waits for the next batch.
const RECEIVE_BUFFERS: u16 = 1024;
const RECEIVE_BYTES: usize = 4096;
/// Longest name, in bytes.
const KEY_BYTES: usize = 250;
/// Index of the data file in the ring's table of files; connection `n` has index `n + 1`.
const FILE: Fixed = Fixed(0);
const BUFFER_GROUP: u16 = 0;
const RING_ENTRIES: u32 = 4096;

/// Settings from the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) blocks: u64,
    pub(crate) value_bytes: usize,
}

/// Kinds of operations, in the upper half of their tags.
const RECEIVE: u64 = 1 << 32;
const READ: u64 = 2 << 32;
const SEND: u64 = 3 << 32;
const INBOX: u64 = 4 << 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Reading,
    Value,
    Failed,
    Unknown,
}

/// One request.
struct Slot {
    connection: u32,
    answer: Answer,
    key_bytes: u8,
    key: [u8; KEY_BYTES],
}

#[derive(Default)]
struct Connection {
    socket: Option<OwnedFd>,
    /// Requests in order, by slot.
    requests: VecDeque<u32>,
    /// Start of a line whose end has not arrived.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    sending: bool,
    receiving: bool,
    /// Reads in flight.
    reading: u32,
    /// Whether the connection is closed once nothing is in flight.
    ending: bool,
    /// Whether the connection is listed in `Worker::ready`.
    listed: bool,
}

/// A worker's state. Belongs to the thread that made it.
pub(crate) struct Worker {
    ring: IoUring,
    settings: Settings,
    // Dropped after the ring, which has their addresses.
    blocks: Pages,
    receive_ring: Pages,
    receive_buffers: Pages,
    receive_tail: u16,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    connections: Vec<Connection>,
    free_connections: Vec<u32>,
    /// Connections that may have output to send.
    ready: Vec<u32>,
    random: u64,
    header_tail: Vec<u8>,
    inbox: PipeReader,
    inbox_word: Box<[u8; 4]>,
    _file: OwnedFd,
}

impl Worker {
    /// Returns a worker that reads `file` and takes connections, as descriptor numbers, from `inbox`.
    pub(crate) fn new(
        file: OwnedFd,
        inbox: PipeReader,
        settings: Settings,
        seed: u64,
    ) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_cqsize(RING_ENTRIES * 4)
            .build(RING_ENTRIES)?;
        let blocks = Pages::new(SLOTS * BLOCK_BYTES)?;
        let ring_bytes = usize::from(RECEIVE_BUFFERS) * size_of::<BufRingEntry>();
        let receive_ring = Pages::new(ring_bytes)?;
        let receive_buffers = Pages::new(usize::from(RECEIVE_BUFFERS) * RECEIVE_BYTES)?;
        let submitter = ring.submitter();
        submitter.register_files_sparse(MAX_CONNECTIONS as u32 + 1)?;
        submitter.register_files_update(0, &[file.as_raw_fd()])?;
        // SAFETY: the mapping lives as long as the ring, and stays where it is.
        unsafe { submitter.register_buffers(&[blocks.whole()])? };
        let address = receive_ring.at(0) as u64;
        // SAFETY: the mapping holds that many entries, is page-aligned, and outlives the ring.
        unsafe {
            submitter.register_buf_ring_with_flags(address, RECEIVE_BUFFERS, BUFFER_GROUP, 0)?;
        }
        let slot = || Slot {
            connection: 0,
            answer: Answer::Reading,
            key_bytes: 0,
            key: [0; KEY_BYTES],
        };
        let mut worker = Self {
            ring,
            settings,
            blocks,
            receive_ring,
            receive_buffers,
            receive_tail: 0,
            slots: (0..SLOTS).map(|_| slot()).collect(),
            free_slots: (0..SLOTS as u32).rev().collect(),
            connections: Vec::new(),
            free_connections: Vec::new(),
            ready: Vec::new(),
            random: 0x9E37_79B9_7F4A_7C15 ^ (seed << 17 | 1),
            header_tail: format!(" 0 {}\r\n", settings.value_bytes).into_bytes(),
            inbox,
            inbox_word: Box::new([0; 4]),
            _file: file,
        };
        for buffer in 0..RECEIVE_BUFFERS {
            worker.give_back(buffer);
        }
        Ok(worker)
    }

    /// Serves for ever. After an error the worker must not be dropped: operations may be in flight.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        self.await_connection()?;
        let mut batch: Vec<cqueue::Entry> = Vec::with_capacity(RING_ENTRIES as usize);
        loop {
            self.ring
                .submit_and_wait(1)
                .or_else(|error| match error.raw_os_error() {
                    Some(libc::EINTR | libc::EBUSY) => Ok(0),
                    _ => Err(error),
                })?;
            batch.extend(self.ring.completion());
            for entry in batch.drain(..) {
                let index = entry.user_data() as u32;
                match entry.user_data() & !u64::from(u32::MAX) {
                    RECEIVE => self.received(index, &entry)?,
                    READ => self.read(index, entry.result()),
                    SEND => self.sent(index, entry.result())?,
                    _ => self.connected(entry.result())?,
                }
            }
            while let Some(index) = self.ready.pop() {
                self.connections[index as usize].listed = false;
                self.answer(index)?;
            }
        }
    }

    /// Queues an operation, whose memory the caller keeps alive until it completes.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: by the invariant at the head of this file, the memory that the entry points to stays in
        // place, and is not touched, until its completion has been seen.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn await_connection(&mut self) -> io::Result<()> {
        let fd = io_uring::types::Fd(self.inbox.as_raw_fd());
        let entry = opcode::Read::new(fd, self.inbox_word.as_mut_ptr(), 4).build();
        self.push(&entry.user_data(INBOX))
    }

    /// Takes a connection that the acceptor has passed on.
    fn connected(&mut self, result: i32) -> io::Result<()> {
        if result != 4 {
            return Err(io::Error::other(format!("the acceptor is gone ({result})")));
        }
        // SAFETY: the acceptor gives up the descriptor when it writes its number, and writes each
        // number once.
        let socket = unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(*self.inbox_word)) };
        let index = match self.free_connections.pop() {
            Some(index) => index,
            None if self.connections.len() == MAX_CONNECTIONS => return self.await_connection(),
            None => {
                self.connections.push(Connection::default());
                self.connections.len() as u32 - 1
            }
        };
        self.ring
            .submitter()
            .register_files_update(index + 1, &[socket.as_raw_fd()])?;
        self.connections[index as usize].socket = Some(socket);
        self.receive(index)?;
        self.await_connection()
    }

    fn receive(&mut self, index: u32) -> io::Result<()> {
        self.connections[index as usize].receiving = true;
        let entry = opcode::RecvMulti::new(Fixed(index + 1), BUFFER_GROUP).build();
        self.push(&entry.user_data(RECEIVE | u64::from(index)))
    }

    /// Takes received bytes, or the end of the stream.
    fn received(&mut self, index: u32, entry: &cqueue::Entry) -> io::Result<()> {
        let mut usable = entry.result() > 0;
        if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
            let address = self.receive_buffers.at(usize::from(buffer) * RECEIVE_BYTES);
            // SAFETY: the kernel has filled that many bytes of this buffer, and writes to it again only after
            // `give_back`.
            let bytes =
                unsafe { std::slice::from_raw_parts(address, entry.result().max(0) as usize) };
            usable &= self.parse(index, bytes)?;
            self.give_back(buffer);
        }
        let no_buffers = entry.result() == -libc::ENOBUFS;
        let connection = &mut self.connections[index as usize];
        if !cqueue::more(entry.flags()) {
            connection.receiving = false;
        }
        if !usable && !no_buffers {
            self.end(index);
        }
        let connection = &self.connections[index as usize];
        if !connection.receiving && !connection.ending {
            self.receive(index)?;
        }
        self.forget_if_idle(index);
        Ok(())
    }

    /// Returns a receive buffer to the kernel.
    fn give_back(&mut self, buffer: u16) {
        let position = usize::from(self.receive_tail & (RECEIVE_BUFFERS - 1));
        let entry = self.receive_ring.at(position * size_of::<BufRingEntry>());
        let address = self.receive_buffers.at(usize::from(buffer) * RECEIVE_BYTES);
        self.receive_tail = self.receive_tail.wrapping_add(1);
        // SAFETY: the entry lies in the mapped ring, is aligned, and is not read by the kernel
        // before the tail says so. The tail is a field of the first entry that entries leave alone.
        unsafe {
            let entry = &mut *entry.cast::<BufRingEntry>();
            entry.set_addr(address as u64);
            entry.set_len(RECEIVE_BYTES as u32);
            entry.set_bid(buffer);
            let tail = BufRingEntry::tail(self.receive_ring.at(0).cast_const().cast());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.receive_tail, Ordering::Release);
        }
    }

    /// Parses the requests in received bytes. Returns false if the connection must end.
    fn parse(&mut self, index: u32, bytes: &[u8]) -> io::Result<bool> {
        let mut input = std::mem::take(&mut self.connections[index as usize].input);
        let continued = !input.is_empty();
        if continued {
            input.extend_from_slice(bytes);
        }
        let mut rest = if continued { &input[..] } else { bytes };
        while let Some(end) = memchr(b'\n', rest) {
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = &rest[end + 1..];
            if line == b"quit" || !self.request(index, line)? {
                return Ok(false);
            }
        }
        let left = rest.len();
        if left > RECEIVE_BYTES {
            return Ok(false);
        }
        if continued {
            input.drain(..input.len() - left);
        } else {
            input.extend_from_slice(&bytes[bytes.len() - left..]);
        }
        self.connections[index as usize].input = input;
        Ok(true)
    }

    /// Starts one request. Returns false if no slot is free.
    fn request(&mut self, index: u32, line: &[u8]) -> io::Result<bool> {
        let Some(slot_index) = self.free_slots.pop() else {
            return Ok(false);
        };
        let slot = &mut self.slots[slot_index as usize];
        slot.connection = index;
        let key = line
            .strip_prefix(b"get ")
            .filter(|key| key.len() <= KEY_BYTES);
        let connection = &mut self.connections[index as usize];
        connection.requests.push_back(slot_index);
        let Some(key) = key else {
            slot.answer = Answer::Unknown;
            self.list(index);
            return Ok(true);
        };
        slot.answer = Answer::Reading;
        slot.key_bytes = key.len() as u8;
        slot.key[..key.len()].copy_from_slice(key);
        connection.reading += 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let block = (u128::from(self.random) * u128::from(self.settings.blocks)) >> 64;
        let buffer = self.blocks.at(slot_index as usize * BLOCK_BYTES);
        let entry = opcode::ReadFixed::new(FILE, buffer, BLOCK_BYTES as u32, 0)
            .offset(block as u64 * BLOCK_BYTES as u64)
            .build();
        self.push(&entry.user_data(READ | u64::from(slot_index)))?;
        Ok(true)
    }

    /// Notes the end of a block's read.
    fn read(&mut self, slot_index: u32, result: i32) {
        let slot = &mut self.slots[slot_index as usize];
        let whole = result == BLOCK_BYTES as i32;
        slot.answer = if whole { Answer::Value } else { Answer::Failed };
        let index = slot.connection;
        self.connections[index as usize].reading -= 1;
        self.list(index);
    }

    fn list(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.listed {
            connection.listed = true;
            self.ready.push(index);
        }
    }

    /// Sends the answers that are ready, in the order of the requests.
    fn answer(&mut self, index: u32) -> io::Result<()> {
        let connection = &mut self.connections[index as usize];
        if connection.ending {
            self.forget_if_idle(index);
            return Ok(());
        }
        if connection.sending {
            return Ok(());
        }
        while let Some(&slot_index) = connection.requests.front() {
            let slot = &self.slots[slot_index as usize];
            match slot.answer {
                Answer::Reading => break,
                Answer::Failed => connection
                    .output
                    .extend_from_slice(b"SERVER_ERROR read\r\n"),
                Answer::Unknown => connection.output.extend_from_slice(b"ERROR\r\n"),
                Answer::Value => {
                    let block = self.blocks.at(slot_index as usize * BLOCK_BYTES);
                    // SAFETY: the read into this block has completed, and no read into it starts before the
                    // slot is freed below.
                    let value =
                        unsafe { std::slice::from_raw_parts(block, self.settings.value_bytes) };
                    let output = &mut connection.output;
                    output.extend_from_slice(b"VALUE ");
                    output.extend_from_slice(&slot.key[..usize::from(slot.key_bytes)]);
                    output.extend_from_slice(&self.header_tail);
                    output.extend_from_slice(value);
                    output.extend_from_slice(b"\r\nEND\r\n");
                }
            }
            connection.requests.pop_front();
            self.free_slots.push(slot_index);
        }
        if connection.output.is_empty() {
            Ok(())
        } else {
            self.send(index)
        }
    }

    /// Sends the rest of a connection's output.
    fn send(&mut self, index: u32) -> io::Result<()> {
        let connection = &mut self.connections[index as usize];
        connection.sending = true;
        let rest = &connection.output[connection.sent..];
        let entry = opcode::Send::new(Fixed(index + 1), rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.push(&entry.user_data(SEND | u64::from(index)))
    }

    /// Notes the end of a send.
    fn sent(&mut self, index: u32, result: i32) -> io::Result<()> {
        let connection = &mut self.connections[index as usize];
        connection.sending = false;
        if result <= 0 {
            self.end(index);
            self.forget_if_idle(index);
            return Ok(());
        }
        connection.sent += result as usize;
        if connection.sent < connection.output.len() && !connection.ending {
            return self.send(index);
        }
        connection.output.clear();
        connection.sent = 0;
        self.list(index);
        Ok(())
    }

    /// Starts closing a connection.
    fn end(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        connection.ending = true;
        if let Some(socket) = &connection.socket {
            // SAFETY: the descriptor is open as long as `socket` exists. The call ends a receive
            // that is still armed; its own result does not matter.
            unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }

    /// Forgets a closing connection when the kernel no longer works on it.
    fn forget_if_idle(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let busy = connection.receiving || connection.sending || connection.reading > 0;
        if !connection.ending || busy || connection.listed || connection.socket.is_none() {
            return;
        }
        self.free_slots.extend(connection.requests.drain(..));
        *connection = Connection::default();
        // A failure leaves an unused reference to a closed socket, which the next connection of this number
        // replaces.
        let _ = self
            .ring
            .submitter()
            .register_files_update(index + 1, &[-1]);
        self.free_connections.push(index);
    }
}
