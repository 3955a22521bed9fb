//! The bare loop: the speed that the hardware and the kernel allow a flash cache.
//!
//! A server that answers every memcached `get` with a value from one direct 4 KiB read at a random place of a
//! file. It has no cache, no index and no checksums, and parses as little as possible. A real server is
//! measured against it, on the same machine and with the same generator.
//!
//! ```text
//!   acceptor (main) ──fd──▶ worker 1: one ring ── receives, file reads, sends
//!                  └──fd──▶ worker 2: ...
//! ```
//!
//! Each worker has one `io_uring` for its sockets and the file (single issuer, deferred task work), so a
//! request never changes thread. Receives are multishot into provided buffers. Reads go into registered
//! buffers of a registered file opened with `O_DIRECT`.
//!
//! It stores nothing, and every key exists. A connection that breaks the protocol, or that has more requests
//! in flight than there are read buffers, is closed. A failed read is answered with `SERVER_ERROR`. Needs
//! Linux 6.1 or later.

use std::fs::OpenOptions;
use std::io::{self, PipeWriter, Write};
use std::net::TcpListener;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::Parser;

mod pages;
mod worker;

use worker::{BLOCK_BYTES, MAX_VALUE_BYTES, Settings, Worker};

/// The bare loop: every GET is one direct 4 KiB read at a random place.
#[derive(Parser)]
struct Options {
    /// File or block device to read; it is never written
    #[arg(long)]
    file: PathBuf,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:11311")]
    listen: String,
    /// Worker threads, each with its own ring
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Bytes of the read block that are returned
    #[arg(long, default_value_t = 270,
          value_parser = clap::value_parser!(u32).range(..=MAX_VALUE_BYTES as i64))]
    value_size: u32,
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("flowstone-bench-limit: {words}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<(), String> {
    let with_name = |error: io::Error| format!("{}: {error}", options.file.display());
    let (file, blocks) = open(&options.file).map_err(with_name)?;
    if blocks == 0 {
        return Err(format!(
            "{}: is shorter than one block",
            options.file.display()
        ));
    }
    let listener = TcpListener::bind(&options.listen)
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    let settings = Settings {
        blocks,
        value_bytes: options.value_size as usize,
    };
    let mut inboxes = Vec::new();
    for number in 0..options.threads {
        let file = file.try_clone().map_err(with_name)?;
        let (inbox, outbox) = io::pipe().map_err(|error| format!("cannot open a pipe: {error}"))?;
        inboxes.push(outbox);
        // The ring belongs to the thread that makes it.
        thread::spawn(
            move || match Worker::new(file, inbox, settings, u64::from(number)) {
                Ok(mut worker) => stop(&worker.run()),
                Err(error) => stop(&Err(error)),
            },
        );
    }
    accept(&listener, &mut inboxes).map_err(|error| format!("cannot accept: {error}"))
}

/// Ends the program when a worker fails: figures without that worker would mean nothing.
fn stop(result: &io::Result<()>) {
    if let Err(error) = result {
        eprintln!("flowstone-bench-limit: a worker failed: {error}");
        std::process::exit(1);
    }
}

/// Opens the file for direct reads. Returns it and the number of its blocks.
fn open(path: &Path) -> io::Result<(OwnedFd, u64)> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)?;
    let metadata = file.metadata()?;
    let bytes = if metadata.file_type().is_block_device() {
        io::Seek::seek(&mut file, io::SeekFrom::End(0))?
    } else {
        metadata.len()
    };
    Ok((file.into(), bytes / BLOCK_BYTES as u64))
}

/// Hands connections to the workers in turn.
fn accept(listener: &TcpListener, inboxes: &mut [PipeWriter]) -> io::Result<()> {
    for turn in (0..inboxes.len()).cycle() {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        inboxes[turn].write_all(&stream.into_raw_fd().to_ne_bytes())?;
    }
    Ok(())
}
