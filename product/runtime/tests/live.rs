//! The live runtime, its sockets and its files, on the ring and on the fallback.

#![allow(clippy::unwrap_used)]

use flowstone_runtime as runtime;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flowstone_runtime::buffer::{AlignedBuf, PAGE_BYTES};
use flowstone_runtime::file::{DirectFile, Kind, OpenFlags, is_locked, try_lock};
use flowstone_runtime::live::{IoChoice, IoPath, LiveConfig, Workers, block_on_with};
use flowstone_runtime::net::{Listener, PeerAddr, Stream};

const PATHS: [IoChoice; 2] = [IoChoice::IoUring, IoChoice::Fallback];

/// Connects to a listener of this process, which need not have accepted the connection yet.
fn connect(address: SocketAddr) -> Stream {
    Stream::new(TcpStream::connect(address).unwrap().into())
}

fn workers(threads: usize, io: IoChoice) -> Workers {
    Workers::start(&LiveConfig {
        threads,
        io,
        ..LiveConfig::default()
    })
    .unwrap()
}

/// Runs `make`'s future on a worker and returns its output.
fn on<T, F, Fut>(workers: &Workers, worker: usize, make: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (give, take) = mpsc::channel();
    workers.spawn_on(worker, move || async move {
        give.send(make().await).unwrap();
    });
    take.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn tasks_run_on_the_worker_they_were_given_to() {
    for io in PATHS {
        let workers = workers(3, io);
        for worker in 0..3 {
            let name = on(&workers, worker, || async {
                runtime::sleep(Duration::from_millis(1)).await;
                std::thread::current().name().map(str::to_owned)
            });
            assert_eq!(name, Some(format!("flowstone-{worker}")));
        }
        workers.shutdown();
    }
}

#[test]
fn the_io_path_is_named() {
    let ring = workers(1, IoChoice::IoUring);
    assert_eq!(*ring.io_path(), IoPath::IoUring);
    ring.shutdown();
    let polling = workers(1, IoChoice::Fallback);
    assert!(matches!(polling.io_path(), IoPath::Fallback { reason } if reason == "asked for"));
    polling.shutdown();
}

#[test]
fn a_wait_ends_with_its_work_or_after_its_deadline() {
    const LIMIT: Duration = Duration::from_millis(30);
    for io in PATHS {
        let workers = workers(1, io);
        on(&workers, 0, || async {
            let far = runtime::now() + Duration::from_secs(20);
            let done = runtime::until(far, runtime::sleep(LIMIT)).await;
            assert_eq!(done, Ok(()));
            for _ in 0..3 {
                let begun = runtime::now();
                let over = runtime::until(begun + LIMIT, std::future::pending::<()>()).await;
                assert_eq!(over, Err(runtime::Elapsed));
                assert!(runtime::now().since(begun) >= LIMIT);
                // Without waits nobody looks at deadlines; the next wait begins that again.
                runtime::sleep(3 * LIMIT).await;
            }
        });
        workers.shutdown();
    }
}

#[test]
fn a_panicking_task_takes_nothing_else_with_it() {
    for io in PATHS {
        let workers = workers(1, io);
        workers.spawn_on(0, || async { panic!("in a task") });
        workers.spawn_on(0, || {
            panic!("while making a task");
            #[allow(unreachable_code)]
            async {}
        });
        let nested = on(&workers, 0, || async {
            runtime::spawn(async {
                runtime::yield_now().await;
                panic!("in a nested task");
            })
            .await
        });
        assert_eq!(nested, None::<()>);
        assert_eq!(on(&workers, 0, || async { 7 }), 7);
        workers.shutdown();
    }
}

#[test]
fn any_number_of_wakes_from_another_thread_arrives() {
    for io in PATHS {
        let workers = workers(2, io);
        let notify = Arc::new(runtime::sync::Notify::new());
        let (ready, is_ready) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        for _ in 0..2000 {
            let (notify, ready, done) = (Arc::clone(&notify), ready.clone(), done.clone());
            workers.spawn_on(0, move || async move {
                let listener = notify.listener();
                ready.send(()).unwrap();
                listener.await;
                done.send(()).unwrap();
            });
        }
        for _ in 0..2000 {
            is_ready.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        workers.spawn_on(1, move || async move { notify.notify_all() });
        for _ in 0..2000 {
            is_done.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        workers.shutdown();
    }
}

#[test]
fn a_busy_task_does_not_keep_completions_from_others() {
    for io in PATHS {
        block_on_with(io, async {
            let directory = tempfile::tempdir().unwrap();
            let file = create(&directory.path().join("busy"), 1);
            // Written first: a read of a hole would complete at once.
            file.write_at(pages(1, 1), 0).await.0.unwrap();
            let busy = runtime::spawn(async {
                loop {
                    runtime::yield_now().await;
                }
            });
            let read = file.read_at(AlignedBuf::new(PAGE_BYTES), 0);
            let read = runtime::timeout(Duration::from_secs(10), read).await;
            assert_eq!(read.unwrap().0.unwrap(), PAGE_BYTES);
            drop(busy);
        });
    }
}

#[test]
fn a_stop_with_work_in_flight_ends_cleanly() {
    for io in PATHS {
        let directory = tempfile::tempdir().unwrap();
        let workers = workers(2, io);
        for worker in 0..2 {
            let path = directory.path().join(worker.to_string());
            on(&workers, worker, move || async move {
                let file = Arc::new(create(&path, 256));
                for page in 0..256 {
                    let file = Arc::clone(&file);
                    runtime::spawn(async move {
                        loop {
                            let at = page * PAGE_BYTES as u64;
                            let _ = file.read_at(AlignedBuf::new(PAGE_BYTES), at).await;
                        }
                    });
                }
                let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
                runtime::spawn(async move {
                    let _ = listener.accept().await;
                });
                runtime::yield_now().await;
            });
        }
        workers.stop();
        workers.join();
        workers.spawn_on(0, || async { unreachable!("after the stop") });
    }
}

fn fill(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

async fn echo(stream: Stream) {
    loop {
        let received = stream.recv().await.unwrap();
        if received.is_empty() {
            return;
        }
        let sent = stream.send(&received).await;
        sent.unwrap();
    }
}

async fn exchange(stream: &Stream, message: &[u8]) -> Vec<u8> {
    stream.send(message).await.unwrap();
    let mut back = Vec::new();
    while back.len() < message.len() {
        let received = stream.recv().await.unwrap();
        assert!(!received.is_empty(), "the other side closed");
        back.extend_from_slice(&received);
    }
    back
}

#[test]
fn tcp_connections_echo_on_another_worker() {
    for io in PATHS {
        let workers = workers(2, io);
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.tcp_address().unwrap();
        let server = workers.clone();
        workers.spawn_on(0, move || async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                assert!(matches!(peer, PeerAddr::Tcp(peer) if peer.ip() == address.ip()));
                server.spawn_on(1, move || echo(stream));
            }
        });
        on(&workers, 0, move || async move {
            let mut clients = Vec::new();
            for client in 0..100u64 {
                clients.push(runtime::spawn(async move {
                    let stream = connect(address);
                    for round in 0..20 {
                        let message = fill(client * 100 + round, 1 + round as usize * 50);
                        assert_eq!(exchange(&stream, &message).await, message);
                    }
                    1
                }));
            }
            for client in clients {
                assert_eq!(client.await, Some(1));
            }
        });
        workers.shutdown();
    }
}

#[test]
fn more_connections_than_receive_buffers_still_receive() {
    let workers = Workers::start(&LiveConfig {
        threads: 1,
        io: IoChoice::IoUring,
        recv_buffers: 2,
        recv_buffer_bytes: 64,
    })
    .unwrap();
    on(&workers, 0, || async {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.tcp_address().unwrap();
        let mut held = Vec::new();
        let mut streams = Vec::new();
        for client in 0..10u8 {
            let sender = connect(address);
            let (receiver, _) = listener.accept().await.unwrap();
            sender.send(&[client; 50]).await.unwrap();
            let received = receiver.recv().await.unwrap();
            assert_eq!(*received, [client; 50]);
            held.push(received);
            streams.push((sender, receiver));
        }
        held.clear();
        for (sender, receiver) in &streams {
            sender.send(&[9; 3]).await.unwrap();
            assert_eq!(*receiver.recv().await.unwrap(), [9; 3]);
        }
    });
    workers.shutdown();
}

#[test]
fn large_values_pass_a_peer_that_reads_late() {
    for io in PATHS {
        block_on_with(io, async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let listener = Listener::unix(&path, 0o600).unwrap();
            let client = Stream::new(UnixStream::connect(&path).unwrap().into());
            let (server, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, PeerAddr::Unix);
            let message = fill(1, 8 << 20);
            let expected = message.clone();
            let sender = runtime::spawn(async move {
                client.send(&message).await.unwrap();
                client
            });
            runtime::sleep(Duration::from_millis(10)).await;
            let mut got = Vec::new();
            while got.len() < expected.len() {
                let left = expected.len() - got.len();
                match server.recv_into(&mut got, left.min(100_000)).await.unwrap() {
                    Some(count) => assert!(count > 0),
                    None => server.readable().await.unwrap(),
                }
            }
            assert!(got == expected);
            drop(sender.await.unwrap());
            assert_eq!(server.recv_into(&mut got, 10).await.unwrap(), Some(0));
            assert!(server.recv().await.unwrap().is_empty());
        });
    }
}

#[test]
fn a_closer_ends_a_connection_that_waits() {
    for io in PATHS {
        block_on_with(io, async {
            let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.tcp_address().unwrap();
            let client = connect(address);
            let (server, _) = listener.accept().await.unwrap();
            let closer = server.closer();
            let waits = runtime::spawn(async move { server.recv().await.unwrap().is_empty() });
            runtime::yield_now().await;
            closer.clone().close();
            assert_eq!(waits.await, Some(true));
            closer.close();
            assert!(client.recv().await.unwrap().is_empty());
        });
    }
}

#[test]
fn a_refused_connection_is_an_error() {
    for io in PATHS {
        block_on_with(io, async {
            let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.tcp_address().unwrap();
            let taken = Listener::tcp(address).unwrap_err();
            assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
            drop(listener);
            let refused = TcpStream::connect(address).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        });
    }
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left behind");
    let listener = Listener::unix(&path, 0o600).unwrap();
    let second = Listener::unix(&path, 0o600).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "data").unwrap();
    let foreign = Listener::unix(&path, 0o600).unwrap_err();
    assert_eq!(foreign.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
}

const NEW: OpenFlags = OpenFlags {
    read_only: false,
    create_new: true,
    direct: true,
    exclusive_device: true,
};

const EXISTING: OpenFlags = OpenFlags {
    create_new: false,
    ..NEW
};

fn create(path: &Path, pages: u64) -> DirectFile {
    let file = DirectFile::open(path, NEW).unwrap();
    file.set_len(pages * PAGE_BYTES as u64).unwrap();
    file
}

fn pages(seed: u64, count: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::new(count * PAGE_BYTES);
    let len = buf.len();
    buf.copy_from_slice(&fill(seed, len));
    buf
}

#[test]
fn a_file_reads_back_what_was_written_on_any_worker() {
    for io in PATHS {
        let directory = tempfile::tempdir().unwrap();
        let file = Arc::new(create(&directory.path().join("file"), 64));
        assert_eq!(file.kind(), Kind::File);
        let workers = workers(2, io);
        let writer = Arc::clone(&file);
        on(&workers, 0, move || async move {
            for chunk in 0..16u64 {
                let at = chunk * 4 * PAGE_BYTES as u64;
                let (written, data) = writer.write_at(pages(chunk, 4), at).await;
                assert_eq!(written.unwrap(), data.len());
            }
            writer.sync_data().await.unwrap();
        });
        on(&workers, 1, move || async move {
            let mut reads = Vec::new();
            for chunk in 0..16u64 {
                let file = Arc::clone(&file);
                reads.push(runtime::spawn(async move {
                    let at = chunk * 4 * PAGE_BYTES as u64;
                    let (read, data) = file.read_at(AlignedBuf::new(4 * PAGE_BYTES), at).await;
                    assert_eq!(read.unwrap(), data.len());
                    assert!(*data == *pages(chunk, 4));
                }));
            }
            for read in reads {
                read.await.unwrap();
            }
            file.discard(0, PAGE_BYTES as u64).await.unwrap();
            let (read, data) = file.read_at(AlignedBuf::new(PAGE_BYTES), 0).await;
            assert_eq!(read.unwrap(), PAGE_BYTES);
            assert!(data.iter().all(|&byte| byte == 0));
        });
        workers.shutdown();
    }
}

/// A long turn of the loop holds up no device.
#[test]
fn the_kernel_gets_writes_before_the_turn_that_begins_them_ends() {
    for io in PATHS {
        block_on_with(io, async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let file = create(&path, 2);
            let at = |page: u64| page * PAGE_BYTES as u64;
            let mut context = Context::from_waker(Waker::noop());
            let mut writes = Vec::new();
            for page in [0, 1] {
                let mut write = Box::pin(file.write_at(pages(1 + page, 1), at(page)));
                // A thread may have ended it by now.
                match write.as_mut().poll(&mut context) {
                    Poll::Ready((written, _)) => assert_eq!(written.unwrap(), PAGE_BYTES),
                    Poll::Pending => writes.push(write),
                }
            }
            let begun = std::time::Instant::now();
            let expected = [&pages(1, 1)[..], &pages(2, 1)[..]].concat();
            while std::fs::read(&path).unwrap() != expected {
                assert!(begun.elapsed() < Duration::from_secs(20), "{io:?}");
                std::thread::yield_now();
            }
            for write in writes {
                assert_eq!(write.await.0.unwrap(), PAGE_BYTES);
            }
        });
    }
}

#[test]
fn a_read_past_the_end_of_a_file_is_short() {
    for io in PATHS {
        block_on_with(io, async {
            let directory = tempfile::tempdir().unwrap();
            let file = create(&directory.path().join("file"), 4);
            file.set_len(2 * PAGE_BYTES as u64 + 100).unwrap();
            let (read, _) = file.read_at(AlignedBuf::new(4 * PAGE_BYTES), 0).await;
            assert_eq!(read.unwrap(), 2 * PAGE_BYTES + 100);
            let far = file.read_at(AlignedBuf::new(PAGE_BYTES), 1 << 30).await;
            assert_eq!(far.0.unwrap(), 0);
        });
    }
}

#[test]
fn more_reads_at_once_than_threads_all_complete() {
    block_on_with(IoChoice::Fallback, async {
        let directory = tempfile::tempdir().unwrap();
        let file = Arc::new(create(&directory.path().join("file"), 1));
        let mut reads = Vec::new();
        for _ in 0..500 {
            let file = Arc::clone(&file);
            reads.push(runtime::spawn(async move {
                file.read_at(AlignedBuf::new(PAGE_BYTES), 0)
                    .await
                    .0
                    .unwrap()
            }));
        }
        for read in reads {
            assert_eq!(read.await, Some(PAGE_BYTES));
        }
    });
}

#[test]
fn a_file_in_the_page_cache_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let flags = OpenFlags {
        direct: false,
        ..NEW
    };
    let file = DirectFile::open(&directory.path().join("file"), flags).unwrap();
    assert_eq!(file.why_cached(), Some("not asked for"));
}

#[test]
fn one_lock_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let first = create(&path, 1);
    assert!(first.try_lock().unwrap());
    let second = DirectFile::open(&path, EXISTING).unwrap();
    assert!(!second.try_lock().unwrap());
    drop(first);
    assert!(second.try_lock().unwrap());
}

#[test]
fn a_lock_goes_with_its_file_though_a_sync_has_been_given_up() {
    for io in PATHS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut file = create(&path, 256);
        let mut given_up = 0;
        for round in 0..20 {
            assert!(file.try_lock().unwrap(), "{io:?}, round {round}");
            block_on_with(io, async {
                file.write_at(pages(round, 256), 0).await.0.unwrap();
                let mut sync = std::pin::pin!(file.sync_data());
                let begun = sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                // A thread may have ended it by now.
                given_up += u32::from(begun.is_pending());
                // The ring takes it with this turn's operations.
                runtime::yield_now().await;
            });
            file = DirectFile::open(&path, EXISTING).unwrap();
        }
        assert!(given_up > 0, "{io:?}: each sync had ended at once");
    }
}

#[test]
fn whoever_may_only_read_a_file_keeps_nobody_from_its_lock() {
    use rustix::fs::{FlockOperation, flock};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let owner = create(&path, 1);
    let reader = std::fs::File::open(&path).unwrap();
    assert!(try_lock(&reader).is_err(), "opened for reading only");
    flock(&reader, FlockOperation::LockExclusive).unwrap();
    assert!(!is_locked(&path).unwrap(), "by nobody who counts");
    assert!(owner.try_lock().unwrap());
}

#[test]
fn a_file_opened_for_reading_takes_no_writes_and_its_lock_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let read_only = OpenFlags {
        read_only: true,
        ..EXISTING
    };
    let owner = create(&path, 2);
    assert!(!is_locked(&path).unwrap());
    assert!(owner.try_lock().unwrap());
    block_on_with(IoChoice::Auto, async {
        let (written, _) = owner.write_at(pages(1, 2), 0).await;
        written.unwrap();
        let reader = DirectFile::open(&path, read_only).unwrap();
        let (read, bytes) = reader.read_at(AlignedBuf::new(2 * PAGE_BYTES), 0).await;
        assert_eq!(
            (read.unwrap(), &bytes[..]),
            (2 * PAGE_BYTES, &pages(1, 2)[..])
        );
        let (refused, _) = reader.write_at(pages(2, 1), 0).await;
        assert!(refused.is_err());
    });
    assert!(is_locked(&path).unwrap());
    drop(owner);
    assert!(!is_locked(&path).unwrap());
}
