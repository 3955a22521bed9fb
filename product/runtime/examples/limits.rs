//! Measures the cost of the runtime: `limits echo [N]` and `limits reads PATH` print one line each.
//!
//! `echo`: N (64) connections over loopback, one message of 40 bytes in flight on each; processor time of the server's worker per
//! message. `reads`: random 4 KiB reads of a file, 64 at once on one worker; processor time per read.

#![allow(clippy::print_stdout)]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use flowstone_runtime as runtime;

use runtime::buffer::{AlignedBuf, PAGE_BYTES};
use runtime::file::{DirectFile, OpenFlags};
use runtime::live::{IoChoice, LiveConfig, Workers};
use runtime::net::{Listener, Stream};

const CONNECTIONS: usize = 64;
const DEPTH: usize = 64;
const MESSAGE: [u8; 40] = [b'x'; 40];
const RUN: Duration = Duration::from_secs(3);

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let io = if arguments.iter().any(|argument| argument == "--fallback") {
        IoChoice::Fallback
    } else {
        IoChoice::Auto
    };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["echo", connections, ..] => echo(io, connections.parse().unwrap_or(CONNECTIONS)),
        ["echo"] => echo(io, CONNECTIONS),
        ["reads", path, ..] => reads(io, path),
        _ => Err(std::io::Error::other(
            "limits echo [N] | limits reads PATH [--fallback]",
        )),
    }
}

fn start(threads: usize, io: IoChoice) -> std::io::Result<Workers> {
    Workers::start(&LiveConfig {
        threads,
        io,
        ..LiveConfig::default()
    })
}

/// Returns the processor time of the calling thread: user and system.
fn thread_time() -> (Duration, Duration) {
    // SAFETY: a zeroed `rusage` is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_micros((time.tv_sec * 1_000_000 + time.tv_usec).unsigned_abs())
    };
    (time(usage.ru_utime), time(usage.ru_stime))
}

/// Runs `work` for [`RUN`] on the calling worker and prints the cost of one `count`ed operation.
async fn measure(what: &str, count: &Cell<u64>) {
    runtime::sleep(Duration::from_millis(300)).await;
    let (user, system) = thread_time();
    let (begun, before) = (runtime::now(), count.get());
    runtime::sleep(RUN).await;
    let done = count.get() - before;
    let took = runtime::now().since(begun).as_secs_f64();
    let (user_after, system_after) = thread_time();
    let each = |time: Duration| time.as_nanos() as f64 / done.max(1) as f64;
    println!(
        "{what}: {:.0} a second, {:.0} ns user + {:.0} ns system each",
        done as f64 / took,
        each(user_after - user),
        each(system_after - system),
    );
}

fn echo(io: IoChoice, connections: usize) -> std::io::Result<()> {
    let workers = start(2, io)?;
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into())?;
    let address = listener.tcp_address().ok_or(std::io::ErrorKind::Other)?;
    let (finished, wait) = mpsc::channel();
    workers.spawn_on(0, move || async move {
        let count = Rc::new(Cell::new(0));
        for _ in 0..connections {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            runtime::spawn(serve(stream, Rc::clone(&count)));
        }
        measure("echo", &count).await;
        // The receiver waits for this value.
        let _ = finished.send(());
    });
    workers.spawn_on(1, move || async move {
        for _ in 0..connections {
            runtime::spawn(async move {
                let Ok(socket) = std::net::TcpStream::connect(address) else {
                    return;
                };
                // Fails only if the connection has ended.
                let _ = socket.set_nodelay(true);
                let stream = Stream::new(socket.into());
                let mut message = MESSAGE.to_vec();
                loop {
                    let (sent, back) = stream.send_now(message).await;
                    message = back;
                    if sent.is_err() || stream.recv().await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let _ = wait.recv();
    workers.shutdown();
    Ok(())
}

async fn serve(stream: Stream, count: Rc<Cell<u64>>) {
    let mut reply = Vec::new();
    while let Ok(received) = stream.recv().await {
        if received.is_empty() {
            return;
        }
        reply.clear();
        reply.extend_from_slice(&received);
        drop(received);
        let (sent, back) = stream.send_now(reply).await;
        reply = back;
        if sent.is_err() {
            return;
        }
        count.set(count.get() + 1);
    }
}

fn reads(io: IoChoice, path: &str) -> std::io::Result<()> {
    let flags = OpenFlags {
        read_only: true,
        create_new: false,
        direct: true,
        exclusive_device: false,
    };
    let file = Arc::new(DirectFile::open(Path::new(path), flags)?);
    let pages = file.len_bytes()? / PAGE_BYTES as u64;
    let workers = start(1, io)?;
    println!("cached: {:?}, {}", file.why_cached(), workers.io_path());
    let (finished, wait) = mpsc::channel();
    workers.spawn_on(0, move || async move {
        let count = Rc::new(Cell::new(0));
        for _ in 0..DEPTH {
            let (file, count) = (Arc::clone(&file), Rc::clone(&count));
            runtime::spawn(async move {
                loop {
                    let at = runtime::random_u64() % pages * PAGE_BYTES as u64;
                    let (read, _) = file.read_at(AlignedBuf::new(PAGE_BYTES), at).await;
                    if read.is_err() {
                        return;
                    }
                    count.set(count.get() + 1);
                }
            });
        }
        measure("reads", &count).await;
        let _ = finished.send(());
    });
    let _ = wait.recv();
    workers.shutdown();
    Ok(())
}
