//! Tests that turns are granted as the drive can take them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use runtime::sim::Sim;
use runtime::{JoinHandle, sleep, spawn};

use super::*;

const READ: Duration = Duration::from_micros(100);

/// A read of these tests is a number.
type Scheduler = super::Scheduler<u32>;
type ReadTurn = super::ReadTurn<u32>;

/// A read that has been given up.
const GIVEN_UP: u32 = u32::MAX;

impl Asked for u32 {
    fn is_given_up(&self) -> bool {
        *self == GIVEN_UP
    }
}

async fn turn(scheduler: &Scheduler, channel: u32) -> ReadTurn {
    scheduler.read(channel, 0).await.expect("its turn comes").0
}

/// Operations under way in a drive: reads of each channel, and writes.
#[derive(Default)]
struct Drive {
    reads: [u32; 4],
    writes: u32,
    most_of_a_channel: u32,
    most: u32,
    order: Vec<String>,
}

fn scheduling(queue_depth: u32, channel_depth: u32, is_channel_aware: bool) -> Scheduling {
    Scheduling {
        queue_depth,
        channel_depth,
        is_channel_aware,
        writes_alone: true,
    }
}

fn read(scheduler: &Scheduler, drive: &Rc<RefCell<Drive>>, channel: usize) -> JoinHandle<()> {
    let (scheduler, drive) = (scheduler.clone(), Rc::clone(drive));
    spawn(async move {
        let _turn = turn(&scheduler, channel as u32).await;
        {
            let drive = &mut *drive.borrow_mut();
            assert_eq!(drive.writes, 0, "no read beside a write");
            drive.reads[channel] += 1;
            drive.most_of_a_channel = drive.most_of_a_channel.max(drive.reads[channel]);
            drive.most = drive.most.max(drive.reads.iter().sum());
            drive.order.push(channel.to_string());
        }
        sleep(READ).await;
        drive.borrow_mut().reads[channel] -= 1;
    })
}

fn write(scheduler: &Scheduler, drive: &Rc<RefCell<Drive>>) -> JoinHandle<()> {
    let (scheduler, drive) = (scheduler.clone(), Rc::clone(drive));
    spawn(async move {
        let _turn = scheduler.write().await;
        {
            let mut drive = drive.borrow_mut();
            assert_eq!((drive.writes, drive.reads), (0, [0; 4]), "a write is alone");
            drive.writes += 1;
            drive.order.push("write".to_owned());
        }
        sleep(READ).await;
        drive.borrow_mut().writes -= 1;
    })
}

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.expect("each has its turn");
    }
}

#[test]
fn reads_spread_over_channels_whatever_their_order() {
    let took = |is_channel_aware| {
        Sim::new(1).block_on(async {
            let scheduler = Scheduler::new(scheduling(4, 1, is_channel_aware), 4);
            let drive = Rc::new(RefCell::new(Drive::default()));
            let begin = runtime::now();
            // Sixteen of channel 0, then sixteen of channel 1, and so on.
            let tasks = (0..64)
                .map(|nth| read(&scheduler, &drive, nth / 16))
                .collect();
            all(tasks).await;
            let drive = drive.borrow();
            (
                runtime::now().since(begin),
                drive.most_of_a_channel,
                drive.most,
            )
        })
    };
    assert_eq!(took(true), (READ * 16, 1, 4));
    let (_, most_of_a_channel, most) = took(false);
    assert!(most_of_a_channel > 1 && most == 4);
}

#[test]
fn a_channel_takes_its_depth_and_a_drive_its_queue() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(scheduling(5, 2, true), 4);
        let drive = Rc::new(RefCell::new(Drive::default()));
        all((0..40)
            .map(|nth| read(&scheduler, &drive, nth % 4))
            .collect())
        .await;
        let drive = drive.borrow();
        assert_eq!((drive.most_of_a_channel, drive.most), (2, 5));
    });
}

#[test]
fn pieces_of_a_flush_and_the_reads_that_wait_for_them_take_turns() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(Scheduling::default(), 4);
        let drive = Rc::new(RefCell::new(Drive::default()));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            tasks.push(write(&scheduler, &drive));
        }
        sleep(READ / 2).await;
        tasks.extend((0..4).map(|channel| read(&scheduler, &drive, channel)));
        sleep(READ * 3).await;
        assert_eq!(drive.borrow().writes, 1, "the last write is under way");
        tasks.push(read(&scheduler, &drive, 0));
        all(tasks).await;
        let order = &drive.borrow().order;
        assert_eq!(
            (order[0].as_str(), order[5].as_str(), order[6].as_str()),
            ("write", "write", "write")
        );
    });
}

#[test]
fn many_may_go_away_at_once() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(scheduling(1, 1, true), 4);
        let first = turn(&scheduler, 0).await;
        let mut waiting: Vec<_> = (0..200_000)
            .map(|_| Box::pin(turn(&scheduler, 1)))
            .collect();
        for one in &mut waiting {
            assert!(futures_util::poll!(one).is_pending());
        }
        drop(waiting);
        drop(first);
        drop(turn(&scheduler, 1).await);
        drop(scheduler.write().await);
    });
}

#[test]
fn who_goes_away_gives_the_turn_on() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(scheduling(1, 1, true), 4);
        let drive = Rc::new(RefCell::new(Drive::default()));
        let first = turn(&scheduler, 0).await;
        let mut impatient = Box::pin(turn(&scheduler, 1));
        assert!(futures_util::poll!(&mut impatient).is_pending());
        let mut impatient_write = Box::pin(scheduler.write());
        assert!(futures_util::poll!(&mut impatient_write).is_pending());
        let last = read(&scheduler, &drive, 2);
        drop((impatient, impatient_write, first));
        last.await.expect("it has its turn");
    });
}

/// Asks for reads, and leaves them waiting.
async fn asked(scheduler: &Scheduler, reads: &[(u32, u32)]) -> Vec<impl Future> {
    let mut waiting = Vec::new();
    for &(channel, number) in reads {
        let scheduler = scheduler.clone();
        let mut one = Box::pin(async move { scheduler.read(channel, number).await });
        assert!(futures_util::poll!(&mut one).is_pending());
        waiting.push(one);
    }
    waiting
}

#[test]
fn a_turn_is_passed_on_to_the_read_that_goes_next() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(scheduling(2, 2, true), 3);
        let mut first = turn(&scheduler, 0).await;
        let mut second = turn(&scheduler, 0).await;
        let waiting = asked(&scheduler, &[(0, 1), (1, 2), (2, GIVEN_UP), (2, 3), (0, 4)]).await;
        // Channels 1 and 2 have no read under way, and 1 has waited longer.
        assert_eq!(first.pass_on(), Some(2));
        // Channels 0 and 2 have no read under way, and 0 has waited longer.
        assert_eq!(second.pass_on(), Some(1));
        assert_eq!(first.pass_on(), Some(3));
        let mut write = Box::pin(scheduler.write());
        assert!(futures_util::poll!(&mut write).is_pending());
        assert_eq!(second.pass_on(), None, "a piece of a flush goes before");
        drop((first, second));
        drop(write.await);
        assert_eq!(turn(&scheduler, 0).await.pass_on(), None, "4 has a turn");
        drop(waiting);
    });
}

#[test]
fn a_turn_is_not_passed_on_to_another_thread() {
    let scheduler = Scheduler::new(scheduling(1, 1, true), 2);
    let mut first = Sim::new(1).block_on(turn(&scheduler, 0));
    let (has_asked, asks) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let elsewhere = {
        let scheduler = scheduler.clone();
        thread::spawn(move || {
            Sim::new(1).block_on(async {
                let waiting = asked(&scheduler, &[(1, 1)]).await;
                has_asked.send(()).expect("the test goes on");
                ends.recv().expect("the test ends");
                drop(waiting);
            });
        })
    };
    asks.recv().expect("it asks");
    Sim::new(1).block_on(async {
        let waiting = asked(&scheduler, &[(0, 2)]).await;
        let passed_on = first.pass_on();
        assert_eq!(passed_on, None, "the read that goes next is not of here");
        drop(waiting);
    });
    end.send(()).expect("it waits");
    elsewhere.join().expect("it ends");
}

#[test]
fn who_has_passed_a_turn_on_has_another() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(scheduling(1, 1, true), 1);
        let mut first = turn(&scheduler, 0).await;
        let mut waiting = Box::pin(scheduler.read(0, 7));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let mut last = Box::pin(turn(&scheduler, 0));
        assert!(futures_util::poll!(&mut last).is_pending());
        assert_eq!(first.pass_on(), Some(7));
        assert!(waiting.await.is_none(), "its read is another's");
        assert!(
            futures_util::poll!(&mut last).is_pending(),
            "7 is under way"
        );
        drop(first);
        drop(last.await);
    });
}

/// The task of a read may begin after its caller has gone away. By then the read must not use the drive.
#[test]
fn a_read_that_is_given_up_before_it_asks_gets_no_turn() {
    Sim::new(1).block_on(async {
        let scheduler = Scheduler::new(scheduling(2, 2, true), 3);
        assert!(scheduler.read(0, GIVEN_UP).await.is_none());
        drop(scheduler.write().await);
    });
}

/// Issue: "`sliced` on a device of 5 MB/s lets reads wait 0.9 s".
#[test]
fn reads_do_not_wait_for_writes_that_go_beside_them() {
    Sim::new(1).block_on(async {
        let beside = Scheduling {
            writes_alone: false,
            ..scheduling(2, 2, false)
        };
        let scheduler = Scheduler::new(beside, 1);
        let read = turn(&scheduler, 0).await;
        let write = scheduler.write().await;
        let mut second = Box::pin(scheduler.write());
        assert!(
            futures_util::poll!(&mut second).is_pending(),
            "one at a time"
        );
        let other = turn(&scheduler, 0).await;
        drop((read, other));
        drop(write);
        drop(second.await);
        drop(turn(&scheduler, 0).await);
    });
}
